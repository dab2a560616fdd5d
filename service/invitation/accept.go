package invitation

import (
	"crypto/subtle"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	userrules "github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/keys"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

const (
	// resumeTime is the time after accepting in which an invited person without a password can return by the link.
	resumeTime = time.Hour
	// creationTime is the maximum time between the creation of an account and its acceptance of the invitation, in one
	// request.
	creationTime = time.Minute
	// maxNewest is the number of invitations that FindPending reads.
	maxNewest = 20
)

var errNotFound = entity.Errorf(entity.NotFound, "not found")

// describe returns an invitation, as the platform. Errors: not_found.
func describe(r service.Request, workspaceID, id string) (*workspacev1.Invitation, error) {
	return service.SendAsPlatform[*workspacev1.Invitation](r, entity.KindWorkspace, workspaceID, &workspacev1.DescribeInvitation{InvitationId: id})
}

// LookUp returns the invitations to an address: from the id of each to the id of its workspace.
func LookUp(r service.Request, address string) (map[string]string, error) {
	found, err := account.LookUpEmail(r, address)
	return found.GetInvitations(), err
}

// Pending is an invitation that can be accepted.
type Pending struct {
	*workspacev1.Invitation
	Workspace *workspacev1.Workspace
}

// DescribePending describes an invitation that can be accepted; nil if it cannot be.
func DescribePending(r service.Request, workspaceID, id string) (*Pending, error) {
	w, err := service.DescribeWorkspace(r, workspaceID)
	if entity.IsHidden(err) || err == nil && w.GetStatus() == workspacev1.Status_STATUS_DELETED {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i, err := describe(r, workspaceID, id)
	if entity.IsHidden(err) || err == nil && !workspace.Pending(r.Now().UnixMilli(), i) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Pending{i, w}, nil
}

// FindPending returns the newest pending invitation to an address; nil if there is none among the newest ones.
func FindPending(r service.Request, address string) (*Pending, error) {
	from, err := LookUp(r, address)
	if err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(from))
	slices.Reverse(ids)
	for _, id := range ids[:min(len(ids), maxNewest)] {
		if found, err := DescribePending(r, from[id], id); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// AcceptOwn accepts an invitation to the address of the caller. It returns the workspace and its slug. Errors: not_found if the address has no
// such invitation, the errors of Accept.
func AcceptOwn(r service.Request, id string) (workspaceID, slug string, err error) {
	user, err := account.DescribeCaller(r)
	if err != nil {
		return "", "", err
	}
	from, err := LookUp(r, user.GetEmail())
	switch {
	case err != nil:
		return "", "", err
	case from[id] == "":
		return "", "", errNotFound
	}
	slug, err = Accept(r, from[id], id, user, r.Sender().Principal)
	return from[id], slug, err
}

// Accept makes a user a member of the workspace, as a principal that acts for the user, and waits until the
// workspace is in the user's list. It returns the workspace's slug. Errors: not_found, invitation_consumed,
// invitation_expired, invitation_revoked, workspace_suspended, unavailable.
func Accept(r service.Request, workspaceID, id string, user *userv1.User, as *wirev1.Principal) (slug string, err error) {
	if err := settleInviter(r, workspaceID, id); err != nil {
		return "", err
	}
	accepted, err := service.Send[*workspacev1.Description](r, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: as, ID: r.NewID("cmd_"),
		Message: &workspacev1.AcceptInvitation{InvitationId: id, Person: newPerson(user)},
	})
	if err != nil {
		return "", err
	}
	return accepted.GetWorkspace().GetSlug(), r.Settle(entity.KindWorkspace, workspaceID)
}

// errInviterUnsettled answers Accept while the reactions of an entity of the inviter fail.
var errInviterUnsettled = &entity.Error{
	Code: entity.Unavailable, Message: "it is not known yet whether the inviter still has the right to invite; retry", RetryAfter: time.Second,
}

// settleInviter waits until the workspace knows of all that has taken the right to invite from the inviter of a pending invitation: the
// reactions of the inviter's account, OAuth grant or app, and of the drive for the folder of the app, revoke the invitation. An invitation
// that is not pending is left to the workspace, which refuses it. Errors: unavailable.
func settleInviter(r service.Request, workspaceID, id string) error {
	i, err := describe(r, workspaceID, id)
	switch {
	case entity.IsHidden(err) || err == nil && !workspace.Pending(r.Now().UnixMilli(), i):
		return nil
	case err != nil:
		return err
	}
	for _, source := range inviterSources(workspaceID, i) {
		if err := r.Settle(source.kind, source.identity); entity.HasCode(err, entity.Unavailable) {
			r.Log().Warn("an invitation cannot be accepted before the reactions of its inviter are done", "workspace", workspaceID,
				"invitation", id, "kind", source.kind, "error", err)
			return errInviterUnsettled
		} else if err != nil {
			return err
		}
	}
	return nil
}

// A source is an entity with reactions that revoke invitations.
type source struct{ kind, identity string }

// inviterSources returns the entities with reactions that revoke an invitation. A grant precedes its person, because the reaction of the
// grant ends it in the account, and the reaction of the account ends its invitations; the drive precedes the app, because the workspace
// revokes the invitations of an app with the anchor.
func inviterSources(workspaceID string, i *workspacev1.Invitation) (all []source) {
	program := i.GetInviterCredentialId()
	switch {
	case app.IsID(program):
		all = append(all, source{entity.KindActivity, workspaceID}, source{entity.KindApp, app.Identity(workspaceID, program)})
	case strings.HasPrefix(program, userrules.GrantPrefix):
		all = append(all, source{entity.KindGrant, program})
	}
	if person := i.GetInviter().GetUserId(); person != "" {
		all = append(all, source{entity.KindUser, person})
	}
	return all
}

// Opened is the invitation that a link opens.
type Opened struct {
	*workspacev1.Invitation
	Workspace *workspacev1.Workspace
	Token     string
	// UserID is the account that owns the invited address; "" if there is none.
	UserID string
}

// Open returns the invitation that the link with a token opens. Errors: not_found, also if the secret is wrong, and link_invalid if the
// link was replaced.
func Open(r service.Request, token string) (*Opened, error) {
	ids, secret := keys.SplitLinkToken(token, 2)
	if ids == nil {
		return nil, errNotFound
	}
	workspaceID := workspacePrefix + ids[0]
	found, err := describe(r, workspaceID, invitationPrefix+ids[1])
	switch {
	case err != nil:
		return nil, err
	case isReplaced(found, keys.Hash(secret)):
		return nil, entity.Errorf(entity.LinkInvalid, "it was replaced when the invitation was renewed; open the link of the newest mail, or ask %s for it", InviterName(found.GetInviter()))
	case subtle.ConstantTimeCompare(keys.Hash(secret), found.GetSecretSha256()) != 1:
		return nil, errNotFound
	}
	into, err := service.DescribeWorkspace(r, workspaceID)
	if err != nil {
		return nil, err
	}
	person, err := account.LookUpID(r, found.GetEmail())
	return &Opened{found, into, token, person}, err
}

// isReplaced reports whether a hash is of the secret in a link that a renewal of the invitation has replaced.
func isReplaced(i *workspacev1.Invitation, hash []byte) bool {
	return slices.ContainsFunc(i.GetReplacedSha256(), func(one []byte) bool { return subtle.ConstantTimeCompare(one, hash) == 1 })
}

// CheckAcceptable returns the reason why the invitation cannot be accepted, or nil.
func (i *Opened) CheckAcceptable(now time.Time) error {
	switch {
	case i.Workspace.GetStatus() == workspacev1.Status_STATUS_DELETED:
		return errNotFound
	case i.GetConsumedAt() != 0:
		return entity.Errorf(entity.InvitationConsumed, "it was accepted on %s", day(i.GetConsumedAt()))
	case i.GetRevokedAt() != 0:
		return entity.Errorf(entity.InvitationRevoked, "it was revoked on %s", day(i.GetRevokedAt()))
	case now.UnixMilli() >= i.GetExpiresAt():
		return entity.Errorf(entity.InvitationExpired, "it was valid until %s; ask %s for a new one", day(i.GetExpiresAt()), InviterName(i.GetInviter()))
	case i.Workspace.GetSuspension() != nil:
		return entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended and accepts no new members for now")
	}
	return nil
}

func day(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006") }

// Accept accepts the invitation as a principal, for the principal's account. Errors: the errors of the function Accept.
func (i *Opened) Accept(r service.Request, as *wirev1.Principal) error {
	person, err := account.Describe(r, as.GetUserId())
	if err != nil {
		return err
	}
	_, err = Accept(r, i.Workspace.GetId(), i.GetId(), person, as)
	return err
}

// AcceptAsNew makes an account for the invited address, and accepts for it. It makes none if the invitation has been revoked since it was
// opened. Errors: email_taken if a concurrent request has made the account, the errors of Accept.
func (i *Opened) AcceptAsNew(r service.Request, name string) (userID string, err error) {
	if err := settleInviter(r, i.Workspace.GetId(), i.GetId()); err != nil {
		return "", err
	}
	found, err := describe(r, i.Workspace.GetId(), i.GetId())
	if err != nil {
		return "", err
	}
	if err := (&Opened{Invitation: found, Workspace: i.Workspace}).CheckAcceptable(r.Now()); err != nil {
		return "", err
	}
	if userID, err = account.Create(r, i.GetEmail(), name); err != nil {
		return "", err
	}
	return userID, i.Accept(r, &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: userID})
}

// MayResume reports whether the link may be used again to set a password, because the invited person may have lost the page:
// the account was created by accepting the invitation, at most resumeTime ago, and has no password, key or session yet. For
// an account that existed before, MayResume returns false. Times that are further in the future were recorded while the clock was ahead, and
// give no access.
func (i *Opened) MayResume(r service.Request) (bool, error) {
	if i.UserID == "" || i.GetConsumedBy() != i.UserID || !areNear(r.Now().UnixMilli(), i.GetConsumedAt(), resumeTime) {
		return false, nil
	}
	person, err := account.Describe(r, i.UserID)
	if err != nil || !areNear(i.GetConsumedAt(), person.GetCreatedAt(), creationTime) {
		return false, err
	}
	password, err := account.DescribePassword(r, i.UserID)
	if err != nil || password.GetHash() != "" || password.GetLinked() || password.GetDisabled() {
		return false, err
	}
	issued, err := service.SendAsPlatform[*userv1.ApiKeyPage](r, entity.KindUser, i.UserID, &userv1.ListApiKeys{Limit: 1})
	if err != nil || len(issued.GetKeys()) > 0 {
		return false, err
	}
	sessions, err := account.ListSessions(r, i.UserID)
	return len(sessions) == 0, err
}

// areNear reports whether two times in milliseconds are at most a period apart.
func areNear(a, b int64, period time.Duration) bool {
	return max(a-b, b-a) <= period.Milliseconds()
}
