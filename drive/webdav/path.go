package webdav

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// splitPath takes a drive path out of a URL path as it was sent. Each segment is decoded by itself, so that an encoded
// slash cannot become a separator. A slash at the end is told and left out.
func splitPath(escaped, prefix string) (path string, slashed bool, err error) {
	rest, ok := cutPrefix(escaped, prefix)
	if !ok {
		return "", false, entity.Errorf(entity.NotFound, "no such file or folder")
	}
	if rest == "" || rest == "/" {
		return "", rest == "/", nil
	}
	rest, slashed = strings.CutSuffix(rest[1:], "/")
	segments := strings.Split(rest, "/")
	for i, segment := range segments {
		if segments[i], err = unescape(segment); err != nil {
			return "", false, err
		}
	}
	path = strings.Join(segments, "/")
	if err := entity.CheckPath(path); err != nil {
		return "", false, err
	}
	return path, slashed, nil
}

// cutPrefix compares decoded segments; what is left starts with a slash or is empty.
func cutPrefix(escaped, prefix string) (rest string, ok bool) {
	rest = escaped
	for want := range strings.SplitSeq(strings.TrimPrefix(prefix, "/"), "/") {
		if !strings.HasPrefix(rest, "/") {
			return "", false
		}
		end := strings.IndexByte(rest[1:], '/') + 1
		if end == 0 {
			end = len(rest)
		}
		if segment, err := unescape(rest[1:end]); err != nil || segment != want {
			return "", false
		}
		rest = rest[end:]
	}
	return rest, true
}

func unescape(segment string) (string, error) {
	decoded, err := url.PathUnescape(segment)
	if err != nil {
		return "", entity.Errorf(entity.InvalidRequest, "path has a broken percent escape")
	}
	if strings.Contains(decoded, "/") {
		return "", entity.Errorf(entity.InvalidRequest, "path has an encoded slash")
	}
	return decoded, nil
}

// href writes a drive path as the URL path that names it; a folder's ends with a slash.
func (c *call) href(path string, folder bool) string {
	var b strings.Builder
	b.WriteString(c.prefix)
	if path != "" {
		for segment := range strings.SplitSeq(path, "/") {
			b.WriteByte('/')
			b.WriteString(url.PathEscape(segment))
		}
	}
	if folder {
		b.WriteByte('/')
	}
	return b.String()
}

// reference takes a drive path out of a URL in a header, which must lie on this drive of this server.
func (c *call) reference(raw string) (path string, slashed bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false, entity.Errorf(entity.InvalidRequest, "a URL in a header cannot be read")
	}
	if u.Host != "" && !sameHost(u, c.r) {
		return "", false, errElsewhere
	}
	path, slashed, err = splitPath(u.EscapedPath(), c.prefix)
	if code(err) == entity.NotFound {
		return "", false, errElsewhere
	}
	return path, slashed, err
}

// sameHost compares without the default ports, which proxies add and clients leave out.
func sameHost(u *url.URL, r *http.Request) bool {
	return bareHost(u.Host) == bareHost(r.Host)
}

func bareHost(host string) string {
	host = strings.ToLower(host)
	for _, port := range []string{":80", ":443"} {
		host = strings.TrimSuffix(host, port)
	}
	return host
}
