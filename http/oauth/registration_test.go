package oauth

import (
	"net/url"
	"strings"
	"testing"

	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

func TestParseMetadata(t *testing.T) {
	for body, want := range map[string]metadata{
		``:                       {},
		`,"client_name":" \t"`:   {},
		`,"client_name":" T "`:   {Name: " T "},
		`,"client_name#en":"T"`:  {},
		`,"client_uri":"http:/"`: {},
		`,"client_uri":"http://client.example","token_endpoint_auth_method":"client_secret_post"`: {URI: "http://client.example"},
		`,"client_uri":"https://client.example/` + strings.Repeat("a", 2048) + `"`:                {},
		`,"grant_types":7,"response_types":"token","contacts":{}`:                                 {},
	} {
		got, err := parseMetadata([]byte(`{"redirect_uris":["` + callback + `"]` + body + `}`))
		if err != nil || got.Name != want.Name || got.URI != want.URI {
			t.Errorf("%.90s: %+v, %v", body, got, err)
		}
	}
	for body, want := range map[string]string{
		`{}`: "invalid_redirect_uri", `null`: "invalid_redirect_uri", `{"redirect_uris":["` + callback + `"],"client_name":"\u0000"}`: "invalid_client_metadata",
	} {
		_, err := parseMetadata([]byte(body))
		wantError(t, err, want)
	}
}

// TestClientName has clients without a name. The name is the end of the host, which its owner has registered, and never longer than a
// name that a client can choose.
func TestClientName(t *testing.T) {
	for uri, want := range map[string]string{
		callback: "client.example", "com.example.app:/callback": "com.example.app:", "http://127.0.0.1:4711/": "127.0.0.1:4711",
		"https://" + strings.Repeat("a", 200) + ".example/": strings.Repeat("a", 92) + ".example",
	} {
		redirect, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		r := &Request{client: &clientv1.Client{}, redirect: redirect}
		if got := r.ClientName(); got != want {
			t.Errorf("%s: %s", uri, got)
		}
		r.client.Name = "Tester"
		if got := r.ClientName(); got != "Tester" {
			t.Errorf("%s: %s", uri, got)
		}
	}
}
