// Package pages renders the pages that people see in a browser: signing in, invitations, the account, consent.
//
// A page is a template in templates/ inside layout.html, with a struct of data.go as its data. Pages have no scripts and no
// external files: the one stylesheet is inside each page and is allowed by its hash (Content-Security-Policy). Pages are not
// cached and cannot be framed. They send a referrer to this site only. They must send it there: without a referrer policy
// that allows it, browsers omit the header Origin of forms, by which forms of other sites are refused.
package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed templates/*.html style.css
var files embed.FS

var (
	style     = strings.TrimSpace(string(must(files.ReadFile("style.css"))))
	styleHash = hash(style)
	templates = parse()
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// must returns the value of a call that cannot fail, because the files are part of the program.
func must[T any](value T, err error) T {
	if err != nil {
		panic("pages: " + err.Error()) // the files are part of the program
	}
	return value
}

// parse returns a template for each page, with the layout around it.
func parse() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html"))
	parsed := map[string]*template.Template{}
	for _, file := range must(files.ReadDir("templates")) {
		name := strings.TrimSuffix(file.Name(), ".html")
		if name == "layout" {
			continue
		}
		page := template.Must(layout.Clone())
		parsed[name] = template.Must(page.ParseFS(files, path.Join("templates", file.Name())))
	}
	return parsed
}

// Render answers with a page. It panics, before anything is sent, if there is no such page or data is not of its type in
// data.go.
func Render(w http.ResponseWriter, status int, name string, data any) {
	page := templates[name]
	if page == nil {
		panic(fmt.Sprintf("pages: no page %q", name))
	}
	var text bytes.Buffer
	if err := page.ExecuteTemplate(&text, "layout.html", data); err != nil {
		panic(fmt.Sprintf("pages: %s: %v", name, err))
	}
	header := w.Header()
	if header.Get("Content-Security-Policy") == "" {
		header.Set("Content-Security-Policy", Policy())
	}
	Guard(header)
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(text.Len()))
	w.WriteHeader(status)
	w.Write(text.Bytes()) // fails only if the client has gone
}

// Guard sets the security headers of pages and redirects.
func Guard(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Robots-Tag", "noindex")
}

// Policy returns the Content-Security-Policy of a page. Forms can be sent to this server only, and redirect to the given
// origins. A page that needs such origins sets the header before it is rendered.
func Policy(origins ...string) string { return policy(styleHash, origins...) }

// PolicyFor returns the Policy of a page with another style, which is all of the text between its style tags.
func PolicyFor(style string) string { return policy(hash(style)) }

func policy(styleHash string, origins ...string) string {
	forms := strings.Join(append([]string{"'self'"}, origins...), " ")
	return "default-src 'none'; style-src " + styleHash + "; img-src data:; form-action " + forms +
		"; frame-ancestors 'none'; base-uri 'none'"
}
