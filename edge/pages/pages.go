// Package pages renders the edge's own pages, in place of an app that cannot be shown.
//
// A page has no script and no external file: the one stylesheet is inside it and is allowed by its hash (Content-Security-Policy). A page
// that waits for an app loads itself again. Only the platform may show a page in a frame, where it shows the app.
package pages

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the style
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A Page has the content of a page.
type Page struct {
	Title, Text string
	// Request is the id of the request, for questions to the operators; empty: it is not shown.
	Request string
	// Refresh is the time after which the page loads itself again, in seconds; 0: it does not.
	Refresh int
	// Busy shows that something is going on.
	Busy bool
	// Frames is the origin that may show the page in a frame.
	Frames string
}

//go:embed style.css
var styleFile string

var (
	style     = strings.TrimSpace(styleFile)
	styleHash = hash(style)
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// document returns the page as HTML. Text becomes a part of it as g.Text, which escapes it; only the style is raw.
func (p Page) document() g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("robots"), h.Content("noindex")),
			g.If(p.Refresh != 0, h.Meta(g.Attr("http-equiv", "refresh"), h.Content(strconv.Itoa(p.Refresh)))),
			h.TitleEl(g.Text(p.Title)),
			h.Link(h.Rel("icon"), h.Href("data:,")),
			h.StyleEl(g.Raw(style)), // nothing may be added to it, because the policy has its hash
		),
		h.Body(
			h.Header(g.Text("Atelier")),
			h.Main(
				h.H1(g.Text(p.Title)),
				g.If(p.Busy, h.Div(h.Class("busy"), h.Role("progressbar"), h.Aria("label", "Starting"))),
				h.P(g.Text(p.Text)),
				g.If(p.Request != "", h.P(h.Class("quiet"), g.Text("Request "), h.Code(g.Text(p.Request)))),
			),
		),
	))
}

// Render answers with a page.
func Render(w http.ResponseWriter, status int, p Page) {
	var text bytes.Buffer
	_ = p.document().Render(&text) // a buffer accepts everything
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src "+styleHash+"; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self' "+p.Frames)
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(text.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // fails only if the client has gone, or reads no body
}

// Sentence returns an error message as a sentence.
func Sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}
