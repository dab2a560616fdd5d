package pages

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Forgotten is the page with the form to request a link that sets a password.
type Forgotten struct {
	// Requested reports that a link was requested, even if none is sent.
	Requested bool
}

func (p Forgotten) page() page {
	if p.Requested {
		return page{title: "Check your mail", main: g.Group{
			h.H1(g.Text("Check your mail")),
			h.P(h.Role("status"), g.Text("If an account has this address, a link to set a new password is on its way. The newest link works once, within a day.")),
			h.P(g.Text("No mail? Check your junk folder, or request a link again in ten minutes.")),
			link("/sign-in", h.Class("button second"), g.Text("Back to sign-in")),
		}}
	}
	return page{title: "Forgotten password", main: g.Group{
		h.H1(g.Text("Forgot your password?")),
		h.P(g.Text("You get a mail with a link to set a new password. Your current password stays valid until you use the link.")),
		form("/sign-in/forgotten",
			label("email", "Email"),
			h.Input(h.ID("email"), h.Name("email"), h.Type("email"), h.AutoComplete("username"), h.Required(), h.MaxLength("254"), h.AutoFocus()),
			h.Button(g.Text("Mail me a link")),
		),
		h.P(h.Class("after"), link("/sign-in", g.Text("Back to sign-in"))),
	}}
}

// SetPassword is the page with the form to set a password.
type SetPassword struct {
	Email, Token string
	// MinLength and MaxLength are the limits of the password's length, in characters.
	MinLength, MaxLength int
	Problem              string
}

func (p SetPassword) page() page {
	title := "Set your password"
	if p.Problem != "" {
		title = "Password not set"
	}
	least, most := strconv.Itoa(p.MinLength), strconv.Itoa(p.MaxLength)
	field := func(id string, more ...g.Node) g.Node {
		return h.Input(h.ID(id), h.Name(id), h.Type("password"), h.AutoComplete("new-password"), h.Required(), h.MinLength(least), h.MaxLength(most), g.Group(more))
	}
	return page{title: title, main: g.Group{
		h.H1(g.Text("Set your password")),
		h.P(g.Text("For "), strong(p.Email), g.Text(". All your sessions end when you set it.")),
		problemBox("problem", p.Problem),
		form("/set-password",
			hidden("token", p.Token),
			hidden("email", p.Email, h.AutoComplete("username")),
			label("password", "New password"),
			field("password", h.AutoFocus(), invalidWithHint("problem", p.Problem, "hint")),
			h.P(h.Class("hint"), h.ID("hint"), g.Text(least+" to "+most+" characters. Several unrelated words make a good password.")),
			label("again", "Repeat the password"),
			field("again", invalid("problem", p.Problem)),
			h.Button(g.Text("Set password and sign in")),
		),
	}}
}
