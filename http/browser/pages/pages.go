// Package pages renders the pages that people see in a browser: signing in, invitations, the account, consent.
//
// A page is a struct with the shown values, and a method that returns its title and its elements (Page). Text becomes a part of a page
// as g.Text or as the value of an attribute. Both escape it; only the style is raw. Links and forms lead to paths of this site only
// (sitePath). Characters that change the direction of the text after them are left out of every page.
//
// Pages have no scripts and no external files: the one stylesheet is inside each page and is allowed by its hash
// (Content-Security-Policy). Pages are not cached and cannot be framed. They send a referrer to this site only. They must send it
// there: without a referrer policy that allows it, browsers omit the header Origin of forms. The header distinguishes the site's own
// forms from forms of other sites, which are refused.
package pages

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the style
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/atelier-run/atelier/entity"
)

// A Page is the content of a page. The types that implement it are in this package.
type Page interface{ page() page }

// A page is the part of a page inside the layout.
type page struct {
	title string
	// wide reports that the page has lists and needs more width than a form.
	wide bool
	// leavesSite reports that a response to the page's form redirects to an address that an application has chosen.
	leavesSite bool
	main       g.Group
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

// icon is a drop in the color of the style.
const icon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M8 1a7 7 0 1 1-7 7v7V8a7 7 0 0 1 7-7z' fill='%231f5a4c'/%3E%3C/svg%3E`

// document returns the page in the layout of all pages.
func (p page) document() g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Text(p.title+" – Atelier")),
			h.Link(h.Rel("icon"), h.Href(icon)),
			h.StyleEl(g.Raw(style)), // nothing may be added to it, because the policy has its hash
		),
		h.Body(
			h.Header(g.If(p.wide, h.Class("wide")), g.Text("Atelier")),
			h.Main(p.main...),
		),
	))
}

// Render answers with a page.
func Render(w http.ResponseWriter, status int, p Page) {
	var text bytes.Buffer
	shown := p.page()
	_ = shown.document().Render(&text) // a buffer accepts everything
	content := bytes.Map(func(r rune) rune {
		if entity.IsDirectional(r) {
			return -1
		}
		return r
	}, text.Bytes())
	header := w.Header()
	header.Set("Content-Security-Policy", shown.policy())
	Guard(header)
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	w.Write(content) // fails only if the client has gone
}

// Guard sets the security headers of pages and redirects.
func Guard(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Robots-Tag", "noindex")
}

// ownForms is the directive that lets forms be sent to this site only.
const ownForms = " form-action 'self';"

// policy returns the page's Content-Security-Policy. Browsers apply form-action to each redirect that follows a form, and a policy
// without form-action allows all of them (Content Security Policy Level 3). The policy of a page that leaves the site has no
// form-action, because the address that the application has chosen may redirect to any other address, also to the scheme of an
// installed application.
func (p page) policy() string {
	if p.leavesSite {
		return policy(styleHash, "")
	}
	return policy(styleHash, ownForms)
}

// PolicyFor returns the Content-Security-Policy of a page with another style, which is all of the text between its style tags.
func PolicyFor(style string) string { return policy(hash(style), ownForms) }

func policy(styleHash, forms string) string {
	return "default-src 'none'; style-src " + styleHash + "; img-src data:;" + forms + " frame-ancestors 'none'; base-uri 'none'"
}
