package http

import (
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// presented is the key of a request: in the Authorization header or, without one, the browser's cookie. A session's key
// is good in the cookie alone, so that no page can use one that it came by.
func (c *call) presented() (key, error) {
	const session = wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION
	if _, ok := c.r.Header["Authorization"]; ok {
		k, ok := parseKey(authorization(c.r, c.w.overDrive()))
		if !ok || k.kind == session {
			return key{}, errUnauthorized
		}
		return k, nil
	}
	cookie, err := c.r.Cookie(c.server.cookieName())
	if err != nil {
		return key{}, errUnauthorized
	}
	k, ok := parseKey(cookie.Value)
	if !ok || k.kind != session {
		return key{}, errUnauthorized
	}
	return k, c.sameOrigin()
}

// sameOrigin refuses changes that another site's page has a browser send. Requests with a key of their own are nobody's
// but their sender's, and are not held against it.
func (c *call) sameOrigin() error {
	if err := c.server.crossOrigin.Check(c.r); err != nil {
		return entity.Errorf(entity.Forbidden, "the request comes from another site")
	}
	return nil
}

// cookieName has the prefix that binds a cookie to its host and to TLS, where there is TLS.
func (s *Server) cookieName() string {
	if s.options.PublicURL.Scheme == "https" {
		return "__Host-atelier"
	}
	return "atelier"
}

// authorization is the key in the header, if any; basic also admits it as the password of HTTP Basic.
func authorization(r *http.Request, basic bool) string {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return ""
	}
	if _, password, ok := r.BasicAuth(); ok {
		if basic {
			return password
		}
		return ""
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(key, " ")
}
