// Package user implements the rules of users: their account, the workspaces that they belong to, and their API keys,
// browser sessions, linked identities, OAuth grants and sync machines.
//
//	(none) ──CreateUser──► active ──Disable──► disabled ──Enable──► active
//	                         └─JoinWorkspace, LeaveWorkspace, ChangeProfile, SetInternalAdmin
//
//	API key:         (none) ──IssueApiKey──► usable ──RevokeApiKey, expiresAt──► unusable
//	password:        (none) ──OfferOneTimeLink──► link open ──SetPassword──► set, all browser sessions ended
//	browser session: (none) ──StartBrowserSession──► usable ──EndBrowserSession, SetPassword, UnlinkIdentities, expiresAt──► ended
//	identity:        (none) ──LinkIdentity──► linked, other subjects of the issuer are refused ──UnlinkIdentities──► (none)
//	workspace:       (none) ──ReserveWorkspace──► reserved for 10 minutes ──JoinWorkspace, created──► counted ──ForgetWorkspace──► (none)
//	grant:           (none) ──AllowGrant──► live ──RevokeGrant──► revoked
//	machine:         (none) ──RegisterMachine──► active (repeated: renamed) ──RemoveMachine──► removed
//
// The platform creates users, authenticates them and records the workspaces that they joined. A credential that is the
// person's own identity (entity.Human) may list and end keys, sessions, grants and machines. A credential of a program
// that acts for the person may only read the account. An impersonation may not create anything that outlives it. For all
// other principals the user does not exist. Secrets arrive as hashes, and no reply to a person contains one. A disabled
// user loses nothing; the code that authenticates requests looks up the status with DescribeStanding.
package user

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Kind describes users to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of users.
var Rules = entity.Rules[*userv1.User, userv1.Command, userv1.Event]{
	Name: entity.KindUser, Version: 2, Zero: Zero, Access: accessOf, Check: Check, Decide: Decide, Evolve: Evolve, Reply: Reply,
	Rows: Rows, Tasks: Tasks, React: React,
	// Only operators can read these lists: Check refuses every need for a capability.
	Lists: map[string]entity.List{
		audit.List: {Need: entity.Reads(entity.Admin)},
		People:     {Need: entity.Reads(entity.Admin)},
	},
	Exposed: []userv1.Event{&userv1.UserDisabled{}, &userv1.InternalAdminSet{}},
	Unexposed: []userv1.Event{
		&userv1.UserCreated{}, &userv1.UserEnabled{}, &userv1.ProfileChanged{}, &userv1.WorkspaceJoined{}, &userv1.WorkspaceLeft{},
		&userv1.WorkspaceReserved{}, &userv1.WorkspaceForgotten{}, &userv1.ApiKeyIssued{}, &userv1.ApiKeyRevoked{},
		&userv1.OneTimeLinkOffered{}, &userv1.OneTimeLinkMailed{}, &userv1.PasswordSet{}, &userv1.BrowserSessionStarted{},
		&userv1.BrowserSessionEnded{}, &userv1.IdentityLinked{}, &userv1.IdentitiesUnlinked{}, &userv1.ImpersonationStarted{},
		&userv1.GrantAllowed{}, &userv1.GrantRevoked{}, &userv1.MachineRegistered{}, &userv1.MachineRenamed{}, &userv1.MachineRemoved{},
	},
}

// Zero returns the state before the first event.
func Zero(identity string) *userv1.User {
	return &userv1.User{Id: identity}
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: not_found, forbidden, invalid_request, link_invalid,
// limit_reached, and unauthorized if another password was set while a session was being started.
func Decide(call entity.Call, s *userv1.User, c userv1.Command) ([]userv1.Event, error) {
	if _, creates := c.(*userv1.CreateUser); !creates && !exists(s) {
		return nil, errNotFound
	}
	if s.GetDisabledAt() != 0 && needsActiveUser(c) {
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
		return reportLinkMailed(call, s, c), nil
	case *userv1.OfferOneTimeLink:
		return offerLink(call, s, c)
	case *userv1.SetPassword:
		return setPassword(call, s, c)
	case *userv1.StartBrowserSession:
		return startSession(call, s, c)
	case *userv1.EndBrowserSession:
		return endSession(call, s, c)
	case *userv1.UnlinkIdentities:
		return unlinkIdentities(call, s, c)
	case *userv1.LinkIdentity:
		return linkIdentity(call, s, c)
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
	case *userv1.DescribeUser, *userv1.DescribeStanding, *userv1.DescribePassword, *userv1.DescribeIdentities,
		*userv1.ListBrowserSessions:
	}
	return nil, nil
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *userv1.User, e userv1.Event) *userv1.User {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *userv1.UserCreated:
		next.Email, next.Name, next.CreatedAt = e.GetEmail(), e.GetName(), e.GetAt()
	case *userv1.WorkspaceJoined:
		next.Workspaces = entity.With(s.GetWorkspaces(), e.GetWorkspaceId(), e.GetAt())
		if e.GetCreated() {
			next.CreatedWorkspaces = entity.With(s.GetCreatedWorkspaces(), e.GetWorkspaceId(), 0)
		}
	case *userv1.WorkspaceReserved:
		next.CreatedWorkspaces = entity.With(countedWorkspaces(s, e.GetAt()), e.GetWorkspaceId(), e.GetExpiresAt())
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
		revoked := entity.ShallowCopy(s.GetApiKeys()[e.GetKeyId()])
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
		next.LinkedIdentities = identitiesAfter(s, e)
		next.BrowserSessions = entity.Without(s.GetBrowserSessions(), e.GetEndedSessionIds()...)
	case *userv1.ImpersonationStarted:
		next.Impersonations = entity.With(activeImpersonations(s, e.GetAt()), e.GetCredentialId(), e.GetExpiresAt())
	case *userv1.GrantAllowed:
		next.Grants = entity.With(s.GetGrants(), e.GetGrant().GetId(), e.GetGrant())
	case *userv1.GrantRevoked:
		next.Grants = grantsAfter(s, e)
	case *userv1.MachineRegistered:
		next.Machines = entity.With(s.GetMachines(), e.GetMachine().GetId(), e.GetMachine())
	case *userv1.MachineRenamed:
		renamed := entity.ShallowCopy(s.GetMachines()[e.GetMachineId()])
		renamed.Name, renamed.LastUsedAt = e.GetName(), e.GetAt()
		next.Machines = entity.With(s.GetMachines(), e.GetMachineId(), renamed)
	case *userv1.MachineRemoved:
		next.Machines = machinesAfter(s, e)
	}
	return next
}

