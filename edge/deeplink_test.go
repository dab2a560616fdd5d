package edge_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A deep link into a private app leads through the launch to the same path and query, as browsers send them. Browsers remove a segment
// that is a dot.
func TestDeepLinks(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	long := strings.Repeat("filter=abcdefgh&", 500)
	for link, want := range map[string]string{
		`/open?file=C:\\notes\a`:  "/open?file=C:%5C%5Cnotes%5Ca",
		"/open?q=caf\xc3\xa9\xff": "/open?q=caf%C3%A9%FF",
		"/open?" + long:           "/open?" + long,
		"/open?a=%5C&b='":         "/open?a=%5C&b='",
		"//elsewhere.test/open":   "/.//elsewhere.test/open",
		"///?//":                  "/.///?//",
		`/\elsewhere.test`:        "/%5Celsewhere.test",
		`//\elsewhere.test`:       "/.//%5Celsewhere.test",
		// The longest link, and one that is a byte longer, as it is sent and when it is escaped.
		"/open?" + strings.Repeat("a", 8192-6):             "/open?" + strings.Repeat("a", 8192-6),
		"/open?" + strings.Repeat("a", 8192-5):             "/",
		"/open?" + strings.Repeat(`\`, (8192-6)/3) + "aa":  "/open?" + strings.Repeat("%5C", (8192-6)/3) + "aa",
		"/open?" + strings.Repeat(`\`, (8192-6)/3) + "aaa": "/",
	} {
		raw := s.raw("GET " + link + " HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n" +
			"Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nAccept: text/html\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		launch, err := url.Parse(response.Header.Get("Location"))
		if err != nil || launch.Query().Get("path") != want {
			t.Errorf("%.60q leads to the launch %.200s, %v", link, launch, err)
			continue
		}
		if target, _ := s.launch(s.alice, id, launch.Query().Get("host"), launch.Query().Get("path")); !strings.HasPrefix(target, strings.TrimSuffix(want, "&")) {
			t.Errorf("%.60q leads to %.200s", link, target)
		}
	}
}
