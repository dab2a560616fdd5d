package edge

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/slug"
)

// maxHostName is the greatest length of a host name, in bytes (RFC 1035, section 2.3.4).
const maxHostName = 253

// Serves reports whether the Host of a request, which may have a port, is that of an app: a name below the edge host, whether or not
// the app exists, or a custom domain. All other names are the platform's, which operators may have given further names, as are addresses
// and single labels. A custom domain is looked up, with answers at most a second old; if that fails, the edge answers the request with
// the failure.
func (e *Edge) Serves(host string) bool {
	name, ok := hostName(host)
	switch {
	case !ok || name == e.platform:
		return false
	case strings.HasSuffix(name, e.suffix):
		return true
	case !isCustomName(name):
		return false
	}
	_, err := e.hosts.Lookup(e.ending, name)
	return !hasCode(err, entity.NotFound)
}

// isCustomName reports whether a name may be that of a custom domain.
func isCustomName(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	// Browsers take a name whose last label is a number for an address (URL standard, section 3.5).
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
