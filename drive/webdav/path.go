package webdav

import (
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// writtenPath returns the path of a URL as it was written. URL.EscapedPath encodes the decoded path again if the written one has a
// character that should have been encoded, so that an encoded slash would become a separator.
func writtenPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// splitPath returns the drive path of an escaped URL path below prefix, and whether a trailing slash follows it. It
// decodes each segment on its own, so that an encoded slash cannot become a separator. It returns NotFound if the URL
// path is not below prefix, and InvalidRequest if the drive path is invalid.
func splitPath(escaped, prefix string) (path string, trailingSlash bool, err error) {
	rest, ok := cutPrefix(escaped, prefix)
	if !ok {
		return "", false, entity.Errorf(entity.NotFound, "no such file or folder")
	}
	if rest == "" || rest == "/" {
		return "", rest == "/", nil
	}
	rest, trailingSlash = strings.CutSuffix(rest[1:], "/")
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
	return path, trailingSlash, nil
}

// cutPrefix removes prefix from an escaped URL path. It compares decoded segments. The rest is empty or begins with a slash.
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
		return "", entity.Errorf(entity.InvalidRequest, "the path has an invalid percent-encoding")
	}
	if strings.Contains(decoded, "/") {
		return "", entity.Errorf(entity.InvalidRequest, "the path has an encoded slash")
	}
	return decoded, nil
}

// href returns the escaped URL path of a drive path. It ends with a slash for a folder.
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

var errReference = entity.Errorf(entity.InvalidRequest,
	"a header must have an absolute path, or a URL with a host, without user information, a query and a fragment")

// parseReference returns the drive path of a URL in a header: an absolute path, or a URL of http or https with a host (RFC 4918, section
// 8.3), without user information, a query and a fragment, which name something else than the path. It returns InvalidRequest for other
// forms, and errOtherServer if the URL is not on this drive of this server. The scheme may be either one, because a proxy that ends
// TLS changes it.
func (c *call) parseReference(raw string) (path string, trailingSlash bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false, entity.Errorf(entity.InvalidRequest, "a header has a malformed URL")
	}
	switch {
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return "", false, errOtherServer
	case (u.Scheme == "") != (u.Host == ""), u.Opaque != "", u.User != nil, strings.ContainsAny(raw, "?#"):
		return "", false, errReference
	case u.Host != "" && !c.isThisServer(u.Host):
		return "", false, errOtherServer
	}
	path, trailingSlash, err = splitPath(writtenPath(u), c.prefix)
	if entity.HasCode(err, entity.NotFound) {
		return "", false, errOtherServer
	}
	return path, trailingSlash, err
}

// isThisServer reports whether host is the host of the request, or the host of the server's public URL. It ignores the
// default ports, which proxies add and clients omit.
func (c *call) isThisServer(host string) bool {
	host = bareHost(host)
	return host == bareHost(c.r.Host) || c.access.Host != "" && host == bareHost(c.access.Host)
}

func bareHost(host string) string {
	host = strings.ToLower(host)
	for _, port := range []string{":80", ":443"} {
		host = strings.TrimSuffix(host, port)
	}
	return host
}
