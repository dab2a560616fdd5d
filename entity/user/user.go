// Package user holds the rules of a person: who they are, the workspaces they belong to, and what they hold.
//
//	(none) ──CreateUser──► a person ──Disable──► disabled ──Enable──► a person
//	                          └─JoinWorkspace, LeaveWorkspace, ChangeProfile, SetInternalAdmin
//
//	API key:         (none) ──IssueApiKey──► usable ──RevokeApiKey, expiresAt──► closed
//	password:        (none) ──OfferOneTimeLink──► link open ──SetPassword──► set, every browser session ended
//	browser session: (none) ──StartBrowserSession──► usable ──EndBrowserSession, SetPassword, UnlinkIdentities, expiresAt──► gone
//	identity:        (none) ──StartBrowserSession──► linked: the issuer's other subjects are refused ──UnlinkIdentities──► (none)
//	workspace:       (none) ──ReserveWorkspace──► reserved for a while ──JoinWorkspace, created──► counted ──ForgetWorkspace──► (none)
//	grant:           (none) ──AllowGrant──► live ──RevokeGrant──► revoked
//	machine:         (none) ──RegisterMachine──► active (again: renamed) ──RemoveMachine──► removed
//
// The platform creates people, proves who they are and tells them what they joined. What they hold is the person's own
// business: a credential that acts as the person (entity.Human) lists and ends it; one that merely acts for the person
// reads who they are. An impersonation makes nothing that would outlive it. To everybody else there is no such person.
// Secrets come in as hashes and never go out again; a disabled person keeps everything, and is asked for by whoever
// authenticates (DescribeStanding).
package user

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Kind describes people to the runtime.
var Kind = rules.Kind()

var rules = entity.Rules[*userv1.User, userv1.Command, userv1.Event]{
	Name: entity.KindUser, Zero: Zero, Access: accessOf, Check: Check, Decide: decide, Evolve: Evolve, Reply: Reply,
	Rows: Rows, Tasks: Tasks, React: React,
	// The lists are the operators' alone: nobody is an administrator of themselves.
	Lists: map[string]entity.List{
		audit.List: {Need: entity.Reads(entity.Admin)},
		People:     {Need: entity.Reads(entity.Admin)},
	},
}

