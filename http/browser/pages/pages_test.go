package pages_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http/browser/pages"
)

const markup = `<script>alert("x")</script>`

// full returns every page with all its parts, and a text as each text of a visitor or an application. The invitation has several
// forms.
func full(text string) []pages.Page {
	invitation := pages.Invitation{Token: text, Workspace: text, Inviter: text, Role: text, Email: text, ExpiresAt: 1, Name: text, Problem: text, SignIn: text}
	visitors, others, known := invitation, invitation, invitation
	visitors.IsForVisitor, others.SignedInAs, known.HasAccount = true, text, true
	return []pages.Page{
		pages.Continue{Next: text},
		pages.Problem{Title: text, Text: text, Request: text, Link: text, LinkText: text},
		pages.SignIn{Email: text, Next: text, Problem: text, Provider: text, OffersReset: true},
		pages.Forgotten{}, pages.Forgotten{Requested: true},
		pages.NewKey{Name: text, Key: text, ExpiresAt: 1},
		pages.SetPassword{Email: text, Token: text, MinLength: 10, MaxLength: 200, Problem: text},
		invitation, visitors, others, known,
		pages.Account{
			Name: text, Email: text, Notice: text, MoreGrants: true,
			Sessions: []pages.Session{{ID: text, Browser: text, Address: text, StartedAt: 1, ExpiresAt: 2, Current: true}},
			Grants:   []pages.Grant{{ID: text, Client: text, Host: text, Workspace: text, Scopes: []string{text}, CreatedAt: 1}},
			Keys:     []pages.Key{{ID: text, Name: text, Prefix: text, CreatedAt: 1, ExpiresAt: 2, LastUsedAt: 3, Expired: true}},
			MoreKeys: true, KeyForm: pages.KeyForm{Name: text, Lasts: text, Problem: text, Scopes: []pages.Choice{{Value: text, Label: text}}, Workspaces: []pages.Choice{{Value: text, Label: text}}, AllWorkspaces: 2}, HasPassword: true, PasswordProblem: text, OffersReset: true,
		},
		pages.Consent{
			Action: text, Hidden: []pages.Field{{Name: text, Value: text}}, Client: text, Host: text, Email: text,
			Search: &pages.WorkspaceSearch{
				Action: text, Hidden: []pages.Field{{Name: text, Value: text}}, Find: text, Summary: text, All: text, Previous: text, Next: text,
			},
			Workspaces: []pages.Choice{{Value: text, Label: text, Chosen: true}},
			Scopes:     []pages.Choice{{Value: text, Label: text, Chosen: true}}, Problem: text,
		},
	}
}

func render(p pages.Page) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	pages.Render(w, 418, p)
	return w
}

func nameOf(p pages.Page) string { return strings.TrimPrefix(fmt.Sprintf("%T", p), "pages.") }

func TestPages(t *testing.T) {
	label, field := regexp.MustCompile(`<label for="([^"]*)"`), regexp.MustCompile(`<(?:input|select) id="([^"]*)"`)
	for _, page := range full(markup) {
		t.Run(nameOf(page), func(t *testing.T) {
			w := render(page)
			text := w.Body.String()
			if w.Code != 418 || strings.Count(text, "<h1") != 1 || !strings.HasPrefix(text, `<!doctype html><html lang="en">`) {
				t.Errorf("%d %s", w.Code, text)
			}
			if strings.Contains(text, "<script") || strings.Contains(text, `"x"`) {
				t.Errorf("the page has unescaped markup: %s", text)
			}
			if labels, fields := groups(label, text), groups(field, text); !slices.Equal(labels, fields) {
				t.Errorf("labels for %q, fields %q", labels, fields)
			}
		})
	}
}

// TestPagesKeepTheDirectionOfText renders names that would turn the text after them around.
func TestPagesKeepTheDirectionOfText(t *testing.T) {
	const turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	for _, page := range full("a" + turning + "b\u05d0\u200f") {
		w := render(page)
		text := w.Body.String()
		if strings.ContainsAny(html.UnescapeString(text), turning) || w.Header().Get("Content-Length") != strconv.Itoa(len(text)) {
			t.Errorf("%s: %s", nameOf(page), text)
		}
	}
}

