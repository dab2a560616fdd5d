package pages_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http/browser/pages"
)

const markup = `<script>alert("x")</script>`

// full has every page with all its parts, and markup as each text of a visitor.
var full = map[string]any{
	"continue":     pages.Continue{Next: markup},
	"problem":      pages.Problem{Title: markup, Text: markup, Request: markup, Link: "/", LinkText: markup},
	"sign-in":      pages.SignIn{Email: markup, Next: markup, Problem: markup, Provider: markup, OffersReset: true},
	"forgotten":    pages.Forgotten{Requested: true},
	"key":          pages.NewKey{Name: markup, Key: markup, ExpiresAt: 1},
	"set-password": pages.SetPassword{Email: markup, Token: markup, MinLength: 10, MaxLength: 200, Problem: markup},
	"invitation": pages.Invitation{
		Token: markup, Workspace: markup, Inviter: markup, Role: markup, Email: markup, ExpiresAt: 1, SignedInAs: markup,
	},
	"account": pages.Account{
		Name: markup, Email: markup, Notice: markup, MoreGrants: true,
		Sessions: []pages.Session{{ID: markup, Browser: markup, Address: markup, StartedAt: 1, ExpiresAt: 2, Current: true}},
		Grants:   []pages.Grant{{ID: markup, Client: markup, Host: markup, Workspace: markup, Scopes: []string{markup}, CreatedAt: 1}},
		Keys:     []pages.Key{{ID: markup, Name: markup, Prefix: markup, CreatedAt: 1, ExpiresAt: 2, LastUsedAt: 3, Expired: true}},
		MoreKeys: true, KeyName: markup, KeyLasts: markup, KeyProblem: markup, HasPassword: true, PasswordProblem: markup, OffersReset: true,
	},
	"consent": pages.Consent{
		Action: "/", Hidden: []pages.Field{{Name: markup, Value: markup}}, Client: markup, Host: markup, Email: markup,
		Workspaces: []pages.Choice{{Value: markup, Label: markup, Chosen: true}},
		Scopes:     []pages.Choice{{Value: markup, Label: markup, Chosen: true}}, Problem: markup,
	},
}

func TestPages(t *testing.T) {
	for name, data := range full {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			pages.Render(w, 418, name, data)
			text := w.Body.String()
			if w.Code != 418 || strings.Count(text, "<h1") != 1 || !strings.Contains(text, `<html lang="en">`) {
				t.Errorf("%d %s", w.Code, text)
			}
			if strings.Contains(text, "<script") || strings.Contains(text, `"x"`) {
				t.Errorf("the page has unescaped markup: %s", text)
			}
			if inputs, labels := strings.Count(text, ` id="`), strings.Count(text, "<label for="); labels > inputs {
				t.Errorf("a label has no input: %s", text)
			}
		})
	}
}

func TestEveryPageIsRendered(t *testing.T) {
	for _, name := range pages.Names() {
		if full[name] == nil {
			t.Errorf("the page %s has no example in full", name)
		}
	}
}

func TestPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	pages.Render(w, 200, "problem", full["problem"])
	policy := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "form-action 'self';", "frame-ancestors 'none'", "style-src 'sha256-"} {
		if !strings.Contains(policy, part) {
			t.Errorf("%q lacks %q", policy, part)
		}
	}
	w = httptest.NewRecorder()
	w.Header().Set("Content-Security-Policy", pages.Policy("https://client.example"))
	pages.Render(w, 200, "problem", full["problem"])
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self' https://client.example;") {
		t.Errorf("the page's own policy became %q", policy)
	}
}
