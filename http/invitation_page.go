package http

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/pages"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const invitationPath = "/invitations/"

const (
	// newcomerTime is how long after accepting a newcomer may come back by the invitation to set a password.
	newcomerTime = time.Hour
	// welcomeTime is how long making a person and accepting for them take at the most: one request.
	welcomeTime = time.Minute
)

// invitation is one that a link was shown to be for.
type invitation struct {
	*workspacev1.Invitation
	workspace *workspacev1.Workspace
	token     string
	// person is whose the invited address is; empty: nobody's.
	person string
}

// invited is the invitation of a link. Who has no link of an invitation learns nothing of it. Errors: not_found.
func (c *call) invited() (*invitation, error) {
	token := c.variable("token")
	parts := tokenParts(token, 3)
	if parts == nil {
		return nil, errNotFound
	}
	workspaceID, invitationID := "ws_"+parts[0], "inv_"+parts[1]
	found, err := c.describeInvitation(workspaceID, invitationID)
	switch {
	case err != nil:
		return nil, err
	case subtle.ConstantTimeCompare(hashOf(parts[2]), found.GetSecretSha256()) != 1:
		return nil, errNotFound
	}
	into, err := c.workspaceOf(workspaceID)
	if err != nil {
		return nil, err
	}
	person, err := c.personAt(found.GetEmail())
	return &invitation{found, into, token, person}, err
}

// tokenParts are the parts of what a link carries: ids without their kinds, and a secret. nil: it is none.
func tokenParts(token string, n int) []string {
	if len(token) != (n-1)*(ulidLength+1)+secretLength {
		return nil
	}
	parts := strings.Split(token, ".")
	if len(parts) != n || len(parts[n-1]) != secretLength || !isSecret(parts[n-1]) {
		return nil
	}
	for _, id := range parts[:n-1] {
		if !entity.IsULID(id) {
			return nil
		}
	}
	return parts
}

// refused tells why an invitation cannot be accepted; nil where it can.
func (i *invitation) refused(now time.Time) error {
	switch {
	case i.workspace.GetStatus() == workspacev1.Status_STATUS_DELETED:
		return errNotFound
	case i.GetConsumedAt() != 0:
		return entity.Errorf(entity.InvitationConsumed, "it was accepted on %s", day(i.GetConsumedAt()))
	case i.GetRevokedAt() != 0:
		return entity.Errorf(entity.InvitationRevoked, "it was taken back on %s", day(i.GetRevokedAt()))
	case now.UnixMilli() >= i.GetExpiresAt():
		return entity.Errorf(entity.InvitationExpired, "it was good until %s; ask %s for a new one", day(i.GetExpiresAt()), inviterName(i.GetInviter()))
	case i.workspace.GetSuspension() != nil:
		return entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended, and takes nobody in for now")
	}
	return nil
}

