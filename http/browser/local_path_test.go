package browser

import (
	"net/url"
	"strings"
	"testing"
)

// No text makes localPath return a path that leads a browser to another site, even if the browser takes \ for / and ignores
// control characters.
func FuzzLocalPath(f *testing.F) {
	for _, seed := range []string{"/account", "//evil", "/\\evil", "/\t/evil", "https://evil", "/a?b=//c#d", "", "/%2f/evil", "/.//evil", "/\xff"} {
		f.Add(seed)
	}
	here := &url.URL{Scheme: "https", Host: "atelier.example.com", Path: "/sign-in"}
	f.Fuzz(func(t *testing.T, next string) {
		path := localPath(next)
		seen := strings.Map(func(r rune) rune {
			switch {
			case r < ' ':
				return -1
			case r == '\\':
				return '/'
			}
			return r
		}, path)
		to, err := here.Parse(seen)
		if err != nil || to.Host != here.Host || to.Scheme != here.Scheme || strings.HasPrefix(seen, "//") || !strings.HasPrefix(seen, "/") {
			t.Errorf("%q leads to %v, %v", next, to, err)
		}
	})
}

func TestLeavesSite(t *testing.T) {
	for path, want := range map[string]bool{
		"/account": false, "/invitations/x": false, "/": false, "/v1/apps/app_1/launch?path=%2F": true, "/oauth/authorize?client_id=x": true,
	} {
		if leavesSite(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
