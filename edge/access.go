package edge

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/entity/visit"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// visitCookie is the name of the cookie of a visit. Over HTTPS the name gets the prefix "__Host-", which binds the cookie to its host and to
// TLS.
const visitCookie = "atelier-visit"

// The prefixes of the tokens of visits. The tokens have the form of keys (package keys).
const (
	grantStart  = "atlgrant_"
	cookieStart = "atlvisit_"
)

var (
	errUnauthorized = entity.Errorf(entity.Unauthorized, "this app is private: launch it from its workspace")
	errForeign      = entity.Errorf(entity.Forbidden, "the request comes from another site")
	errLost         = entity.Errorf(entity.NotFound, "the visit has ended")
)

// access is a visit. Its principal had access at the time of the look-up. Requests share the value, which never changes.
type access struct{ visit *visitv1.Visit }

// verify finds the visit of the request's cookie. Errors: unauthorized, forbidden for a request of another site, rate_limited,
// unavailable.
func (e *Edge) verify(x *exchange) error {
	found, err := e.findVisit(x)
	switch {
	case err != nil:
		return err
	case isForeign(x.request):
		return errForeign
	}
	x.visitID, x.visitor = found.visit.GetId(), found.visit.GetPrincipal()
	return nil
}

// findVisit returns the visit of the request's cookie, which must be open for the host and the app. Errors: unauthorized, rate_limited,
// unavailable.
func (e *Edge) findVisit(x *exchange) (*access, error) {
	cookie, err := x.request.Cookie(e.cookie)
	if err != nil {
		return nil, errUnauthorized
	}
	id, hash, ok := parseToken(cookieStart, cookie.Value)
	if !ok {
		return nil, errUnauthorized
	}
	if !e.visits.Has(id) {
		if err := e.limitUnknown(e.address(x)); err != nil {
			return nil, err
		}
	}
	found, err := e.visits.Lookup(x.ctx, id)
	switch {
	case entity.HasCode(err, entity.NotFound):
		return nil, errUnauthorized
	case err != nil:
		return nil, err
	}
	v := found.visit
	if subtle.ConstantTimeCompare(v.GetCookieSha256(), hash) != 1 {
		if err := e.limitUnknown(e.address(x)); err != nil {
			return nil, err
		}
		return nil, errUnauthorized
	}
	if !found.opens(x.target, e.now().UnixMilli()) {
		return nil, errUnauthorized
	}
	return found, nil
}

// opens reports whether a visit gives access to an app at a time, in milliseconds since the Unix epoch.
func (a *access) opens(t *target, at int64) bool {
	v := a.visit
	return visit.IsOpen(v, at) && v.GetHost() == t.name && v.GetAppId() == t.appID && v.GetWorkspaceId() == t.workspaceID
}

// fetchAccess looks a visit up, and checks that its principal still has access to the apps of the workspace. If the principal has lost the
// access, fetchAccess ends the visit for good, so that the visit stays closed if the principal gets the access again. Errors: not_found.
func (e *Edge) fetchAccess(ctx context.Context, id string, _ *access) (*access, error) {
	v, err := entity.AskAsPlatform[*visitv1.Visit](ctx, e.o.Asker, entity.KindVisit, id, &visitv1.DescribeVisit{})
	if err != nil {
		return nil, err
	}
	if !visit.IsOpen(v, e.now().UnixMilli()) {
		return nil, errLost
	}
	err = e.checkPrincipal(ctx, v.GetPrincipal())
	if err == nil {
		_, err = e.o.Asker.Ask(ctx, entity.Command{
			Kind: entity.KindWorkspace, Identity: v.GetWorkspaceId(), Principal: v.GetPrincipal(),
			Message: &workspacev1.Authorize{Any: []string{entity.Apps}},
		})
	}
	if entity.HasCode(err, entity.NotFound, entity.Forbidden, entity.Unauthorized) {
		e.endVisit(ctx, id)
		return nil, errLost
	}
	return &access{v}, err
}

