// Package edge serves the hosts of apps: it finds the app that a host name belongs to, verifies the access of the visitor, and passes the
// request to the process of the app.
//
// A request passes these steps, in this order:
//
//	host.go      Serves: chooses between the platform and the edge by the host name alone, before anything else of the request is read;
//	             a client that asks for too many unknown names gets 429
//	edge.go      ServeHTTP: request id, panics, metrics; log.go: the access log
//	target.go    the app of the host name, at most a second old: 404, 429
//	redeem.go    a grant in the address is exchanged for a cookie: 303 to the address without it
//	access.go    the visit of the cookie, and the access of its principal, at most a second old: 302 to the launch, 401, 403
//	edge.go      admit: the state of the app: 503; limits on concurrent requests: 429, 503
//	proxy.go     headers of the request; upstream.go: a connection to the process; headers of the response: 502, 503, 504
//	watch.go     a long request, stream or upgraded connection ends within a second after its access has ended
//
// The cached answers are a second old at most. On the member where a change is decided, Forget (forget.go) removes the answers that the
// change concerns.
//
// # The way of a visitor to a private app
//
//  1. A browser requests a document of the app, without a cookie. refuse redirects it to the launch of the app on the platform, with the
//     host and the path.
//  2. The platform sends a person without a session to the sign-in page, and back (api.RefuseLaunch).
//  3. The operation launch calls Launcher.Launch, which authorizes the person, records a visit (package entity/visit), and returns the
//     address of the app with the secret of the visit's grant in the parameter service_access.
//  4. The browser follows. redeem exchanges the grant for the cookie of the visit, and redirects to the address without the grant.
//  5. From now on each request has the cookie. verify finds the visit, and asks whether the credential of the launch is still valid and not
//     expired (of an OAuth client: any access token of its grant), the account still enabled, and the person still a member. A refusal ends
//     the visit for good.
//
// # Untrusted apps
//
// Apps are written by anybody. The edge removes the credentials of the platform (cookies, keys, grants) from the requests to apps. From the
// responses of apps it removes the headers that would affect the platform or other apps, such as cookies for other hosts or with the
// platform's names (cookies.go). Browsers consider the hosts of apps one site if the hosts share a registrable domain. Therefore the cookie
// gives no access to a request that a page of another origin makes the browser send, unless the request is a navigation (isForeign). A
// navigation may load a page into a frame: the responses of a private app forbid browsers to show them in a frame, except in frames of the
// app itself and of the platform (guardResponse).
package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/cache"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// Dialer connects to apps.
type Dialer interface {
	// Dial connects to the present process of an app. If the process is starting, it waits until ctx ends. Errors: unavailable, with the
	// reason "starting", "stopped" if the app does not run, or "failed" if its process has ended unexpectedly.
	Dial(ctx context.Context, workspaceID, appID string) (net.Conn, error)
}

// Options are the dependencies and settings of the edge. Asker, Dialer, PublicURL and EdgeHost are required.
type Options struct {
	Asker  entity.Asker
	Dialer Dialer
	// Clock is the clock of caches, visits and limits; nil: time.Now.
	Clock      func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// NewID returns a new id: prefix, followed by a lower-case ULID.
	NewID func(prefix string) string
	// PublicURL is the address of the platform. Apps are served over its scheme.
	PublicURL *url.URL
	// EdgeHost is the part that the standard addresses of apps end with, in lower case, with its port if it has one.
	EdgeHost string
	// TrustedProxies are the networks of trusted proxies; X-Forwarded-For is ignored from all other peers.
	TrustedProxies []netip.Prefix
	Limits         Limits
}

