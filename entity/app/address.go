package app

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// Addresses has the parts of the addresses of apps. The standard address of an app is <scheme>://<app>--<workspace>.<edge host>/.
type Addresses struct {
	// EdgeHost is the host name below which the standard addresses are; empty: localhost if the public URL is on loopback or has an IP
	// address, otherwise the host of that URL.
	EdgeHost string
	// Scheme is http or https, and Port the port of the addresses; empty and 0: the scheme and the port of the public URL.
	Scheme string
	Port   int
}

// WithDefaults returns the addresses with their defaults, which follow from the public URL of the server.
func (a Addresses) WithDefaults(public *url.URL) Addresses {
	if a.EdgeHost == "" {
		a.EdgeHost = public.Hostname()
		if _, err := netip.ParseAddr(a.EdgeHost); err == nil {
			a.EdgeHost = "localhost"
		}
	}
	if a.Scheme == "" {
		a.Scheme = public.Scheme
		if a.Port == 0 {
			a.Port, _ = strconv.Atoi(public.Port()) // empty for the port of the scheme
		}
	}
	return a
}

// StandardHost returns the host name of the standard address of an app, without a port.
func (a Addresses) StandardHost(appSlug, workspaceSlug string) string {
	return StandardHost(appSlug, workspaceSlug, a.EdgeHost)
}

// URL returns the address of a host name of an app.
func (a Addresses) URL(host string) string {
	if a.Port != 0 && !(a.Scheme == "https" && a.Port == 443) && !(a.Scheme == "http" && a.Port == 80) {
		host += ":" + strconv.Itoa(a.Port)
	}
	return a.Scheme + "://" + host + "/"
}

// Canonical returns the canonical address of an app: the address of its custom domain if the domain is active, otherwise the standard one.
func (a Addresses) Canonical(s *appv1.App, workspaceSlug string) string {
	if d := s.GetDomain(); d.GetClaimed() && d.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE {
		return a.URL(strings.ToLower(d.GetHostname()))
	}
	return a.URL(a.StandardHost(s.GetSlug(), workspaceSlug))
}

// slugSeparator separates the slug of the app from the slug of the workspace. Neither slug contains it (entity/slug).
const slugSeparator = "--"

// StandardHost returns the host of the standard address of an app below the edge host (specification, App rule 1).
func StandardHost(appSlug, workspaceSlug, edgeHost string) string {
	return appSlug + slugSeparator + workspaceSlug + "." + edgeHost
}

// SplitStandardHost returns the slugs of the app and of the workspace in the host of a standard address. The host is in lower case
// and has no port. ok is false for any other host.
func SplitStandardHost(host, edgeHost string) (appSlug, workspaceSlug string, ok bool) {
	label, found := strings.CutSuffix(host, "."+edgeHost)
	if !found || strings.Contains(label, ".") {
		return "", "", false
	}
	appSlug, workspaceSlug, ok = strings.Cut(label, slugSeparator)
	return appSlug, workspaceSlug, ok && appSlug != "" && workspaceSlug != ""
}
