package server

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestClientAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, test := range map[string]struct {
		peer  string
		lines []string
		want  string
	}{
		"no proxy":                     {"192.0.2.1:7", nil, "192.0.2.1"},
		"header from a client":         {"192.0.2.1:7", []string{"198.51.100.1"}, "192.0.2.1"},
		"proxy without header":         {"10.0.0.1:7", nil, "10.0.0.1"},
		"proxy with header":            {"10.0.0.1:7", []string{"192.0.2.1"}, "192.0.2.1"},
		"over an IPv4-mapped address":  {"[::ffff:10.0.0.1]:7", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		"client sends a header itself": {"10.0.0.1:7", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		"two header lines":             {"10.0.0.1:7", []string{"198.51.100.1", "192.0.2.1"}, "192.0.2.1"},
		"two proxies":                  {"10.0.0.1:7", []string{"192.0.2.1, fd00::1"}, "192.0.2.1"},
		"two proxies, two lines":       {"10.0.0.1:7", []string{"192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
		"malformed address":            {"10.0.0.1:7", []string{"x, 10.0.0.2"}, "10.0.0.2"},
		"empty address":                {"10.0.0.1:7", []string{"", "10.0.0.2"}, "10.0.0.2"},
		"with a port":                  {"10.0.0.1:7", []string{"203.0.113.7:4711"}, "203.0.113.7"},
		"IPv6 with a port":             {"10.0.0.1:7", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		"IPv6 in brackets":             {"10.0.0.1:7", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"proxies with ports":           {"10.0.0.1:7", []string{"203.0.113.7:4711, [fd00::1]:1,10.0.0.2:2"}, "203.0.113.7"},
		"mapped with a port":           {"10.0.0.1:7", []string{"[::ffff:192.0.2.1]:7"}, "192.0.2.1"},
		"port without an address":      {"10.0.0.1:7", []string{"192.0.2.1, :80"}, "10.0.0.1"},
		"name with a port":             {"10.0.0.1:7", []string{"192.0.2.1, localhost:80"}, "10.0.0.1"},
		"open bracket":                 {"10.0.0.1:7", []string{"192.0.2.1, [2001:db8::1"}, "10.0.0.1"},
		"brackets of nothing":          {"10.0.0.1:7", []string{"192.0.2.1, []"}, "10.0.0.1"},
		"more than maxHops proxies":    {"10.0.0.1:7", []string{"192.0.2.1" + strings.Repeat(",10.0.0.2", 8)}, "10.0.0.2"},
		"maxHops proxies":              {"10.0.0.1:7", []string{"192.0.2.1" + strings.Repeat(",10.0.0.2", 7)}, "192.0.2.1"},
	} {
		r := &http.Request{RemoteAddr: test.peer, Header: http.Header{}}
		if test.lines != nil {
			r.Header["X-Forwarded-For"] = test.lines
		}
		if got := clientAddress(r, trusted); got.String() != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
