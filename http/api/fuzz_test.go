package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http/server"
)

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=5&order=desc", "path=a%2Fb&scope=subtree", "&&=&", "limit=5&limit=5", "a;b", "%", "path=%00"} {
		f.Add(seed)
	}
	cursor := activity.NewCursor(make([]byte, 32), "ws_1")
	f.Fuzz(func(t *testing.T, raw string) {
		_, err := decodeFeed(&server.Call{
			Request: &http.Request{URL: &url.URL{RawQuery: raw}, Header: http.Header{}}, Workspace: &server.Workspace{Cursor: cursor},
		})
		if err != nil {
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil && !strings.Contains(raw, ";") {
			t.Fatalf("%q was accepted: %v", raw, err)
		}
		for name, given := range values {
			if len(given) > 1 || !utf8.ValidString(given[0]) || !strings.Contains(" cursor limit reads order path scope ", " "+name+" ") {
				t.Errorf("%q was accepted", raw)
			}
		}
	})
}
