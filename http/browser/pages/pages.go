// Package pages renders the pages that people see in a browser: signing in, invitations, the account, consent.
//
// A page is a template of templates/ inside layout.html, and a struct of data.go for what it shows. Pages need no script
// and no file beside themselves: the one stylesheet is inside each, allowed by its hash and nothing else
// (Content-Security-Policy). They are never stored, never framed, and tell other sites nothing of the address that they
// were at; to their own they do, because a browser that may not tell names no Origin for a form either, by which forms
// from elsewhere are refused.
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

func must[T any](value T, err error) T {
	if err != nil {
		panic("pages: " + err.Error()) // the files are part of the program
	}
	return value
}

// parse makes one template a page, each with the layout around it.
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

// Render answers with the page of a name. What a page shows must be of its type in data.go: another is a mistake in the
// program, and panics before anything is sent.
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
	w.Write(text.Bytes()) // a client that has gone needs no page
}

// Guard sets what answers to browsers have whether they are pages or lead on to one.
func Guard(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Robots-Tag", "noindex")
}

// Policy is the Content-Security-Policy of pages. A form is sent to this server alone and may, by redirects, lead on to
// the origins given; a page that needs some sets the header before it is rendered.
func Policy(origins ...string) string { return policy(styleHash, origins...) }

// PolicyFor returns the Policy of a page with another style, which is all of the text between its style tags.
func PolicyFor(style string) string { return policy(hash(style)) }

func policy(styleHash string, origins ...string) string {
	forms := strings.Join(append([]string{"'self'"}, origins...), " ")
	return "default-src 'none'; style-src " + styleHash + "; img-src data:; form-action " + forms +
		"; frame-ancestors 'none'; base-uri 'none'"
}