// Limits bounds the resources that clients and apps can use. A field of 0 stands for the default, which the comment of the field names.
type Limits struct {
	// Requests is the number of slots for the requests to all apps, which workspaces share; 9,000. It is lower than the number of
	// connections of the server, so that connections to the platform remain possible.
	Requests int
	// AppRequests is the maximum number of concurrent requests to one app; 1,024. ClientRequests is the maximum number of concurrent
	// requests of one client to one app; 256.
	AppRequests, ClientRequests int
	// Upgrades is the maximum number of open upgraded connections to all apps together; 20,000.
	Upgrades int
	// Connections is the number of open connections to all apps above which the edge closes the idle connections; 16,384.
	Connections int
	// AddressBurst and AddressInterval limit the look-ups of hosts, visits and grants that are not cached, for each address of a client.
	// AddressBurst is the number of look-ups at once; 100. AddressInterval is the time until a further look-up is allowed; 20 ms.
	AddressBurst    int
	AddressInterval time.Duration
	// AddressLookups is the maximum number of concurrent look-ups of unknown hosts for each address of a client; 32.
	AddressLookups int
	// HalfClosedTime is the time without traffic after which a request ends if its client has closed the sending side, because the client
	// may have left; 10 s.
	HalfClosedTime time.Duration
	// HeaderTime is the time in which an app must begin its response once it has the whole request; 2 minutes. IdleTime is the time without
	// traffic after which a request ends; 1 hour. A request without a begun response ends later if the app has more time for the response
	// (Edge.idleTime).
	HeaderTime, IdleTime time.Duration
	// GraceTime is how long a request continues while its access cannot be verified; 15 s.
	GraceTime time.Duration
	// HeaderBytes bounds the head of a response of an app; 256 KiB.
	HeaderBytes int64
	// PageWait is how long a document request waits for an app that starts, before the response is a page that says so; 1 s.
	// StartWait is how long any other request waits for an app that starts; 20 s.
	PageWait, StartWait time.Duration
}

// Edge serves the hosts of apps. It is safe for concurrent use.
type Edge struct {
	o   Options
	now func() time.Time
	// began is the time at which the edge began, with its monotonic reading (passed).
	began time.Time
	log   *slog.Logger
	// scheme is the URL scheme of every app address. suffix is "." and EdgeHost without its port.
	scheme, suffix string
	cookie         string
	platform       string
	// frames is the policy of private apps: only their own pages and the platform may show them in a frame.
	frames    string
	hosts     *cache.Cache[*target]
	visits    *cache.Cache[*access]
	addresses limit.ClientBuckets
	clients   limit.ClientCounters
	// requests are the slots of concurrent requests, by workspace.
	requests  *limit.Shares[string]
	upstreams upstreams
	proxy     *httputil.ReverseProxy
	lasting   registry
	// halfClosed has the requests that end when another request needs a slot.
	halfClosed *halfClosed
	changes    *changes
	checks     *checks
	metrics    *metrics
	upgrades   atomic.Int64
	// isDraining is set by Drain.
	isDraining atomic.Bool
	ending     context.Context
	end        context.CancelFunc
	// rounds counts the watcher and its checks.
	rounds sync.WaitGroup
}

// The bounds of the caches, in entries.
const (
	maxHosts  = 50_000
	maxVisits = 100_000
)

var (
	errNoOptions  = errors.New("edge: Asker, Dialer, NewID, PublicURL and EdgeHost are required")
	errNotFound   = entity.Errorf(entity.NotFound, "no app has this address")
	errMethod     = entity.Errorf(entity.MethodNotAllowed, "apps cannot be requested with this method")
	errTarget     = entity.Errorf(entity.InvalidRequest, "the target of the request is no path")
	errOverloaded = &entity.Error{Code: entity.Unavailable, Message: "the app has too many requests at the moment", RetryAfter: time.Second}
	errShare      = &entity.Error{Code: entity.RateLimited, Message: "the apps of this workspace have too many concurrent requests", RetryAfter: time.Second}
	errLookups    = &entity.Error{Code: entity.RateLimited, Message: "too many concurrent requests for unknown hosts from this address", RetryAfter: time.Second}
	errUpgrades   = &entity.Error{Code: entity.Unavailable, Message: "the server has too many open connections", RetryAfter: 5 * time.Second}
)