func day(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006") }

func (s *Server) showInvitation(c *call) (sheet, error) {
	i, err := c.invited()
	if err != nil {
		return sheet{}, err
	}
	back, err := c.comesBack(i)
	if err != nil {
		return sheet{}, err
	}
	if err := i.refused(s.now()); err != nil && !back {
		return sheet{}, err
	}
	visitor, err := c.visitor()
	if err != nil {
		return sheet{}, err
	}
	return c.invitationSheet(i, visitor, pages.Invitation{Back: back})
}

// invitationSheet fills in what the page shows of an invitation.
func (c *call) invitationSheet(i *invitation, visitor *credential, shown pages.Invitation) (sheet, error) {
	shown.Token, shown.Workspace, shown.Inviter = i.token, i.workspace.GetName(), inviterName(i.GetInviter())
	shown.Role, shown.Email, shown.ExpiresAt = roleNames[i.GetRole()], i.GetEmail(), i.GetExpiresAt()
	shown.Known, shown.SignIn = i.person != "", signInFor(i.path())
	if visitor != nil {
		person, err := c.describe(visitor.principal.GetUserId())
		if err != nil {
			return sheet{}, err
		}
		shown.SignedInAs, shown.Mine = person.GetEmail(), person.GetId() == i.person
	}
	s := sheet{name: "invitation", data: shown}
	if shown.Problem != "" {
		s.status = http.StatusBadRequest
	}
	return s, nil
}

func (i *invitation) path() string { return invitationPath + i.token }

// takeInvitation makes the visitor a member where the invitation is theirs. Where the address is nobody's, the link
// is proof enough of it: they become a person, and set a password next.
func (s *Server) takeInvitation(c *call) (sheet, error) {
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	i, err := c.invited()
	if err != nil {
		return sheet{}, err
	}
	if back, err := c.comesBack(i); err != nil || back {
		return c.toPassword(i.person, err)
	}
	if err := i.refused(s.now()); err != nil {
		return sheet{}, err
	}
	visitor, err := c.visitor()
	switch {
	case err != nil:
		return sheet{}, err
	case visitor == nil && i.person == "":
		return c.welcome(i, form.Get("name"))
	case visitor == nil:
		return sheet{to: signInFor(i.path())}, nil
	case visitor.principal.GetUserId() != i.person:
		return c.invitationSheet(i, visitor, pages.Invitation{})
	}
	if err := c.join(i, visitor.principal); err != nil {
		return sheet{}, err
	}
	return sheet{to: accountPath + "?done=joined"}, nil
}

// welcome makes a person of whom the invitation is for. Of two at a moment one is made, and the other finds that.
func (c *call) welcome(i *invitation, name string) (sheet, error) {
	if err := user.CheckName(name); err != nil {
		return c.invitationSheet(i, nil, pages.Invitation{Name: cut(name, 4*user.MaxNameLength), Problem: sentence(err.Message)})
	}
	userID := c.server.options.NewID("usr_")
	_, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindEmail, Identity: i.GetEmail(), Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &emailv1.ClaimEmail{UserId: userID, Name: name},
	})
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.EmailTaken:
		return sheet{to: i.path()}, nil
	case err != nil:
		return sheet{}, err
	}
	if err := c.settle(entity.KindEmail, i.GetEmail()); err != nil {
		return sheet{}, err
	}
	return c.toPassword(userID, c.join(i, &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: userID,
	}))
}

// join accepts an invitation as the person whom a principal acts for.
func (c *call) join(i *invitation, as *wirev1.Principal) error {
	person, err := c.describe(as.GetUserId())
	if err != nil {
		return err
	}
	_, err = c.accept(i.workspace.GetId(), i.GetId(), person, as)
	return err
}

// toPassword leads a newcomer to setting a password.
func (c *call) toPassword(userID string, err error) (sheet, error) {
	if err != nil {
		return sheet{}, err
	}
	path, err := c.passwordPath(userID)
	return sheet{to: path}, err
}

// comesBack tells whether the invitation's newcomer, who has no other way in yet, may be sent to set a password again:
// who made a person a moment ago and lost the page. Later, or once they were in, the link has served; for somebody whom
// it did not make a person it never serves.
func (c *call) comesBack(i *invitation) (bool, error) {
	now := c.server.now()
	if i.person == "" || i.GetConsumedBy() != i.person || now.UnixMilli()-i.GetConsumedAt() > newcomerTime.Milliseconds() {
		return false, nil
	}
	person, err := c.describe(i.person)
	if err != nil || i.GetConsumedAt()-person.GetCreatedAt() > welcomeTime.Milliseconds() {
		return false, err
	}
	password, err := c.passwordOf(i.person)
	if err != nil || password.GetHash() != "" || password.GetLinked() || password.GetDisabled() {
		return false, err
	}
	keys, err := ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: i.person, Principal: entity.Platform(), Message: &userv1.ListApiKeys{Limit: 1},
	})
	if err != nil || len(keys.GetKeys()) > 0 {
		return false, err
	}
	sessions, err := c.sessionsOf(i.person)
	return len(sessions) == 0, err
}

// describe is who somebody is.
func (c *call) describe(userID string) (*userv1.User, error) {
	return ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeUser{},
	})
}
