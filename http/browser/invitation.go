package browser

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// invitationPages shows and accepts invitations. Package api describes the flow of an invitation.
type invitationPages struct{}

func (i invitationPages) routes() []server.Route {
	const path = api.InvitationPath + "{token}"
	return []server.Route{
		page(http.MethodGet, path, server.ScopePublic, "Show an invitation", i.show),
		page(http.MethodPost, path, server.ScopePublic, "Accept an invitation", i.accept),
	}
}

const (
	// resumeTime is the time after accepting in which an invited person without a password can return by the link.
	resumeTime = time.Hour
	// creationTime is the maximum time between the creation of an account and its acceptance of the invitation, in one
	// request.
	creationTime = time.Minute
)

// invitation is the invitation that a link opens.
type invitation struct {
	*workspacev1.Invitation
	workspace *workspacev1.Workspace
	token     string
	// userID is the account that owns the invited address; "" if there is none.
	userID string
}

// openInvitation returns the invitation that the link in the path opens. Errors: not_found, also if the secret is
// wrong, and link_invalid if the link was replaced.
func openInvitation(c *server.Call) (*invitation, error) {
	token := c.Variable("token")
	parts := api.SplitLinkToken(token, 3)
	if parts == nil {
		return nil, server.ErrNotFound
	}
	workspaceID, invitationID := "ws_"+parts[0], "inv_"+parts[1]
	found, err := api.DescribeInvitation(c, workspaceID, invitationID)
	switch {
	case err != nil:
		return nil, err
	case isReplaced(found, keys.Hash(parts[2])):
		return nil, entity.Errorf(entity.LinkInvalid, "it was replaced when the invitation was renewed; open the link of the newest mail, or ask %s for it", api.InviterName(found.GetInviter()))
	case subtle.ConstantTimeCompare(keys.Hash(parts[2]), found.GetSecretSha256()) != 1:
		return nil, server.ErrNotFound
	}
	into, err := api.DescribeWorkspace(c, workspaceID)
	if err != nil {
		return nil, err
	}
	person, err := api.LookUpUserID(c, found.GetEmail())
	return &invitation{found, into, token, person}, err
}

// isReplaced reports whether a hash is of the secret in a link that a renewal of the invitation has replaced.
func isReplaced(i *workspacev1.Invitation, hash []byte) bool {
	return slices.ContainsFunc(i.GetReplacedSha256(), func(one []byte) bool { return subtle.ConstantTimeCompare(one, hash) == 1 })
}

// checkAcceptable returns the reason why an invitation cannot be accepted, or nil.
func (i *invitation) checkAcceptable(now time.Time) error {
	switch {
	case i.workspace.GetStatus() == workspacev1.Status_STATUS_DELETED:
		return server.ErrNotFound
	case i.GetConsumedAt() != 0:
		return entity.Errorf(entity.InvitationConsumed, "it was accepted on %s", day(i.GetConsumedAt()))
	case i.GetRevokedAt() != 0:
		return entity.Errorf(entity.InvitationRevoked, "it was revoked on %s", day(i.GetRevokedAt()))
	case now.UnixMilli() >= i.GetExpiresAt():
		return entity.Errorf(entity.InvitationExpired, "it was valid until %s; ask %s for a new one", day(i.GetExpiresAt()), api.InviterName(i.GetInviter()))
	case i.workspace.GetSuspension() != nil:
		return entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended and accepts no new members for now")
	}
	return nil
}