// New returns an edge. The caller must call Close after the last use of the edge. Errors: a required option is missing.
func New(o Options) (*Edge, error) {
	if o.Asker == nil || o.Dialer == nil || o.NewID == nil || o.PublicURL == nil || o.EdgeHost == "" {
		return nil, errNoOptions
	}
	o = o.withDefaults()
	name, _ := hostName(o.EdgeHost)
	e := &Edge{
		o: o, now: o.Clock, began: time.Now(), log: o.Log, scheme: o.PublicURL.Scheme, suffix: "." + name, cookie: visitCookie,
		addresses: limit.NewClientBuckets(), clients: limit.NewClientCounters(), lasting: newRegistry(), halfClosed: newHalfClosed(),
		changes: newChanges(), checks: newChecks(),
	}
	if e.scheme == "https" {
		e.cookie = "__Host-" + visitCookie
	}
	e.platform, _ = hostName(o.PublicURL.Host)
	e.frames = "frame-ancestors 'self' " + e.scheme + "://" + o.PublicURL.Host
	var err error
	if e.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	}
	e.requests = limit.NewShares[string](o.Limits.Requests)
	if err = e.requests.Register(o.Registerer, "app_requests"); err != nil {
		return nil, err
	}
	e.hosts = cache.New(e.now, maxHosts, e.metrics.lookups.Of("host"), e.fetchTarget)
	e.visits = cache.New(e.now, maxVisits, e.metrics.lookups.Of("visit"), e.fetchAccess)
	e.proxy = e.newProxy()
	e.ending, e.end = context.WithCancel(context.Background())
	e.rounds.Go(e.watch)
	return e, nil
}

// passed returns the time since the edge began, more than 0. It is monotonic, so that no pause lasts longer after the machine's clock was ahead.
func (e *Edge) passed() time.Duration { return max(time.Since(e.began), 1) }

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	l := &o.Limits
	for _, n := range []struct {
		of    *int
		value int
	}{{&l.Requests, 9000}, {&l.AppRequests, 1024}, {&l.ClientRequests, 256}, {&l.Upgrades, 20_000}, {&l.Connections, 16_384}, {&l.AddressBurst, 100}, {&l.AddressLookups, 32}} {
		if *n.of == 0 {
			*n.of = n.value
		}
	}
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{
		{&l.AddressInterval, 20 * time.Millisecond}, {&l.HeaderTime, 2 * time.Minute}, {&l.IdleTime, time.Hour},
		{&l.HalfClosedTime, 10 * time.Second}, {&l.GraceTime, 15 * time.Second},
		{&l.PageWait, time.Second}, {&l.StartWait, 20 * time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	if l.HeaderBytes == 0 {
		l.HeaderBytes = 256 << 10
	}
	return o
}

// Drain ends the event streams of all apps, and every event stream that begins later: a server that shuts down waits for its requests, and
// event streams would last until its deadline. Their clients connect again. All other requests and the upgraded connections continue until
// Close.
func (e *Edge) Drain() {
	e.isDraining.Store(true)
	e.lasting.end(errEnded, func(x *exchange) bool { return x.isStream.Load() })
}

// Close ends all requests and upgraded connections, and waits for the watcher.
func (e *Edge) Close() {
	e.end()
	e.rounds.Wait()
	e.lasting.end(errEnded, func(*exchange) bool { return true })
	e.upstreams.close()
}

// ServeHTTP serves a request for the host of an app.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, request: r, started: time.Now(), id: answer.RequestID(r, e.o.NewID), strict: w.Header()[strictTransport]}
	delete(w.Header(), strictTransport) // guardResponse or guard sets the header again, unless the app sends its own
	e.metrics.inFlight.Inc()
	defer e.finish(x)
	if err := e.serve(x); err != nil {
		e.refuse(x, err)
	}
}

// finish is deferred by ServeHTTP: it recovers from a panic, frees the slots of the request, and records the request.
func (e *Edge) finish(x *exchange) {
	p := recover()
	if answer.ReportPanic(e.log, "edge panicked", x.id, p) && x.status == 0 {
		e.refuse(x, entity.Errorf(entity.Internal, "panic"))
		p = nil
	}
	e.lasting.remove(x)
	x.release()
	e.halfClosed.remove(x)
	e.metrics.inFlight.Dec()
	e.metrics.observe(x, time.Since(x.started))
	e.logAccess(x)
	if p != nil {
		panic(http.ErrAbortHandler) // the client must not take the response for complete
	}
}