// Zero is the state before the first event.
func Zero(identity string) *userv1.User {
	return &userv1.User{Id: identity}
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: not_found, forbidden, invalid_request, link_invalid, limit_reached.
func Decide(call entity.Call, s *userv1.User, c userv1.Command) ([]userv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *userv1.User, c userv1.Command) ([]userv1.Event, error) {
	if _, creates := c.(*userv1.CreateUser); !creates && !exists(s) {
		return nil, errNotFound
	}
	if s.GetDisabledAt() != 0 && needsStanding(c) {
		return nil, errDisabled
	}
	switch c := c.(type) {
	case *userv1.CreateUser:
		return createUser(call, s, c)
	case *userv1.JoinWorkspace:
		return joinWorkspace(call, s, c)
	case *userv1.LeaveWorkspace:
		return leaveWorkspace(call, s, c)
	case *userv1.ReserveWorkspace:
		return reserveWorkspace(call, s, c)
	case *userv1.ForgetWorkspace:
		return forgetWorkspace(call, s, c)
	case *userv1.ChangeProfile:
		return changeProfile(call, s, c)
	case *userv1.Disable:
		return disable(call, s)
	case *userv1.Enable:
		return enable(call, s)
	case *userv1.SetInternalAdmin:
		return setInternalAdmin(call, s, c)
	case *userv1.IssueApiKey:
		return issueKey(call, s, c)
	case *userv1.RevokeApiKey:
		return revokeKey(call, s, c)
	case *userv1.ReportLinkMailed:
		return linkMailed(call, s, c), nil
	case *userv1.OfferOneTimeLink:
		return offerLink(call, s, c)
	case *userv1.SetPassword:
		return setPassword(call, s, c)
	case *userv1.StartBrowserSession:
		return startSession(call, s, c)
	case *userv1.EndBrowserSession:
		return endSession(call, s, c)
	case *userv1.UnlinkIdentities:
		return unlinkIdentities(call, s)
	case *userv1.StartImpersonation:
		return startImpersonation(call, s, c)
	case *userv1.AllowGrant:
		return allowGrant(call, s, c)
	case *userv1.RevokeGrant:
		return revokeGrant(call, s, c)
	case *userv1.RegisterMachine:
		return registerMachine(call, s, c)
	case *userv1.RemoveMachine:
		return removeMachine(call, s, c)
	case *userv1.ListApiKeys:
		return nil, checkPage(c)
	case *userv1.ListGrants:
		return nil, checkPage(c)
	case *userv1.ListMachines:
		return nil, checkPage(c)
	case *userv1.DescribeUser, *userv1.DescribeStanding, *userv1.DescribePassword, *userv1.ListBrowserSessions:
	}
	return nil, nil
}

// Evolve is the state after an event. It shares with s what the event did not change.
func Evolve(s *userv1.User, e userv1.Event) *userv1.User {
	next := copyOf(s)
	switch e := e.(type) {
	case *userv1.UserCreated:
		next.Email, next.Name, next.CreatedAt = e.GetEmail(), e.GetName(), e.GetAt()
	case *userv1.WorkspaceJoined:
		next.Workspaces = entity.With(s.GetWorkspaces(), e.GetWorkspaceId(), e.GetAt())
		if e.GetCreated() {
			next.CreatedWorkspaces = entity.With(s.GetCreatedWorkspaces(), e.GetWorkspaceId(), 0)
		}
	case *userv1.WorkspaceReserved:
		next.CreatedWorkspaces = entity.With(placesTaken(s, e.GetAt()), e.GetWorkspaceId(), e.GetExpiresAt())
	case *userv1.WorkspaceForgotten:
		next.CreatedWorkspaces = entity.Without(s.GetCreatedWorkspaces(), e.GetWorkspaceId())
	case *userv1.WorkspaceLeft:
		next.Workspaces = entity.Without(s.GetWorkspaces(), e.GetWorkspaceId())
	case *userv1.ProfileChanged:
		next.FirstName, next.LastName = e.GetFirstName(), e.GetLastName()
	case *userv1.UserDisabled:
		next.DisabledAt = e.GetAt()
	case *userv1.UserEnabled:
		next.DisabledAt = 0
	case *userv1.InternalAdminSet:
		next.InternalAdmin = e.GetInternalAdmin()
	case *userv1.ApiKeyIssued:
		next.ApiKeys = keysAfter(s, e.GetKey(), e.GetKey().GetCreatedAt())
	case *userv1.ApiKeyRevoked:
		revoked := copyOfKey(s.GetApiKeys()[e.GetKeyId()])
		revoked.Id, revoked.RevokedAt = e.GetKeyId(), e.GetAt()
		next.ApiKeys = keysAfter(s, revoked, e.GetAt())
	case *userv1.OneTimeLinkOffered:
		next.OneTimeLink = e.GetLink()
	case *userv1.OneTimeLinkMailed:
		next.OneTimeLink = &userv1.OneTimeLink{
			SecretSha256: s.GetOneTimeLink().GetSecretSha256(), ExpiresAt: s.GetOneTimeLink().GetExpiresAt(),
		}
	case *userv1.PasswordSet:
		next.PasswordHash, next.OneTimeLink = e.GetPasswordHash(), nil
		next.BrowserSessions = entity.Without(s.GetBrowserSessions(), e.GetEndedSessionIds()...)
	case *userv1.BrowserSessionStarted:
		next.BrowserSessions = sessionsAfter(s, e)
	case *userv1.BrowserSessionEnded:
		next.BrowserSessions = entity.Without(s.GetBrowserSessions(), e.GetSessionId())
	case *userv1.IdentityLinked:
		next.LinkedIdentities = entity.With(s.GetLinkedIdentities(), e.GetIdentity().GetIssuer(), e.GetIdentity())
	case *userv1.IdentitiesUnlinked:
		next.LinkedIdentities = nil
		next.BrowserSessions = entity.Without(s.GetBrowserSessions(), e.GetEndedSessionIds()...)
	case *userv1.ImpersonationStarted:
		next.Impersonations = entity.With(running(s, e.GetAt()), e.GetCredentialId(), e.GetExpiresAt())
	case *userv1.GrantAllowed:
		next.Grants = entity.With(s.GetGrants(), e.GetGrant().GetId(), e.GetGrant())
	case *userv1.GrantRevoked:
		next.Grants = grantsAfter(s, e)
	case *userv1.MachineRegistered:
		next.Machines = entity.With(s.GetMachines(), e.GetMachine().GetId(), e.GetMachine())
	case *userv1.MachineRenamed:
		renamed := copyOfMachine(s.GetMachines()[e.GetMachineId()])
		renamed.Name, renamed.LastUsedAt = e.GetName(), e.GetAt()
		next.Machines = entity.With(s.GetMachines(), e.GetMachineId(), renamed)
	case *userv1.MachineRemoved:
		next.Machines = machinesAfter(s, e)
	}
	return next
}

// Reply is what the asker gets; s is the state after the events.
func Reply(call entity.Call, s *userv1.User, c userv1.Command, _ []userv1.Event) proto.Message {
	switch c := c.(type) {
	case *userv1.IssueApiKey:
		return shownKey(s.GetApiKeys()[c.GetKeyId()])
	case *userv1.RevokeApiKey:
		return shownKey(s.GetApiKeys()[c.GetKeyId()])
	case *userv1.ListApiKeys:
		return pageOfKeys(s, c)
	case *userv1.DescribeUser:
		return describe(call, s)
	case *userv1.ChangeProfile:
		return describe(call, s)
	case *userv1.DescribeStanding:
		return &userv1.Standing{Disabled: s.GetDisabledAt() != 0, InternalAdmin: s.GetInternalAdmin()}
	case *userv1.DescribePassword:
		return &userv1.Password{
			Hash: s.GetPasswordHash(), Link: s.GetOneTimeLink(), Disabled: s.GetDisabledAt() != 0,
			Linked: len(s.GetLinkedIdentities()) > 0,
		}
	case *userv1.ListBrowserSessions:
		return shownSessions(call, s)
	case *userv1.AllowGrant:
		return s.GetGrants()[c.GetGrant().GetId()]
	case *userv1.RevokeGrant:
		return s.GetGrants()[c.GetGrantId()]
	case *userv1.ListGrants:
		return pageOfGrants(s, c)
	case *userv1.RegisterMachine:
		return machineOf(s, c)
	case *userv1.RemoveMachine:
		return s.GetMachines()[c.GetMachineId()]
	case *userv1.ListMachines:
		return pageOfMachines(s, c)
	case *userv1.CreateUser, *userv1.JoinWorkspace, *userv1.LeaveWorkspace, *userv1.ReserveWorkspace,
		*userv1.ForgetWorkspace, *userv1.Disable, *userv1.Enable, *userv1.SetInternalAdmin, *userv1.ReportLinkMailed,
		*userv1.OfferOneTimeLink, *userv1.SetPassword, *userv1.StartBrowserSession,
		*userv1.EndBrowserSession, *userv1.UnlinkIdentities, *userv1.StartImpersonation:
	}
	return &wirev1.Done{}
}
