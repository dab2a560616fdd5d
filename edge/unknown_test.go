package edge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/edge"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// TestUnknownAppsAreAnsweredAlike compares whole answers: they must not tell which workspaces exist.
func TestUnknownAppsAreAnsweredAlike(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.AddressBurst = 10_000 })
	s.register("notes", hello)
	s.askApp(s.register("removed", hello), &appv1.RemoveApp{TaskId: newID("tsk_")})
	const unknown = "notes--unknown.apps.test"
	for _, kind := range [][]string{nil, document, {"Origin", "https://elsewhere.test"}, {"Cookie", "atelier-visit=x; __Host-atelier-visit=x"}} {
		for _, path := range []string{"/", "/a?b", "/?service_access=x", "/favicon.ico"} {
			want := s.answer(path, append(kind, "Host", unknown)...)
			for _, host := range []string{
				"unknown--acme.apps.test", "removed--acme.apps.test", "unknown--unknown.apps.test", "x--acme.apps.test", "acme.apps.test", "a.b.apps.test",
				"elsewhere.test", "UNKNOWN--acme.apps.test.:80",
			} {
				if got := s.answer(path, append(kind, "Host", host)...); got != want {
					t.Errorf("%s%s %q is answered with\n%s\nand %s with\n%s", host, path, kind, got, unknown, want)
				}
			}
		}
	}
}

// answer returns the whole answer to a request, without what differs in each.
func (s *stage) answer(path string, headers ...string) string {
	s.Helper()
	response, body := s.get(path, headers...)
	id := response.Header.Get("X-Request-Id")
	response.Header.Del("X-Request-Id")
	response.Header.Del("Date")
	response.Header.Del("Content-Length") // of the id in the body
	return fmt.Sprintf("%s %v\n%s", response.Status, response.Header, strings.ReplaceAll(body, id, "ID"))
}
