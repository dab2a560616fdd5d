package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Account is the page of the visitor's account.
type Account struct {
	Name, Email string
	Sessions    []Session
	Grants      []Grant
	// MoreGrants reports that there are more grants than the page shows.
	MoreGrants bool
	Keys       []Key
	// MoreKeys reports that there are older keys than the page shows.
	MoreKeys bool
	KeyForm  KeyForm
	// HasPassword reports that the account has a password, and PasswordProblem is the reason why it was not changed.
	HasPassword     bool
	PasswordProblem string
	// OffersReset reports that people who forgot their password can have a link mailed.
	OffersReset bool
	// Notice reports the action that was just done; empty: none.
	Notice string
	// IsIncomplete reports that a part of the server did not answer, so that details are missing.
	IsIncomplete bool
}

// Session is a browser session.
type Session struct {
	ID, Browser, Address string
	StartedAt, ExpiresAt int64
	// Current reports that it is the visitor's session.
	Current bool
}

// Key is an API key. ExpiresAt is 0 if it does not expire, LastUsedAt if it was never used, or if its last use is unknown.
type Key struct {
	ID, Name, Prefix                 string
	CreatedAt, ExpiresAt, LastUsedAt int64
	Expired, IsUseUnknown            bool
	// Limits describes the limits of the key; empty: it has none.
	Limits string
}

// KeyForm is the form for a new key.
type KeyForm struct {
	// Name and Lasts are the name and the lifetime that were entered, and Problem is the reason why they were refused.
	Name, Lasts, Problem string
	// Chosen has all fields that were entered.
	Chosen url.Values
	// Scopes and Workspaces are the limits that the form offers.
	Scopes, Workspaces []Choice
	// AllWorkspaces is the number of the person's workspaces. The form offers the first of them.
	AllWorkspaces int
	// IsIncomplete reports that the form lacks workspaces, which were not reached. It makes no key then that reaches all of them.
	IsIncomplete bool
}

// Grant is the access that a person granted to an application.
type Grant struct {
	ID, Client, Host, Workspace string
	Scopes                      []string
	CreatedAt                   int64
}

func (p Account) page() page {
	title := "Your account"
	switch {
	case p.KeyForm.Problem != "":
		title = "Key not created"
	case p.PasswordProblem != "":
		title = "Password not changed"
	}
	return page{title: title, wide: true, main: g.Group{
		h.Div(h.Class("top"),
			h.H1(g.Text(cmp.Or(p.Name, "Your account"))),
			form("/sign-out", smallButton("Sign out")),
		),
		g.If(p.Notice != "", notice(p.Notice)),
		g.If(p.IsIncomplete, quiet(g.Text("Some details are missing or old, because a part of the server does not answer at the moment. You can end and revoke everything that is shown."))),
		h.P(g.Text("Signed in as "), strong(p.Email), g.Text(".")),
		section("sessions", "Where you are signed in", rows(p.Sessions, Session.row)),
		p.keys(),
		g.If(len(p.Grants) > 0, section("grants", "Applications with access",
			rows(p.Grants, Grant.row),
			g.If(p.MoreGrants, quiet(g.Text("Only some applications are shown; the API lists all of them."))),
		)),
		g.If(p.HasPassword || p.PasswordProblem != "", p.passwordChange()),
	}}
}

// section returns a part of the page with a heading, which has the id.
func section(id, heading string, children ...g.Node) g.Node {
	return h.Section(h.Aria("labelledby", id), h.H2(h.ID(id), g.Text(heading)), g.Group(children))
}

func rows[T any](all []T, row func(T) g.Node) g.Node { return h.Ul(h.Class("rows"), g.Map(all, row)) }

// row returns a row of a list: a first line, which has the id, a second one with details, and a form with a button at the end.
func row(id string, first, details g.Group, path, button string) g.Node {
	return h.Li(
		h.Div(h.P(h.ID(id), first), quiet(details)),
		form(path, smallButton(button, h.Aria("describedby", id))),
	)
}

func smallButton(text string, attributes ...g.Node) g.Node {
	return h.Button(h.Class("second small"), g.Group(attributes), g.Text(text))
}

// mark returns a word that distinguishes a row, after its first text.
func mark(text string) g.Node { return g.Group{g.Text(" "), h.Span(h.Class("mark"), g.Text(text))} }

func (s Session) row() g.Node {
	since := "since "
	if s.Address != "" {
		since = s.Address + ", since "
	}
	return row("s-"+s.ID,
		g.Group{g.Text(cmp.Or(s.Browser, "A browser")), g.If(s.Current, mark("this browser"))},
		g.Group{g.Text(since), timeElement(s.StartedAt, minute), g.Text(", until " + format(s.ExpiresAt, day))},
		"/account/sessions/"+url.PathEscape(s.ID)+"/end", "End")
}

func (k Key) row() g.Node {
	details := g.Group{h.Code(g.Text(k.Prefix + "…")), g.Text(", since "), timeElement(k.CreatedAt, day)}
	if k.ExpiresAt != 0 {
		details = append(details, g.Text(", until "+format(k.ExpiresAt, day)))
	}
	switch {
	case k.LastUsedAt != 0:
		details = append(details, g.Text(", last used "), timeElement(k.LastUsedAt, minute))
	case !k.IsUseUnknown:
		details = append(details, g.Text(", never used"))
	}
	if k.Limits != "" {
		details = append(details, g.Text(": "+k.Limits))
	}
	return row("k-"+k.ID,
		g.Group{g.Text(k.Name), g.If(k.Limits != "", mark("limited")), g.If(k.Expired, mark("expired"))}, details,
		"/account/keys/"+url.PathEscape(k.ID)+"/revoke", "Revoke")
}

