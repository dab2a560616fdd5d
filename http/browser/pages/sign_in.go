package pages

import (
	"net/url"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// SignIn is the page with the form to sign in.
type SignIn struct {
	Email string
	// Next is the path to continue with after signing in.
	Next string
	// Problem is the reason why the last attempt failed; empty: there was none.
	Problem string
	// Provider is the name of the OpenID Connect provider; empty: none.
	Provider string
	// OffersReset reports that people who forgot their password can have a link mailed.
	OffersReset bool
}

func (p SignIn) page() page {
	title := "Sign in"
	if p.Problem != "" {
		title = "Not signed in"
	}
	return page{title: title, main: g.Group{
		h.H1(g.Text("Sign in")),
		problemBox("problem", p.Problem),
		form("/sign-in",
			hidden("next", p.Next),
			label("email", "Email"),
			h.Input(h.ID("email"), h.Name("email"), h.Type("email"), h.AutoComplete("username"), h.Required(), h.MaxLength("254"), h.Value(p.Email),
				g.If(p.Problem == "", h.AutoFocus()), invalid("problem", p.Problem)),
			label("password", "Password"),
			h.Input(h.ID("password"), h.Name("password"), h.Type("password"), h.AutoComplete("current-password"), h.Required(), h.MaxLength("800"),
				invalid("problem", p.Problem, h.AutoFocus())),
			h.Button(g.Text("Sign in")),
		),
		g.If(p.OffersReset, forgottenLink()),
		g.If(p.Provider != "", g.Group{
			h.P(h.Class("or"), g.Text("or")),
			link("/sign-in/oidc?next="+url.QueryEscape(p.Next), h.Class("button second"), g.Text("Continue with "+p.Provider)),
		}),
	}}
}

func forgottenLink() g.Node {
	return h.P(h.Class("after"), link("/sign-in/forgotten", g.Text("Forgot your password?")))
}

// Continue is the page after signing in, for a path that the form could not redirect to.
type Continue struct {
	// Next is the path to continue with.
	Next string
}

func (p Continue) page() page {
	return page{title: "Signed in", main: g.Group{
		h.H1(g.Text("You are signed in")),
		h.P(link(p.Next, g.Text("Continue"))),
	}}
}
