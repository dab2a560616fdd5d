package http_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/http/api"
)

// TestDocumentIsServed reads the document as a strict client does, which refuses duplicate keys.
func TestDocumentIsServed(t *testing.T) {
	w := request(t, newFakeEntities().server(t), "GET", "/v1/openapi.json", "", "")
	expect(t, w, 200, "")
	if !bytes.Equal(w.Body.Bytes(), api.Document()) {
		t.Error("the served document is not the generated one")
	}
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Error(err)
	}
}

func TestReference(t *testing.T) {
	w := request(t, newFakeEntities().server(t), "GET", "/docs", "", "")
	expect(t, w, 200, `<html lang="en">`)
	if media := w.Header().Get("Content-Type"); media != "text/html; charset=utf-8" {
		t.Errorf("Content-Type: %s", media)
	}
	page := w.Body.String()

	t.Run("has every operation", func(t *testing.T) {
		doc, err := document()
		if err != nil {
			t.Fatal(err)
		}
		for path, item := range doc.Paths.Map() {
			for method := range operationsOf(item) {
				route := fmt.Sprintf(`<span class="method %s">%s</span> <code>%s</code>`, method, method, html.EscapeString(path))
				if strings.Count(page, route) != 1 {
					t.Errorf("%s %s: the page has it %d times", method, path, strings.Count(page, route))
				}
			}
			for _, op := range item.Operations() {
				if !strings.Contains(page, `<article id="`+op.OperationID+`">`) || !strings.Contains(page, html.EscapeString(op.Summary)) {
					t.Errorf("%s: the page lacks its anchor or its summary", op.OperationID)
				}
			}
		}
	})

	t.Run("has every schema and error code", func(t *testing.T) {
		doc, err := document()
		if err != nil {
			t.Fatal(err)
		}
		for name, schema := range doc.Components.Schemas {
			anchor := `<article id="schema-` + name + `">`
			if code := schema.Value.Properties["error"]; code != nil && code.Value.Const != nil {
				anchor = fmt.Sprintf("<dt><code>%s</code></dt>", code.Value.Const)
			}
			if !strings.Contains(page, anchor) {
				t.Errorf("the page lacks %s", anchor)
			}
		}
	})

	t.Run("links lead somewhere on this server", func(t *testing.T) {
		for _, link := range regexp.MustCompile(`(?:href|src|srcset|action|poster|data)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			to := strings.TrimPrefix(link[1], "/docs")
			switch {
			case strings.HasPrefix(to, "#"):
				if strings.Count(page, ` id="`+to[1:]+`"`) != 1 {
					t.Errorf("%s leads to no anchor, or to several", to)
				}
			case to != "/v1/openapi.json" && !strings.HasPrefix(to, "data:"):
				t.Errorf("%s leads away from the page", to)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "@import") || strings.Contains(page, "url(") {
			t.Error("the page has a script, or a style that loads a file")
		}
	})

	t.Run("policy allows its style only", func(t *testing.T) {
		_, rest, _ := strings.Cut(page, "<style>")
		style, _, _ := strings.Cut(rest, "</style>")
		sum := sha256.Sum256([]byte(style))
		want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
		if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, want) || strings.Contains(page, " style=") {
			t.Errorf("%q, want %q, and no other style in the page", policy, want)
		}
	})
}
