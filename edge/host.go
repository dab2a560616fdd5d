package edge

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/limit"
)

// maxHostName is the greatest length of a host name, in bytes (RFC 1035, section 2.3.4).
const maxHostName = 253

// Serves reports whether a request is for an app. It decides by Host alone, which may have a port. A name below the edge host is the name of
// an app, whether or not the app exists, and so is a custom domain. All other names belong to the platform: operators may have given it
// further names. IP addresses and single labels belong to the platform too. Serves looks a custom domain up, with an answer that is at most
// a second old. If the look-up fails, or the client has asked for too many unknown names, Serves returns true, and ServeHTTP answers with
// the failure.
func (e *Edge) Serves(r *http.Request) bool {
	name, ok := hostName(r.Host)
	switch {
	case !ok || name == e.platform:
		return false
	case strings.HasSuffix(name, e.suffix):
		return true
	case !isCustomName(name):
		return false
	}
	// The client may close its sending side after the request (attend). The cache bounds the time of the look-up.
	_, err := e.lookUpHost(context.WithoutCancel(r.Context()), name, func() netip.Addr { return limit.ClientAddress(r, e.o.TrustedProxies) })
	return !entity.HasCode(err, entity.NotFound)
}

// lookUpHost returns the app of a host name, at most a second old. For a name that the cache does not know, it calls client, and limits both
// the rate and the concurrency of the look-ups of this client, so that one client cannot occupy the look-ups of all clients.
// Errors: not_found, rate_limited, unavailable.
func (e *Edge) lookUpHost(ctx context.Context, name string, client func() netip.Addr) (*target, error) {
	if e.hosts.Knows(name) {
		return e.hosts.Lookup(ctx, name)
	}
	of := client()
	if err := e.limitUnknown(of); err != nil {
		return nil, err
	}
	pending, ok := e.clients.Acquire(limit.Client{Address: of}, e.o.Limits.AddressLookups)
	if !ok {
		return nil, errLookups
	}
	defer pending.Release()
	// The look-up does not end when the client leaves, so that the client cannot start more look-ups than are counted.
	return e.hosts.Lookup(e.ending, name)
}

// isCustomName reports whether a name may be a custom domain.
func isCustomName(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	// Browsers take a name with a number as its last label for an address (URL standard, section 3.5).
	return dot > 0 && strings.Trim(name[dot+1:], "0123456789") != "" && !strings.HasSuffix(name, ".localhost")
}

// standardName returns the slugs in a name below the edge host. It reports false for other names.
func (e *Edge) standardName(name string) (appSlug, workspaceSlug string, ok bool) {
	appSlug, workspaceSlug, ok = app.SplitStandardHost(name, e.suffix[1:])
	// Names that no app can have activate no entity.
	return appSlug, workspaceSlug, ok && slug.CheckForm(appSlug) == nil && slug.Check(workspaceSlug) == nil
}

// hostName returns a host in lower case, without its port and its trailing dot. It reports false for any other text, such as an IPv6
// address.
func hostName(host string) (string, bool) {
	name := host
	if colon := strings.IndexByte(name, ':'); colon >= 0 {
		if strings.Trim(name[colon+1:], "0123456789") != "" {
			return "", false
		}
		name = name[:colon]
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > maxHostName {
		return "", false
	}
	capital, label := false, 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = -1
		case c >= 'A' && c <= 'Z':
			capital = true
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if capital {
		name = strings.ToLower(name)
	}
	return name, true
}
