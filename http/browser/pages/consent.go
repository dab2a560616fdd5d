package pages

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Consent is the page that asks a person for the rights of an application.
type Consent struct {
	// Action is the path of the form. It is sent with the Hidden fields, "workspace", a "scope" for each granted one, and
	// "decision", which is "allow" or "deny".
	Action string
	Hidden []Field
	// Client is the name that the application chose, Host the host of its redirect URI.
	Client, Host string
	Email        string
	// Search finds the workspaces that are not among Workspaces; nil if all are.
	Search     *WorkspaceSearch
	Workspaces []Choice
	// IsIncomplete reports that workspaces were not reached and are missing.
	IsIncomplete bool
	Scopes       []Choice
	Problem      string
}

// WorkspaceSearch is the form that finds a workspace, with the links to the other pages of the list.
type WorkspaceSearch struct {
	// Action is the path of the form. It is requested with the Hidden fields and "find".
	Action string
	Hidden []Field
	Find   string
	// Summary says how many workspaces there are.
	Summary string
	// All, Previous and Next are the paths of the page with all workspaces and of the pages before and after this one; "" for none.
	All, Previous, Next string
}

func (s *WorkspaceSearch) nodes() g.Node {
	leads := func(path, text string) g.Node {
		return g.If(path != "", g.Group{g.Text(" · "), link(path, g.Text(text))})
	}
	return g.Group{
		h.Form(h.Method("get"), h.Action(sitePath(s.Action)), h.Role("search"), h.Class("line"),
			g.Map(s.Hidden, func(one Field) g.Node { return hidden(one.Name, one.Value) }),
			h.Div(
				label("find", "Find a workspace"),
				h.Input(h.ID("find"), h.Name("find"), h.Type("search"), h.MaxLength("100"), h.AutoComplete("off"), h.Value(s.Find)),
			),
			h.Button(h.Class("second"), g.Text("Find")),
		),
		h.P(h.Class("quiet after"), g.Text(s.Summary),
			leads(s.Previous, "Previous page"), leads(s.Next, "Next page"), leads(s.All, "All workspaces")),
	}
}

// Field is a hidden field of a form.
type Field struct{ Name, Value string }

// Choice is an option of a list.
type Choice struct {
	Value, Label string
	Chosen       bool
}

func (p Consent) page() page {
	title := "Allow " + p.Client + "?"
	return page{title: title, leavesSite: true, main: g.Group{
		h.H1(g.Text(title)),
		h.P(strong(p.Client), g.Text(" asks to act for "), strong(p.Email), g.Text(" in one workspace. Your answer is sent to "), strong(p.Host),
			g.Text(". Allow this only if you know that address: an application can choose any name.")),
		problemBox("problem", p.Problem),
		g.If(p.IsIncomplete, quiet(g.Text("Some of your workspaces are missing, because a part of the server does not answer at the moment. To choose one of them, load this page again later."))),
		g.Iff(p.Search != nil, func() g.Node { return p.Search.nodes() }),
		form(p.Action,
			g.Map(p.Hidden, func(one Field) g.Node { return hidden(one.Name, one.Value) }),
			label("workspace", "Workspace"),
			h.Select(h.ID("workspace"), h.Name("workspace"), h.Required(), g.If(p.Problem != "", h.Aria("describedby", "problem")),
				g.Map(p.Workspaces, func(one Choice) g.Node { return option(one.Value, one.Label, one.Chosen) })),
			h.FieldSet(h.Legend(g.Text("Permissions")), g.Map(p.Scopes, checkbox)),
			h.Button(h.Name("decision"), h.Value("allow"), g.Text("Allow")),
			h.Button(h.Name("decision"), h.Value("deny"), h.Class("second"), h.FormNoValidate(), g.Text("Deny")),
		),
	}}
}

func checkbox(scope Choice) g.Node { return choose("checkbox", "scope", scope) }

// choose returns a checkbox or a radio button with its label.
func choose(kind, name string, c Choice) g.Node {
	return h.Label(h.Input(h.Type(kind), h.Name(name), h.Value(c.Value), g.If(c.Chosen, h.Checked())), g.Text(" "+c.Label))
}
