package edge_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A deep link into a private app leads through the launch to the same query, as browsers send it.
func TestDeepLinks(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	long := strings.Repeat("filter=abcdefgh&", 500)
	for query, want := range map[string]string{
		`file=C:\\notes\a`:  "file=C:%5C%5Cnotes%5Ca",
		"q=caf\xc3\xa9\xff": "q=caf%C3%A9%FF",
		long:                long,
		"a=%5C&b='":         "a=%5C&b='",
	} {
		raw := s.raw("GET /open?" + query + " HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n" +
			"Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nAccept: text/html\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		launch, err := url.Parse(response.Header.Get("Location"))
		if err != nil || launch.Query().Get("path") != "/open?"+want {
			t.Errorf("%.60q leads to the launch %.200s, %v", query, launch, err)
			continue
		}
		if target, _ := s.launch(s.alice, id, launch.Query().Get("host"), launch.Query().Get("path")); !strings.HasPrefix(target, "/open?"+strings.TrimSuffix(want, "&")) {
			t.Errorf("%.60q leads to %.200s", query, target)
		}
	}
}