// endVisit ends a visit for good. A failure is only logged, because the edge already refuses the visit.
func (e *Edge) endVisit(ctx context.Context, id string) {
	if _, err := entity.AskAsPlatform[*wirev1.Done](ctx, e.o.Asker, entity.KindVisit, id, &visitv1.EndVisit{}); err != nil {
		e.log.Warn("cannot end a visit that has no access any more", "visit", id, "error", err)
	}
}

// checkPrincipal checks that the credential that launched the app is valid, that the account of the credential is enabled, and, for an
// impersonation, that the account of the operator is enabled and the operator still an internal admin. The credential of an OAuth client is
// its grant, which must have an access token that has not expired. Errors: not_found.
func (e *Edge) checkPrincipal(ctx context.Context, p *wirev1.Principal) error {
	if p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
		found, err := entity.AskAsPlatform[*grantv1.Grant](ctx, e.o.Asker, entity.KindGrant, p.GetCredentialId(), &grantv1.DescribeGrant{})
		if err != nil {
			return err
		}
		if !grant.IsUsable(found, e.now().UnixMilli()) || found.GetUserId() != p.GetUserId() {
			return errLost
		}
	} else {
		found, err := entity.AskAsPlatform[*credentialv1.Credential](ctx, e.o.Asker, entity.KindCredential, p.GetCredentialId(), &credentialv1.DescribeCredential{})
		if err != nil {
			return err
		}
		if !credential.IsUsable(found, e.now().UnixMilli()) || found.GetUserId() != p.GetUserId() {
			return errLost
		}
	}
	for _, id := range []string{p.GetUserId(), p.GetImpersonatorId()} {
		if id == "" {
			continue
		}
		account, err := entity.AskAsPlatform[*userv1.Standing](ctx, e.o.Asker, entity.KindUser, id, &userv1.DescribeStanding{})
		if err != nil {
			return err
		}
		if account.GetDisabled() || id == p.GetImpersonatorId() && !account.GetInternalAdmin() {
			return errLost
		}
	}
	return nil
}

// parseToken returns the id of the visit in a token, and the SHA-256 of the token's secret. It reports false if the text is no token with the
// prefix start.
func parseToken(start, text string) (visitID string, hash []byte, ok bool) {
	ulid, secret, ok := keys.Split(start, text)
	return visit.IDPrefix + ulid, keys.Hash(secret), ok
}

// isDocument reports whether a browser requests a page to show in a window, and not for a script or a frame. Only the browser of such a
// request can be redirected to the sign-in.
func isDocument(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || isUpgrade(r) {
		return false
	}
	if destination := r.Header.Get("Sec-Fetch-Dest"); destination != "" {
		return destination == "document" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
	_, authorized := r.Header["Authorization"]
	return !authorized && r.Header.Get("X-Requested-With") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// isForeign reports whether the page of another origin made a browser send the request, and the request is no navigation. The hosts of the
// edge can belong to one site; browsers then send the cookie, although it is SameSite=Lax.
func isForeign(r *http.Request) bool {
	navigates := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && !isUpgrade(r)
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		// Origin does not count: if the page has the policy no-referrer, browsers send "null" even to the origin of the page
		// (https://fetch.spec.whatwg.org/#append-a-request-origin-header).
		return false
	case "": // a program, an old browser, or a browser over HTTP: to other hosts than localhost, browsers send the header over HTTPS only
		origin := r.Header.Get("Origin")
		parsed, err := url.Parse(origin)
		return !navigates && origin != "" && (err != nil || !strings.EqualFold(parsed.Host, r.Host))
	default:
		return !navigates
	}
}

// isUpgrade reports whether a request asks for another protocol on its connection. An HTTP/1.0 request cannot ask for one (RFC 9110, section
// 7.8).
func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" && r.ProtoAtLeast(1, 1) }