// Reply returns the answer to a command; s is the state after the events.
func Reply(call entity.Call, s *userv1.User, c userv1.Command, _ []userv1.Event) proto.Message {
	switch c := c.(type) {
	case *userv1.IssueApiKey:
		return keyWithoutSecret(s.GetApiKeys()[c.GetKeyId()])
	case *userv1.RevokeApiKey:
		return keyWithoutSecret(s.GetApiKeys()[c.GetKeyId()])
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
	case *userv1.DescribeIdentities:
		return &userv1.LinkedIdentities{Identities: linkedIdentities(s)}
	case *userv1.ListBrowserSessions:
		return openSessions(call, s)
	case *userv1.AllowGrant:
		return s.GetGrants()[c.GetGrant().GetId()]
	case *userv1.RevokeGrant:
		return s.GetGrants()[c.GetGrantId()]
	case *userv1.ListGrants:
		return pageOfGrants(s, c)
	case *userv1.RegisterMachine:
		return machineFor(s, c)
	case *userv1.RemoveMachine:
		return s.GetMachines()[c.GetMachineId()]
	case *userv1.ListMachines:
		return pageOfMachines(s, c)
	case *userv1.CreateUser, *userv1.JoinWorkspace, *userv1.LeaveWorkspace, *userv1.ReserveWorkspace,
		*userv1.ForgetWorkspace, *userv1.Disable, *userv1.Enable, *userv1.SetInternalAdmin, *userv1.ReportLinkMailed,
		*userv1.OfferOneTimeLink, *userv1.SetPassword, *userv1.StartBrowserSession,
		*userv1.EndBrowserSession, *userv1.LinkIdentity, *userv1.UnlinkIdentities, *userv1.StartImpersonation:
	}
	return &wirev1.Done{}
}

func exists(s *userv1.User) bool { return s.GetEmail() != "" }

func workspaceIDs(s *userv1.User) []string { return slices.Sorted(maps.Keys(s.GetWorkspaces())) }

// MaxPage is the greatest number of elements in a page.
const MaxPage = 100

var errPageLimit = entity.Errorf(entity.InvalidRequest, "limit must be 1 to %d", MaxPage)

// pageRequest is a command that requests the page of a list after an id.
type pageRequest interface {
	GetAfter() string
	GetLimit() int32
}

func checkPage(c pageRequest) error {
	if c.GetLimit() < 1 || c.GetLimit() > MaxPage {
		return errPageLimit
	}
	return nil
}

// page returns the requested page in the order of ids, which is the order of creation. more reports whether further
// elements follow.
func page[V any](all map[string]V, c pageRequest) (elements []V, more bool) {
	ids := slices.Sorted(maps.Keys(all))
	first, found := slices.BinarySearch(ids, c.GetAfter())
	if found {
		first++
	}
	ids = ids[first:]
	for _, id := range ids[:min(len(ids), int(c.GetLimit()))] {
		elements = append(elements, all[id])
	}
	return elements, len(ids) > int(c.GetLimit())
}

// MaxEnded is the number of revoked grants, of removed machines, and of revoked or expired API keys that a user keeps.
const MaxEnded = 1000

// dropOldestEnded returns the map without the elements that ended first, if more than MaxEnded have ended. endedAt returns
// the time at which an element ended; 0 if it has not. The element with the id added is never dropped.
func dropOldestEnded[V any](all map[string]V, added string, endedAt func(V) int64) map[string]V {
	var ended []string
	for id, v := range all {
		if id != added && endedAt(v) != 0 {
			ended = append(ended, id)
		}
	}
	if len(ended) < MaxEnded {
		return all
	}
	slices.SortFunc(ended, func(a, b string) int {
		return cmp.Or(cmp.Compare(endedAt(all[a]), endedAt(all[b])), strings.Compare(a, b))
	})
	return entity.Without(all, ended[:len(ended)-MaxEnded+1]...)
}
