package pages_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/edge/pages"
)

// A page needs nothing but itself: no script, no other host, and the style that its policy allows by hash.
func TestRender(t *testing.T) {
	w := httptest.NewRecorder()
	pages.Render(w, 503, pages.Page{Title: "<b>", Text: "Text.", Refresh: 2, Busy: true, Request: "req_1", Frames: "https://atelier.test"})
	body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"<h1>&lt;b&gt;</h1>", `<meta http-equiv="refresh" content="2">`, "req_1", "Text."} {
		if !strings.Contains(body, part) {
			t.Errorf("the page has no %s", part)
		}
	}
	for _, part := range []string{"<script", "http://", "https://", "@import", "url("} {
		if strings.Contains(body, part) {
			t.Errorf("the page has %s", part)
		}
	}
	_, rest, _ := strings.Cut(body, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	hash := base64.StdEncoding.EncodeToString(sum[:])
	if !strings.Contains(policy, "default-src 'none'; style-src 'sha256-"+hash+"';") || !strings.HasSuffix(policy, "frame-ancestors 'self' https://atelier.test") {
		t.Errorf("the policy is %s", policy)
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{"the app is down": "The app is down.", "Done.": "Done.", "": "", "über": "Über."} {
		if got := pages.Sentence(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
