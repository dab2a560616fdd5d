package browser

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/service/account"
	"github.com/atelier-run/atelier/service/invitation"
)

// invitationPages shows and accepts invitations. Package service/invitation describes the flow of an invitation.
type invitationPages struct{}

func (i invitationPages) routes() []server.Route {
	const path = invitation.Path + "{token}"
	return []server.Route{
		page(http.MethodGet, path, server.ScopePublic, "Show an invitation", i.show),
		page(http.MethodPost, path, server.ScopePublic, "Accept an invitation", i.accept),
	}
}

func (invitationPages) show(c *server.Call) (result, error) {
	i, err := invitation.Open(c, c.Variable("token"))
	if err != nil {
		return result{}, err
	}
	back, err := i.MayResume(c)
	if err != nil {
		return result{}, err
	}
	if err := i.CheckAcceptable(c.Now()); err != nil && !back {
		return result{}, err
	}
	visitor, err := findVisitor(c)
	if err != nil {
		return result{}, err
	}
	return buildInvitationPage(c, i, visitor, pages.Invitation{MustSetPassword: back})
}

// buildInvitationPage adds everything about the invitation and the visitor to shown, and returns the page.
func buildInvitationPage(c *server.Call, i *invitation.Opened, visitor *server.Credential, shown pages.Invitation) (result, error) {
	shown.Token, shown.Workspace, shown.Inviter = i.Token, i.Workspace.GetName(), invitation.InviterName(i.GetInviter())
	shown.Role, shown.Email, shown.ExpiresAt = entity.RoleNames[i.GetRole()], i.GetEmail(), i.GetExpiresAt()
	shown.HasAccount, shown.SignIn = i.UserID != "", signInPathFor(pathOf(i))
	if visitor != nil {
		person, err := account.Describe(c, visitor.Principal.GetUserId())
		if err != nil {
			return result{}, err
		}
		shown.SignedInAs, shown.IsForVisitor = person.GetEmail(), person.GetId() == i.UserID
	}
	s := result{page: shown}
	if shown.Problem != "" {
		s.status = http.StatusBadRequest
	}
	return s, nil
}

func pathOf(i *invitation.Opened) string { return invitation.Path + i.Token }

// accept makes the visitor a member if the visitor's account owns the invited address. If no account owns it, the link is
// sufficient proof of ownership: accept creates an account and redirects to the form that sets its password.
func (invitationPages) accept(c *server.Call) (result, error) {
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	i, err := invitation.Open(c, c.Variable("token"))
	if err != nil {
		return result{}, err
	}
	if back, err := i.MayResume(c); err != nil || back {
		return redirectToSetPassword(c, i.UserID, err)
	}
	if err := i.CheckAcceptable(c.Now()); err != nil {
		return result{}, err
	}
	visitor, err := findVisitor(c)
	switch {
	case err != nil:
		return result{}, err
	case visitor == nil && i.UserID == "":
		return createAccount(c, i, form.Get("name"))
	case visitor == nil:
		return result{redirectTo: signInPathFor(pathOf(i))}, nil
	case visitor.Principal.GetUserId() != i.UserID:
		return buildInvitationPage(c, i, visitor, pages.Invitation{})
	}
	if err := i.Accept(c, visitor.Principal); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=joined"}, nil
}

// createAccount creates an account for the invited address, and accepts for it. If a concurrent request has created the
// account, it redirects to the invitation.
func createAccount(c *server.Call, i *invitation.Opened, name string) (result, error) {
	if err := user.CheckName(name); err != nil {
		return buildInvitationPage(c, i, nil, pages.Invitation{Name: truncate(name, 4*user.MaxNameLength), Problem: sentence(err.Message)})
	}
	userID, err := i.AcceptAsNew(c, name)
	if entity.HasCode(err, entity.EmailTaken) {
		return result{redirectTo: pathOf(i)}, nil
	}
	return redirectToSetPassword(c, userID, err)
}

// redirectToSetPassword redirects to a one-time link that sets the account's password, unless err is set.
func redirectToSetPassword(c *server.Call, userID string, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	path, err := account.OfferLink(c, userID)
	return result{redirectTo: path}, err
}
