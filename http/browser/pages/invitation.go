package pages

import (
	"net/url"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Invitation is the page of an invitation.
type Invitation struct {
	Token                           string
	Workspace, Inviter, Role, Email string
	ExpiresAt                       int64
	// HasAccount reports that an account owns the invited address.
	HasAccount bool
	// MustSetPassword reports that the visitor has accepted the invitation and only has to set a password.
	MustSetPassword bool
	// Name is the name that the visitor entered, and Problem the reason why it is invalid.
	Name, Problem string
	// SignedInAs is the email address of the visitor; empty if the visitor is not signed in.
	SignedInAs string
	// IsForVisitor reports that the visitor's account owns the invited address.
	IsForVisitor bool
	// SignIn is the path of the sign-in page that returns to the invitation.
	SignIn string
}

func (p Invitation) page() page {
	return page{title: "Invitation to " + p.Workspace, main: g.Group{
		h.H1(g.Text("Join " + p.Workspace)),
		h.P(strong(p.Inviter), g.Text(" invites "), strong(p.Email), g.Text(" to the workspace "), strong(p.Workspace), g.Text(".")),
		h.Dl(
			h.Dt(g.Text("Role")), h.Dd(g.Text(p.Role)),
			h.Dt(g.Text("Valid until")), h.Dd(timeElement(p.ExpiresAt, minute)),
		),
		p.action(),
	}}
}

// action returns the actions that the invitation offers to the visitor.
func (p Invitation) action() g.Node {
	path := "/invitations/" + url.PathEscape(p.Token)
	switch {
	case p.IsForVisitor:
		return form(path, h.Button(g.Text("Accept the invitation")))
	case p.SignedInAs != "":
		return g.Group{
			h.P(h.Class("problem"), h.Role("alert"), g.Text("You are signed in as "+p.SignedInAs+". This invitation is for another address.")),
			form("/sign-out", hidden("next", path), h.Button(g.Text("Sign out"))),
		}
	case p.MustSetPassword:
		return form(path, h.Button(g.Text("Set your password")))
	case p.HasAccount:
		return link(p.SignIn, h.Class("button"), g.Text("Sign in to accept"))
	}
	return g.Group{
		problemBox("problem", p.Problem),
		form(path,
			label("name", "Your name"),
			h.Input(h.ID("name"), h.Name("name"), h.AutoComplete("name"), h.MaxLength("200"), h.Value(p.Name), invalidWithHint("problem", p.Problem, "hint")),
			h.P(h.Class("hint"), h.ID("hint"), g.Text("The other members see this name. You set a password next.")),
			h.Button(g.Text("Accept the invitation")),
		),
	}
}