// serve serves a request, or returns the error to answer with.
func (e *Edge) serve(x *exchange) error {
	defer e.attend(x)()
	r := x.request
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		return errMethod
	case !strings.HasPrefix(r.URL.Path, "/"):
		return errTarget
	}
	if err := e.findTarget(x); err != nil {
		return err
	}
	query, grant := cutGrant(r.URL.RawQuery)
	x.query = query
	if grant != "" && r.Method == http.MethodGet {
		return e.redeem(x, grant)
	}
	if !x.target.public {
		if err := e.verify(x); err != nil {
			return err
		}
	}
	if err := e.admit(x); err != nil {
		return err
	}
	e.lasting.add(x)
	r = r.WithContext(x.ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &trackedBody{body: r.Body, x: x}
	}
	e.proxy.ServeHTTP(x, r)
	if x.backend == nil && r.ProtoMajor == 1 { // in HTTP/2, the end of the response ends the upload
		x.Flush() // the client need not wait for the end of its upload
		x.drain()
	}
	return nil
}

// admit refuses a request if the app does not serve, or if a limit on concurrent requests is reached and no half-closed request can be
// ended in favor of the new request (makeRoom). Otherwise it counts the request until x.release is called. Errors: unavailable with the
// state of the app as its reason, rate_limited.
func (e *Edge) admit(x *exchange) error {
	if err := x.target.refusal(); err != nil {
		return err
	}
	x.upgrade = isUpgrade(x.request)
	if x.upgrade && e.upgrades.Load() >= int64(e.o.Limits.Upgrades) { // early; countUpgrade enforces the limit
		return errUpgrades
	}
	for {
		rivals, err := e.count(x)
		if err == nil || !e.makeRoom(rivals) {
			return err
		}
	}
}

// count counts a request. If a limit is reached, it returns an error, and a function that reports which requests count against this limit.
func (e *Edge) count(x *exchange) (rivals func(*exchange) bool, err error) {
	client, ok := e.clients.Acquire(limit.Client{Address: e.address(x), Subject: x.target.appID}, e.o.Limits.ClientRequests)
	if !ok {
		err = &entity.Error{Code: entity.RateLimited, Message: "too many concurrent requests from this address", RetryAfter: time.Second}
		return func(o *exchange) bool { return o.client.Overlaps(client) }, err
	}
	u := e.upstreams.get(e, x.target)
	if u.active.Add(1) > int64(e.o.Limits.AppRequests) {
		u.active.Add(-1)
		client.Release()
		return func(o *exchange) bool { return o.upstream == u }, errOverloaded
	}
	if err := e.requests.Acquire(x.target.workspaceID); err != nil {
		u.active.Add(-1)
		client.Release()
		if errors.Is(err, limit.ErrShare) {
			return func(o *exchange) bool { return o.target.workspaceID == x.target.workspaceID }, errShare
		}
		return func(*exchange) bool { return true }, errOverloaded
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.client, x.upstream, x.slots, x.isCounted = client, u, e.requests, true
	return nil, nil
}

// address returns the address of the client.
func (e *Edge) address(x *exchange) netip.Addr {
	if !x.address.IsValid() {
		x.address = limit.ClientAddress(x.request, e.o.TrustedProxies)
	}
	return x.address
}

// limitUnknown counts a look-up that no cache answers, for the address of the client. Errors: rate_limited.
func (e *Edge) limitUnknown(client netip.Addr) error {
	allowed := limit.Allowance{Burst: e.o.Limits.AddressBurst, Interval: e.o.Limits.AddressInterval}
	if wait := e.addresses.Take(e.now(), limit.Client{Address: client}, allowed); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests from this address", RetryAfter: wait}
	}
	return nil
}
