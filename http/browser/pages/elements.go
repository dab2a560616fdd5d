package pages

import (
	"strings"
	"time"
	"unicode"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// link returns a link to a path of this site.
func link(path string, children ...g.Node) g.Node {
	return h.A(h.Href(sitePath(path)), g.Group(children))
}

// form returns a form that is sent to a path of this site.
func form(path string, children ...g.Node) g.Node {
	return h.Form(h.Method("post"), h.Action(sitePath(path)), g.Group(children))
}

// sitePath returns path if every browser takes it for a path of this site, and otherwise "/": a link with the text of a visitor
// or an application must neither lead to another site nor run a script. Browsers may take // and /\ for the beginning of
// another host, and ignore control characters.
func sitePath(path string) string {
	foreign := !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.HasPrefix(path, `/\`)
	if foreign || strings.ContainsFunc(path, unicode.IsControl) {
		return "/"
	}
	return path
}

// hidden returns a field that is sent with a form and not shown.
func hidden(name, value string, attributes ...g.Node) g.Node {
	return h.Input(h.Type("hidden"), h.Name(name), h.Value(value), g.Group(attributes))
}

// label returns the label of the field with an id.
func label(id, text string) g.Node { return h.Label(h.For(id), g.Text(text)) }

// option returns an option of a list.
func option(value, text string, selected bool) g.Node {
	return h.Option(h.Value(value), g.If(selected, h.Selected()), g.Text(text))
}

// problemBox returns the box with a problem; nil if there is none.
func problemBox(id, problem string) g.Node {
	return g.If(problem != "", h.P(h.Class("problem"), h.ID(id), h.Role("alert"), g.Text(problem)))
}

// invalid returns the attributes of a field with the problem in the box with an id, and more attributes for it; nil if there is no problem.
func invalid(id, problem string, more ...g.Node) g.Node {
	return g.If(problem != "", g.Group{h.Aria("invalid", "true"), h.Aria("describedby", id), g.Group(more)})
}

// invalidWithHint returns the attributes of a field that a hint describes, and with a problem also the attributes of invalid.
func invalidWithHint(id, problem, hint string) g.Node {
	if problem == "" {
		return h.Aria("describedby", hint)
	}
	return invalid(id+" "+hint, problem)
}

// notice returns a box with the text of a completed action.
func notice(text string) g.Node { return h.P(h.Class("notice"), h.Role("status"), g.Text(text)) }

func quiet(children ...g.Node) g.Node { return h.P(h.Class("quiet"), g.Group(children)) }

func strong(text string) g.Node { return h.Strong(g.Text(text)) }

// day and minute are the formats of times.
const (
	day    = "2 January 2006"
	minute = "2 January 2006, 15:04 UTC"
)

// format returns a time, in milliseconds since 1970, as text.
func format(at int64, layout string) string { return time.UnixMilli(at).UTC().Format(layout) }

// timeElement returns a time as an element that programs can read, too.
func timeElement(at int64, layout string) g.Node {
	return h.Time(h.DateTime(format(at, time.RFC3339)), g.Text(format(at, layout)))
}
