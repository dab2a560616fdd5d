package edge

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/visit"
	"github.com/atelier-run/atelier/keys"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
)

// GrantParameter is the name of the query parameter that carries the grant of a visit in an address of an app.
const GrantParameter = "service_access"

// redeem exchanges the grant in the address for a cookie, and redirects to the address without the grant. If the grant is not valid and the
// request has no valid cookie, a private app answers unauthorized, so that a document request is redirected to a new launch. Errors:
// unauthorized, rate_limited, unavailable.
func (e *Edge) redeem(x *exchange, grant string) error {
	if err := e.limitUnknown(e.address(x)); err != nil {
		return err
	}
	redeemed, cookie, err := e.exchangeGrant(x, grant)
	switch {
	case err == nil:
		e.endPrevious(x, redeemed.GetId())
		e.visits.Invalidate(redeemed.GetId())
		x.outcome = outcomeRedeemed
		http.SetCookie(x, &http.Cookie{
			Name: e.cookie, Value: cookie, Path: "/", HttpOnly: true, Secure: e.scheme == "https", SameSite: http.SameSiteLaxMode,
			MaxAge: int(visit.CookieTime / time.Second),
		})
	case !entity.HasCode(err, entity.Unauthorized, entity.NotFound, entity.InvalidRequest):
		return err
	case !x.target.public:
		if _, err := e.findVisit(x); err != nil {
			return err
		}
	}
	e.redirect(x, http.StatusSeeOther, e.addressOf(x))
	return nil
}

// exchangeGrant redeems a grant for the app of the request. Errors: unauthorized, unavailable.
func (e *Edge) exchangeGrant(x *exchange, grant string) (_ *visitv1.Visit, cookie string, _ error) {
	id, hash, ok := parseToken(grantStart, grant)
	if !ok {
		return nil, "", errUnauthorized
	}
	cookie, cookieHash := keys.New(cookieStart, id)
	redeemed, err := entity.AskAsPlatform[*visitv1.Visit](x.ctx, e.o.Asker, entity.KindVisit, id, &visitv1.RedeemVisit{
		GrantSha256: hash, Host: x.target.name, CookieSha256: cookieHash,
	})
	if err != nil {
		return nil, "", err
	}
	if redeemed.GetAppId() != x.target.appID || redeemed.GetWorkspaceId() != x.target.workspaceID {
		e.endVisit(x.ctx, id) // the address belongs to a different app by now
		return nil, "", errUnauthorized
	}
	return redeemed, cookie, nil
}

// endPrevious ends the visit of the cookie that the new cookie replaces, unless both cookies are of the same visit.
func (e *Edge) endPrevious(x *exchange, newID string) {
	if previous, err := e.findVisit(x); err == nil && previous.visit.GetId() != newID {
		e.endVisit(x.ctx, previous.visit.GetId())
		e.visits.Invalidate(previous.visit.GetId())
	}
}

// addressOf returns the address of a request without the grant. It has the scheme and the host, because browsers would take a path that
// begins with two slashes for another host.
func (e *Edge) addressOf(x *exchange) string {
	address := e.scheme + "://" + x.request.Host + x.request.URL.EscapedPath()
	if x.query != "" {
		address += "?" + x.query
	}
	return address
}

// launchAddress returns the address on the platform that launches the app of a request and then redirects to the path of the request. It
// replaces a path that the launch would refuse by "/".
func (e *Edge) launchAddress(x *exchange) string {
	path := x.request.URL.EscapedPath()
	if x.query != "" {
		path += "?" + escapeQuery(x.query)
	}
	if strings.HasPrefix(path, "//") {
		path = "/." + path // the same path for browsers, but they cannot read it as a host (URL standard, section 4.5)
	}
	if CheckPath(path) != nil {
		path = "/"
	}
	at := *e.o.PublicURL
	at.Path = strings.TrimSuffix(at.Path, "/") + "/v1/ws/" + x.target.workspaceSlug + "/apps/" + x.target.appSlug + "/launch"
	at.RawQuery = url.Values{"host": {x.target.name}, "path": {path}}.Encode()
	return at.String()
}

// escapeQuery escapes the characters that browsers send unescaped in a query but CheckPath refuses: backslashes, control characters and spaces,
// and characters beyond ASCII.
func escapeQuery(query string) string {
	var escaped strings.Builder
	for _, b := range []byte(query) {
		if b == '\\' || b <= ' ' || b >= 0x7f {
			fmt.Fprintf(&escaped, "%%%02X", b)
			continue
		}
		escaped.WriteByte(b)
	}
	return escaped.String()
}

// cutGrant returns a query without its grants, and the first of them. The other parameters are unchanged.
func cutGrant(query string) (rest, grant string) {
	if !strings.Contains(query, GrantParameter) && !strings.ContainsRune(query, '%') {
		return query, ""
	}
	var kept []string
	removed := false
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(key); err != nil || name != GrantParameter {
			kept = append(kept, pair)
			continue
		}
		removed = true
		if value, err := url.QueryUnescape(value); err == nil && grant == "" {
			grant = value
		}
	}
	if !removed {
		return query, ""
	}
	return strings.Join(kept, "&"), grant
}
