package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// errMisdirected does not depend on the name, and names no host of the server: the page of another site may read it.
var errMisdirected = entity.Errorf(entity.MisdirectedRequest,
	"this server does not serve the host name of the request; its operator can add the name with the setting hosts (\"Host names\" in docs/operations.md)")

// hosts has the host names of the server, in lower case.
type hosts map[string]bool

func newHosts(names ...string) hosts {
	h := hosts{}
	for _, name := range names {
		h[bareName(name)] = true
	}
	return h
}

// serve reports whether the platform is served for the Host of a request, which may have a port: one of the names, a loopback name,
// an IP address, or none, as in HTTP/1.0. A page of another site can lead its own name to the address of the server (DNS rebinding), and
// the requests of the page would then count as same-origin; it cannot do so with names that are not its own, nor with addresses.
func (h hosts) serve(host string) bool {
	name := bareName(host)
	if host == "" || h[name] || isLocalName(name) {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

func isLocalName(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isLoopback reports whether a bare name is a loopback name or address.
func isLoopback(name string) bool {
	address, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return isLocalName(name) || err == nil && address.IsLoopback()
}

// OriginOf returns the server's origin as the client of a request addresses it. Clients of OAuth compare it with the metadata (RFC
// 9728, section 3.3): the host of the request if it is one of the names of the server, and otherwise the public URL. A loopback name or
// address counts only if the public URL has one, too: a proxy that does not pass the host on sends one for all its clients. Behind a proxy
// that ends TLS, the scheme of a name other than the public one is not known.
func (s *Server) OriginOf(r *http.Request) string {
	public, name := s.options.PublicURL, bareName(r.Host)
	of, err := url.Parse("//" + r.Host)
	isKnown := s.hosts[name] || isLoopback(name) && isLoopback(bareName(public.Host))
	switch {
	case !isKnown, err != nil, of.Host != r.Host, name == bareName(public.Host):
		return s.Link("")
	case r.TLS != nil:
		return "https://" + of.Host
	case public.Scheme != "http":
		return s.Link("")
	}
	return "http://" + of.Host
}

// bareName returns a host in lower case, without its port and its trailing dot.
func bareName(host string) string {
	colon := strings.LastIndexByte(host, ':')
	if colon >= 0 && (host[0] == '[' && host[colon-1] == ']' || colon == strings.IndexByte(host, ':')) {
		host = host[:colon]
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// isMonitored reports whether a request is answered for every host name: monitoring sends its own names and addresses of the
// server, and the answers have nothing of any workspace. Metrics are not answered to scripts of pages: their browser sends
// Sec-Fetch-Site.
func isMonitored(r *http.Request) bool {
	return isProbe(r.URL.Path) || r.URL.Path == "/metrics" && r.Header.Get("Sec-Fetch-Site") == ""
}

// misdirected answers requests for hosts that are neither the server's nor an app's.
func misdirected(w http.ResponseWriter, _ *http.Request) { w.(*Response).fail(errMisdirected) }
