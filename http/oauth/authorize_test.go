package oauth

import (
	"testing"
)

// TestRegisteredQueryIsRetained has redirect URIs with a query. A response leads to all of it, but for parameters that the client would
// take for the server's.
func TestRegisteredQueryIsRetained(t *testing.T) {
	for query, want := range map[string]string{
		"":                            "",
		"tenant=b&area=a":             "tenant=b&area=a&",
		"a=1;b=2&flag":                "a=1;b=2&flag&",
		"path=/x&text=%7e":            "path=/x&text=%7e&",
		"x=%zz":                       "x=%zz&",
		"code=evil&a=1&c%6fde=evil":   "a=1&",
		"a=1;code=evil&state=evil":    "",
		"iss=evil&error_uri=//evil&&": "",
	} {
		p, e := provide()
		uri := callback + "?" + query
		e.redirects = []string{uri}
		form := good()
		form.Set("redirect_uri", uri)
		asked, err := p.Begin(t.Context(), "req_1", form.Encode())
		if err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
		want = callback + "?" + want + "error=access_denied&error_description=The+person+did+not+allow+it.&iss=https%3A%2F%2Fatelier.example&state=x"
		if got := asked.Refuse(Denied); got != want {
			t.Errorf("%s leads to\n%s, want\n%s", uri, got, want)
		}
	}
}
