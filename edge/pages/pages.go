// Package pages renders the edge's own pages, in place of an app that cannot be shown.
//
// A page has no script and no external file: the one stylesheet is inside it and is allowed by its hash (Content-Security-Policy). A page
// that waits for an app loads itself again. Only the platform may show a page in a frame, where it shows the app.
package pages

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the files below
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Page is what a page says.
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

//go:embed page.html
var pageFile string

var (
	style    = strings.TrimSpace(styleFile)
	compiled = template.Must(template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) }, // a part of the program
	}).Parse(pageFile))
	styleHash = hash(style)
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Render answers with a page.
func Render(w http.ResponseWriter, status int, p Page) {
	var text bytes.Buffer
	if err := compiled.Execute(&text, p); err != nil {
		panic("pages: " + err.Error()) // the template is a part of the program
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+styleHash+"; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self' "+p.Frames)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(text.Len()))
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