func (a Grant) row() g.Node {
	return row("g-"+a.ID,
		g.Group{g.Text(a.Client + " in " + a.Workspace)},
		g.Group{g.Text(a.Host + ", since "), timeElement(a.CreatedAt, day), g.Text(": " + strings.Join(a.Scopes, ", "))},
		"/account/grants/"+url.PathEscape(a.ID)+"/revoke", "Revoke")
}

// keys returns the list of API keys, and the form for a new key.
func (p Account) keys() g.Node {
	return section("keys", "API keys",
		quiet(g.Text("Programs and mounted drives sign in with an API key. A key can do everything that you can do, unless you limit it.")),
		g.If(len(p.Keys) > 0, g.Group{
			rows(p.Keys, Key.row),
			g.If(p.MoreKeys, quiet(g.Text("Only the newest keys are shown; the API lists all of them."))),
		}),
		h.H3(h.ID("new-key"), g.Text("Create an API key")),
		problemBox("key-problem", p.KeyForm.Problem),
		p.KeyForm.form(),
	)
}

// form returns the form. The style hides the limits while a key without limits is selected; a browser that does not know the selector shows
// the limits always, and a selection among them has no effect then.
func (f KeyForm) form() g.Node {
	limited := f.Chosen.Get("access") == "limited"
	return form("/account/keys", h.Aria("labelledby", "new-key"),
		h.Div(h.Class("line"),
			h.Div(
				label("key-name", "Name"),
				h.Input(h.ID("key-name"), h.Name("name"), h.Required(), h.MaxLength("200"), h.AutoComplete("off"), h.Value(f.Name),
					invalid("key-problem", f.Problem, h.AutoFocus())),
			),
			h.Div(
				label("key-lasts", "Expires after"),
				h.Select(h.ID("key-lasts"), h.Name("lasts"),
					option("30", "30 days", f.Lasts == "30"),
					option("90", "90 days", f.Lasts == "90" || f.Lasts == ""),
					option("365", "1 year", f.Lasts == "365"),
					option("never", "never", f.Lasts == "never"),
				),
			),
		),
		h.FieldSet(h.Class("access"), h.Legend(g.Text("The key can do")),
			choose("radio", "access", Choice{"all", "everything that you can do", !limited}),
			choose("radio", "access", Choice{"limited", "only what you select here", limited}),
		),
		h.Div(h.Class("limits"),
			h.FieldSet(h.Legend(g.Text("Permissions, as far as your role has them")), h.Div(h.Class("columns"), g.Map(f.Scopes, checkbox))),
			g.If(len(f.Workspaces) > 0, h.FieldSet(h.Legend(g.Text("Workspaces; all of yours if you select none")),
				h.Div(h.Class("columns"), g.Map(f.Workspaces, func(w Choice) g.Node { return choose("checkbox", "workspace", w) })),
				g.If(f.AllWorkspaces > len(f.Workspaces), quiet(g.Text(fmt.Sprintf(
					"Only the first %d of your %d workspaces are shown; the API limits keys to any of them.", len(f.Workspaces), f.AllWorkspaces)))))),
			g.If(f.IsIncomplete, h.Div(
				h.P(g.Text("Some workspaces do not answer at the moment. Select one of these, or try again later.")),
				h.Input(h.Type("hidden"), h.Name("workspaces"), h.Value("incomplete")))),
			h.FieldSet(h.Legend(g.Text("Changes")),
				choose("checkbox", "read", Choice{"only", "read only: no more than a viewer can read, and no change", f.Chosen.Get("read") == "only"})),
		),
		h.Button(g.Text("Create key")),
	)
}

// passwordChange returns the form that starts a change of the password.
func (p Account) passwordChange() g.Node {
	return section("change", "Change your password",
		problemBox("password-problem", p.PasswordProblem),
		form("/account/password", h.Class("line"), h.Aria("labelledby", "change"),
			hidden("email", p.Email, h.AutoComplete("username")),
			h.Div(
				label("current", "Current password"),
				h.Input(h.ID("current"), h.Name("current"), h.Type("password"), h.AutoComplete("current-password"), h.Required(), h.MaxLength("800"),
					invalid("password-problem", p.PasswordProblem, h.AutoFocus())),
			),
			h.Button(g.Text("Choose a new password")),
		),
		g.If(p.OffersReset, forgottenLink()),
	)
}

// NewKey is the page that shows a new API key once.
type NewKey struct {
	Name, Key string
	// ExpiresAt is 0 if the key does not expire.
	ExpiresAt int64
	// Limited reports that the key has limits.
	Limited bool
}

func (p NewKey) page() page {
	warning := " Anyone who has this key can do everything that you can do."
	if p.Limited {
		warning = " Anyone who has this key can do what you have selected for it."
	}
	validity := g.Group{g.Text("Valid until you revoke it.")}
	if p.ExpiresAt != 0 {
		validity = g.Group{g.Text("Valid until "), timeElement(p.ExpiresAt, minute), g.Text(".")}
	}
	return page{title: "Your new API key", wide: true, main: g.Group{
		h.H1(g.Text("Your new API key")),
		notice("Copy it now. It is not shown again."),
		label("key", p.Name),
		h.Input(h.ID("key"), h.Class("secret"), h.ReadOnly(), h.AutoFocus(), h.AutoComplete("off"), g.Attr("spellcheck", "false"), h.Value(p.Key),
			h.Aria("describedby", "hint")),
		h.P(h.Class("hint"), h.ID("hint"), validity, g.Text(warning)),
		link("/account", h.Class("button"), g.Text("Back to your account")),
	}}
}
