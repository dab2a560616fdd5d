package edge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

var (
	errGateway = &entity.Error{Code: entity.Unavailable, Reason: reasonFailed, Message: "the app has closed the connection or sent no valid response", RetryAfter: retryTime}
	errBody    = entity.Errorf(entity.InvalidRequest, "the body of the request is malformed")
)

// reasonTimeout is the reason of timeoutError.
const reasonTimeout = "timeout"

// errGone says that the client has left before the end of the exchange.
var errGone = errors.New("the client has left")

// flushTime is the time after which the edge flushes the received part of a response body of known length. httputil flushes event streams and
// bodies of unknown length at once. A body of known length that arrives in one piece together with the head is sent in one write.
const flushTime = 10 * time.Millisecond

// newProxy returns the proxy for all apps. The exchange in the context of a request has the app of the request.
func (e *Edge) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: e.rewrite, Transport: e, ModifyResponse: e.guardResponse, ErrorHandler: e.failProxy,
		FlushInterval: flushTime, BufferPool: &buffers{}, ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}

// rewrite makes the request for the app. The request has the public host, the address of the client, and the scheme. rewrite removes the
// headers that could claim another host, address or scheme (isForwarding), and the credentials of the platform. httputil has removed the
// headers of the connection.
func (e *Edge) rewrite(p *httputil.ProxyRequest) {
	x := p.In.Context().Value(exchangeKey{}).(*exchange)
	out, h := p.Out, p.Out.Header
	out.URL.Scheme, out.URL.Host, out.URL.User = "http", "app", nil
	out.URL.RawQuery = x.query // as the client has sent it: httputil has removed the parameters that it cannot parse
	out.Host = p.In.Host
	for name := range h {
		if isForwarding(name) {
			delete(h, name)
		}
	}
	stripCookies(h)
	stripKeys(h)
	stripUpgrade(p.In, h)
	e.address(x)
	if x.address.IsValid() {
		h["X-Forwarded-For"] = []string{x.address.String()}
	}
	h["X-Forwarded-Host"] = []string{p.In.Host}
	h["X-Forwarded-Proto"] = []string{e.scheme}
	h["X-Request-Id"] = []string{x.id}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // net/http would add the name of its own client
	}
}

// stripUpgrade removes the headers that ask for another protocol if the request is no valid upgrade (isUpgrade), or if the protocol is HTTP/2
// (RFC 7540, section 3.2). After an upgrade to HTTP/2, the app would get the further requests of the connection unchanged, with the headers
// that rewrite removes. A server may ignore the headers that ask for another protocol.
func stripUpgrade(r *http.Request, h http.Header) {
	if !isUpgrade(r) || containsFold(strings.Join(h["Upgrade"], ","), "h2c") {
		delete(h, "Upgrade")
		delete(h, "Connection")
	}
	delete(h, "Http2-Settings")
}

// originHeaders has the names, in lower case, of the headers in which various proxies send the address, host, scheme or path of the original
// request. It also has Proxy, which CGI programs mistake for the setting of their HTTP proxy (CVE-2016-5385).
var originHeaders = map[string]bool{
	"forwarded": true, "x-real-ip": true, "x-rewrite-url": true, "true-client-ip": true, "x-client-ip": true, "client-ip": true,
	"x-cluster-client-ip": true, "cf-connecting-ip": true, "fastly-client-ip": true, "x-host": true, "x-scheme": true, "x-url-scheme": true,
	"front-end-https": true, "proxy": true,
	"x-original-url": true, "x-original-uri": true, "x-original-host": true, "x-original-for": true, "x-original-proto": true,
	"x-original-scheme": true, "x-original-port": true, "x-original-prefix": true, "x-original-method": true, "x-original-path": true,
	"x-original-ip": true, "x-original-remote-addr": true, "x-original-forwarded-for": true, "x-original-forwarded-host": true,
	"x-original-forwarded-proto": true,
}

// isForwarding reports whether a header is in originHeaders or begins with X-Forwarded. It treats an underscore as a hyphen, as some programs
// do.
func isForwarding(name string) bool {
	if name == "" || strings.IndexByte("CFPTX", name[0]) < 0 {
		return false // most headers; net/http has made the first letter a capital
	}
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return originHeaders[name] || strings.HasPrefix(name, "x-forwarded")
}

// strictTransport is the name of the header that makes browsers use HTTPS for a host (RFC 6797). The header has no effect on other hosts;
// therefore an app may send its own value.
const strictTransport = "Strict-Transport-Security"