// groups returns the first groups of all matches.
func groups(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, html.UnescapeString(match[1]))
	}
	return found
}

// TestEveryPageIsRendered finds the pages by their method in the sources.
func TestEveryPageIsRendered(t *testing.T) {
	rendered := map[string]bool{}
	for _, page := range full("") {
		rendered[nameOf(page)] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Recv == nil || f.Name.Name != "page" {
				continue
			}
			declared++
			if name := f.Recv.List[0].Type.(*ast.Ident).Name; !rendered[name] {
				t.Errorf("the page %s has no example in full", name)
			}
		}
	}
	if declared != len(rendered) {
		t.Errorf("found %d declarations of %d pages", declared, len(rendered))
	}
}

var target = regexp.MustCompile(` (?:href|action|formaction|src)="([^"]*)"`)

// targets returns the paths that the links and forms of a page lead to.
func targets(page pages.Page) []string {
	found := groups(target, render(page).Body.String())
	return slices.DeleteFunc(found, func(text string) bool { return strings.HasPrefix(text, "data:image/svg+xml,") })
}

// No text of a visitor or an application makes a page lead to another site or run a script.
func TestTargetsArePathsOfThisSite(t *testing.T) {
	here := &url.URL{Scheme: "https", Host: "atelier.example.com", Path: "/sign-in"}
	for _, text := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", "\tjavascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "https://evil.example/",
		"//evil.example/", `/\evil.example/`, `\\evil.example/`, "/\t/evil.example/", "/\n\\evil.example/", "evil", "", "/", "/a//b?c=//d#e", "../..",
	} {
		for _, page := range full(text) {
			for _, found := range targets(page) {
				seen := strings.NewReplacer("\t", "", "\r", "", "\n", "", `\`, "/").Replace(strings.TrimSpace(found)) // as a browser sees it
				to, err := here.Parse(seen)
				if err != nil || !strings.HasPrefix(seen, "/") || strings.HasPrefix(seen, "//") || to.Host != here.Host {
					t.Errorf("%s with %q leads to %q, %v", nameOf(page), text, found, err)
				}
			}
		}
	}
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		page pages.Page
		want []string
	}{
		{pages.Continue{Next: "/v1/apps/app_1?a=b&c=%2F"}, []string{"/v1/apps/app_1?a=b&c=%2F"}},
		{pages.Continue{Next: "javascript:alert(1)"}, []string{"/"}},
		{pages.Problem{Link: "javascript:alert(1)"}, []string{"/"}},
		{pages.Problem{}, nil},
		{pages.SignIn{Next: "/a?b=c&d#e f", Provider: "Example"}, []string{"/sign-in", "/sign-in/oidc?next=%2Fa%3Fb%3Dc%26d%23e+f"}},
		{pages.Consent{Action: "/oauth/authorize?state=a+b&x=%20"}, []string{"/oauth/authorize?state=a+b&x=%20"}},
		{pages.Invitation{Token: "a/../b?c"}, []string{"/invitations/a%2F..%2Fb%3Fc"}},
		{pages.Invitation{HasAccount: true, SignIn: "/sign-in?next=%2Fa"}, []string{"/sign-in?next=%2Fa"}},
		{pages.Account{Sessions: []pages.Session{{ID: "a/b?c"}}}, []string{"/sign-out", "/account/sessions/a%2Fb%3Fc/end", "/account/keys"}},
	} {
		if found := targets(test.page); !slices.Equal(found, test.want) {
			t.Errorf("%+v leads to %q", test.page, found)
		}
	}
}

func TestPolicy(t *testing.T) {
	w := render(pages.Problem{})
	_, rest, _ := strings.Cut(w.Body.String(), "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{
		"default-src 'none'", "form-action 'self';", "frame-ancestors 'none'", "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';",
	} {
		if !strings.Contains(policy, part) {
			t.Errorf("%q lacks %q", policy, part)
		}
	}
	// A browser applies form-action to the redirects of the application, too.
	if got, want := render(pages.Consent{}).Header().Get("Content-Security-Policy"), strings.Replace(policy, " form-action 'self';", "", 1); got != want {
		t.Errorf("the policy of the consent page is %q, want %q", got, want)
	}
}