func day(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006") }

func (invitationPages) show(c *server.Call) (result, error) {
	i, err := openInvitation(c)
	if err != nil {
		return result{}, err
	}
	back, err := mayResume(c, i)
	if err != nil {
		return result{}, err
	}
	if err := i.checkAcceptable(c.Now()); err != nil && !back {
		return result{}, err
	}
	visitor, err := findVisitor(c)
	if err != nil {
		return result{}, err
	}
	return buildInvitationPage(c, i, visitor, pages.Invitation{MustSetPassword: back})
}

// buildInvitationPage adds everything about the invitation and the visitor to shown, and returns the page.
func buildInvitationPage(c *server.Call, i *invitation, visitor *server.Credential, shown pages.Invitation) (result, error) {
	shown.Token, shown.Workspace, shown.Inviter = i.token, i.workspace.GetName(), api.InviterName(i.GetInviter())
	shown.Role, shown.Email, shown.ExpiresAt = api.RoleNames[i.GetRole()], i.GetEmail(), i.GetExpiresAt()
	shown.HasAccount, shown.SignIn = i.userID != "", signInPathFor(i.path())
	if visitor != nil {
		person, err := api.DescribeUser(c, visitor.Principal.GetUserId())
		if err != nil {
			return result{}, err
		}
		shown.SignedInAs, shown.IsForVisitor = person.GetEmail(), person.GetId() == i.userID
	}
	s := result{page: shown}
	if shown.Problem != "" {
		s.status = http.StatusBadRequest
	}
	return s, nil
}

func (i *invitation) path() string { return api.InvitationPath + i.token }

// accept makes the visitor a member if the visitor's account owns the invited address. If no account owns it, the link is
// sufficient proof of ownership: accept creates an account and redirects to the form that sets its password.
func (invitationPages) accept(c *server.Call) (result, error) {
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	i, err := openInvitation(c)
	if err != nil {
		return result{}, err
	}
	if back, err := mayResume(c, i); err != nil || back {
		return redirectToSetPassword(c, i.userID, err)
	}
	if err := i.checkAcceptable(c.Now()); err != nil {
		return result{}, err
	}
	visitor, err := findVisitor(c)
	switch {
	case err != nil:
		return result{}, err
	case visitor == nil && i.userID == "":
		return createAccount(c, i, form.Get("name"))
	case visitor == nil:
		return result{redirectTo: signInPathFor(i.path())}, nil
	case visitor.Principal.GetUserId() != i.userID:
		return buildInvitationPage(c, i, visitor, pages.Invitation{})
	}
	if err := acceptAs(c, i, visitor.Principal); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=joined"}, nil
}

// createAccount creates an account for the invited address, and accepts for it. If a concurrent request has created the
// account, it redirects to the invitation.
func createAccount(c *server.Call, i *invitation, name string) (result, error) {
	if err := user.CheckName(name); err != nil {
		return buildInvitationPage(c, i, nil, pages.Invitation{Name: api.Truncate(name, 4*user.MaxNameLength), Problem: sentence(err.Message)})
	}
	userID := c.NewID("usr_")
	_, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindEmail, Identity: i.GetEmail(), Principal: entity.Platform(), ID: c.NewID("cmd_"),
		Message: &emailv1.ClaimEmail{UserId: userID, Name: name},
	})
	switch {
	case entity.HasCode(err, entity.EmailTaken):
		return result{redirectTo: i.path()}, nil
	case err != nil:
		return result{}, err
	}
	if err := c.Settle(entity.KindEmail, i.GetEmail()); err != nil {
		return result{}, err
	}
	return redirectToSetPassword(c, userID, acceptAs(c, i, &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: userID,
	}))
}

// acceptAs accepts an invitation as a principal, for the principal's account.
func acceptAs(c *server.Call, i *invitation, as *wirev1.Principal) error {
	person, err := api.DescribeUser(c, as.GetUserId())
	if err != nil {
		return err
	}
	_, err = api.AcceptInvitation(c, i.workspace.GetId(), i.GetId(), person, as)
	return err
}

// redirectToSetPassword redirects to a one-time link that sets the account's password, unless err is set.
func redirectToSetPassword(c *server.Call, userID string, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	path, err := api.OfferPasswordLink(c, userID)
	return result{redirectTo: path}, err
}

// mayResume reports whether the link may be used again to set a password, because the invited person may have lost the page:
// the account was created by accepting the invitation, less than resumeTime ago, and has no password, key or session yet. For
// an account that existed before, mayResume returns false.
func mayResume(c *server.Call, i *invitation) (bool, error) {
	now := c.Now()
	if i.userID == "" || i.GetConsumedBy() != i.userID || now.UnixMilli()-i.GetConsumedAt() > resumeTime.Milliseconds() {
		return false, nil
	}
	person, err := api.DescribeUser(c, i.userID)
	if err != nil || i.GetConsumedAt()-person.GetCreatedAt() > creationTime.Milliseconds() {
		return false, err
	}
	password, err := api.DescribePassword(c, i.userID)
	if err != nil || password.GetHash() != "" || password.GetLinked() || password.GetDisabled() {
		return false, err
	}
	keys, err := server.Ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: i.userID, Principal: entity.Platform(), Message: &userv1.ListApiKeys{Limit: 1},
	})
	if err != nil || len(keys.GetKeys()) > 0 {
		return false, err
	}
	sessions, err := api.ListSessions(c, i.userID)
	return len(sessions) == 0, err
}