// guardResponse removes from the head of a response the headers and cookies that would affect other hosts, and adds the headers that protect
// the visitors of the app.
// Errors: errStatus, errUnasked, errUpgrades.
func (e *Edge) guardResponse(r *http.Response) error {
	if r.StatusCode < http.StatusOK && r.StatusCode != http.StatusSwitchingProtocols {
		return errStatus
	}
	x := r.Request.Context().Value(exchangeKey{}).(*exchange)
	h := r.Header
	guardCookies(h, x.target.name)
	delete(h, "Alt-Svc") // the app does not decide which server has its address
	guardClearing(h)
	h["X-Request-Id"] = []string{x.id}
	if !x.target.indexed() {
		h["X-Robots-Tag"] = noIndex
	}
	if !x.target.public { // an additional policy: browsers enforce it together with the policies of the app
		h["Content-Security-Policy"] = append(h["Content-Security-Policy"], e.frames)
	}
	if _, ok := h[strictTransport]; !ok && x.strict != nil {
		h[strictTransport] = x.strict
	}
	if _, ok := h["Content-Type"]; !ok {
		x.Header()["Content-Type"] = nil // net/http would guess one from the body, which may make a page of inert content
	}
	x.outcome = outcomeProxied
	if r.StatusCode == http.StatusSwitchingProtocols {
		return e.countUpgrade(x, r)
	}
	r.Body = &guardedBody{r.Body, r}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		x.isStream.Store(true)
		if e.isDraining.Load() { // read after isStream is set: Drain sets isDraining before it reads isStream, so that one of the two ends the stream
			x.stop(errEnded)
		}
	}
	return nil
}

// guardedBody removes from the trailer, which follows the body, the fields that guardResponse removes or sets in the head.
type guardedBody struct {
	io.ReadCloser
	response *http.Response
}

func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		for name := range b.response.Trailer {
			if guardedTrailers[name] {
				b.response.Trailer[name] = nil // the name may be announced
			}
		}
	}
	return n, err
}

var guardedTrailers = map[string]bool{
	"Set-Cookie": true, "Clear-Site-Data": true, "Alt-Svc": true, strictTransport: true, "Content-Security-Policy": true, "X-Robots-Tag": true,
	"X-Request-Id": true,
}

// errStatus is returned for a status below 100, which is invalid (RFC 9110, section 15), and which net/http cannot send. An informational
// status does not reach guardResponse, because net/http passes informational responses on by itself.
var errStatus = errors.New("the app has sent a response with an invalid status")

var errUnasked = errors.New("the app has changed the protocol of a connection without a request to")

// countUpgrade counts an upgraded connection until it is closed. It returns errUpgrades if too many upgraded connections are open; admit has
// checked the limit, but requests that were admitted at the same time may have reached it. It returns errUnasked if the client did not ask
// for another protocol: the app would get the connection of the client, with further requests of the client, or of other clients behind the
// same proxy.
func (e *Edge) countUpgrade(x *exchange, r *http.Response) error {
	conn, ok := r.Body.(io.ReadWriteCloser)
	if !ok || !x.upgrade || !isUpgrade(r.Request) {
		return errUnasked
	}
	if e.upgrades.Add(1) > int64(e.o.Limits.Upgrades) {
		e.upgrades.Add(-1)
		return errUpgrades
	}
	e.metrics.upgrades.Inc()
	x.backend = &upgraded{ReadWriteCloser: conn, closed: func() {
		e.upgrades.Add(-1)
		e.metrics.upgrades.Dec()
	}}
	r.Body = x.backend
	return nil
}

type upgraded struct {
	io.ReadWriteCloser
	once   sync.Once
	closed func()
}

func (u *upgraded) Close() error {
	u.once.Do(u.closed)
	return u.ReadWriteCloser.Close()
}

// CloseWrite closes the sending side towards the app, after the client has closed its sending side.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.ReadWriteCloser.Close()
}

// failProxy answers a request that got no response from the app.
func (e *Edge) failProxy(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	x.outcome = outcomeProxied // refuse sets another outcome
	var dialed dialError
	var network net.Error
	cause, broken := x.stopped(), x.bodyError()
	switch {
	case context.Cause(x.ctx) == errGone, cause == nil && broken == errGone:
		x.outcome = outcomeGone
		panic(http.ErrAbortHandler) // no client reads a response
	case cause == errIdle:
		err = timeoutError(x.generation)
	case cause != nil:
		x.outcome = outcomeEnded
		err = errUnauthorized
	case broken != nil:
		err = errBody
	case errors.As(err, &dialed):
		err = e.dialRefusal(dialed.error)
	case errors.Is(err, errUpgrades):
	case errors.As(err, &network) && network.Timeout():
		err = timeoutError(x.generation)
	default:
		e.log.Debug("an app gave no response", "request", x.id, "app", x.target.appID, "error", err)
		err = errGateway
	}
	e.refuse(x, err)
}

// timeoutError returns the error for a request if the app has not begun the response in time. The message names the setting that determines
// the time.
func timeoutError(g *generation) *entity.Error {
	setting := "the setting app-response of the server; the app may have its own (atelier app runtime)"
	if g.headerTime != 0 {
		setting = "the setting responseTimeoutSeconds of its runtime (atelier app runtime)"
	}
	text := "the app did not begin its response within " + g.ResponseHeaderTimeout.String() + ", which is " + setting
	return &entity.Error{Code: entity.Unavailable, Reason: reasonTimeout, Message: text, RetryAfter: retryTime}
}

// dialRefusal returns the error for the client if the edge could not connect to a process of the app.
func (e *Edge) dialRefusal(err error) error {
	switch reasonOf(err) {
	case reasonStarting, reasonStopped:
		return refusals[stateStarting]
	case reasonFailed:
		return notServing(reasonFailed, "the app does not run at the moment")
	}
	if entity.HasCode(err, entity.NotFound) {
		return errNotFound
	}
	return errGateway
}

// buffers is a pool of the buffers in which bodies are copied.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if found, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return found[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
