package server

import (
	"crypto/tls"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestOriginOf(t *testing.T) {
	for _, test := range []struct {
		public, host string
		isTLS        bool
		want         string
	}{
		{"http://127.0.0.1:8080", "localhost:8080", false, "http://localhost:8080"},
		{"http://127.0.0.1:8080", "LOCALHOST:9090", false, "http://LOCALHOST:9090"},
		{"http://127.0.0.1:8080", "[::1]:8080", false, "http://[::1]:8080"},
		{"http://localhost:8080", "127.0.0.1:8080", false, "http://127.0.0.1:8080"},
		{"http://127.0.0.1:8080", "atelier.lan:8080", false, "http://atelier.lan:8080"},
		{"http://127.0.0.1:8080", "elsewhere.example", false, "http://127.0.0.1:8080"},
		{"http://127.0.0.1:8080", "192.0.2.1:8080", false, "http://127.0.0.1:8080"},
		{"http://127.0.0.1:8080", "", false, "http://127.0.0.1:8080"},
		{"http://127.0.0.1:8080", `localhost:8080"x`, false, "http://127.0.0.1:8080"},
		{"http://127.0.0.1:8080", "localhost:x", false, "http://127.0.0.1:8080"},
		{"https://atelier.example", "atelier.example:8443", true, "https://atelier.example"},
		{"https://atelier.example", "atelier.lan", true, "https://atelier.lan"},
		// Behind a proxy that ends TLS, and one that sends the address of the node as the host.
		{"https://atelier.example", "atelier.lan", false, "https://atelier.example"},
		{"https://atelier.example", "127.0.0.1:8080", false, "https://atelier.example"},
		{"https://atelier.example", "localhost:8443", true, "https://atelier.example"},
	} {
		public, err := url.Parse(test.public)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{options: Options{PublicURL: public}, hosts: newHosts("atelier.lan", public.Host)}
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = test.host
		if test.isTLS {
			r.TLS = &tls.ConnectionState{}
		}
		if got := s.OriginOf(r); got != test.want {
			t.Errorf("the origin of %q at %s (TLS: %v) is %s, want %s", test.host, test.public, test.isTLS, got, test.want)
		}
	}
}
