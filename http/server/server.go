// Package server is the core of the HTTP API: it takes a request from the network to the handler of its operation.
//
// A request passes, in this order:
//
//	listener.go      the limits on connections and on unfinished heads
//	server.go        the request's id, panics, metrics, the access log
//	route.go         path and method: 404 and 405
//	authenticate.go  the credential: 401; its rate: 429
//	access.go        the scope: 404 for a caller who is no member, 403 for a member who lacks the capability
//	call.go          the input: 400, 413, 415; then the command to the entity and the encoding of its reply
//
// so that a caller without access learns nothing of what validates. Entities refuse the commands that are sent to them: an
// *entity.Error becomes the answer, with the status that one table (errors.go) gives its code.
//
// The packages beside this one provide the handlers, one type a resource, and the routes to them. Handlers are functions
// from an input to an output, which Answer adapts. Two kinds of operations have functions of their own: StreamTo for streams
// of server-sent events, which last, and TransferTo for requests on a drive, whose bodies have no bound.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
)

// Asker sends commands to entities.
type Asker interface {
	// Ask sends a command to the entity that it names, wherever it lives, and returns its reply. Refusals are
	// *entity.Error; a reply that changed something is durable.
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
	// Settle waits until every reaction to what the entity has recorded so far is done. What follows from those reactions
	// for other entities is settled in turn. Errors: unavailable if the entity's reactions are parked.
	Settle(ctx context.Context, kind, identity string) error
}

// Server answers requests by the tables of routes that Mount gives it.
type Server struct {
	options       Options
	now           func() time.Time
	log           *slog.Logger
	metrics       *metrics
	addresses     *Addresses
	crossOrigin   *http.CrossOriginProtection
	authenticator *authenticator
	workspaces    *cache[*Workspace]
	cursors       cursors
	watch         *watcher
	// routes are served on the public listener, operatorRoutes on the operators'.
	routes, operatorRoutes []Route
	router, operatorRouter *mux.Router
	// metadata is the public URL of ResourceMetadataPath.
	metadata string
	// requests counts the requests under way, publicRequests those of them on public operations.
	requests, publicRequests atomic.Int64
	connections              atomic.Int64
	// heads is what unfinished heads are charged, in bytes.
	heads          atomic.Int64
	publicServer   *http.Server
	operatorServer *http.Server
}

// New makes a server. Mount must give it its routes before the first request.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, now: o.Clock, log: o.Log, cursors: newCursors(o.Secret), addresses: NewAddresses(), crossOrigin: http.NewCrossOriginProtection()}
	// Behind a proxy the host of a request may differ from the host that the browser asked for.
	if err = s.crossOrigin.AddTrustedOrigin(o.PublicURL.Scheme + "://" + o.PublicURL.Host); err != nil {
		return nil, err
	}
	s.metadata = s.Link(ResourceMetadataPath)
	if s.metrics, err = newMetrics(o.Registerer, o.Gatherer); err != nil {
		return nil, err
	}
	s.authenticator = newAuthenticator(o.Asker, o.Clock, strings.TrimSuffix(o.PublicURL.String(), "/"), s.metrics.credentialLookup)
	s.workspaces = newCache(o.Clock, maxSlugs, s.metrics.slugLookup, s.resolveSlug)
	s.watch = newWatcher(s.authenticator, o.Limits, s.metrics.streams)
	s.publicServer, s.operatorServer = s.newHTTPServer(s), s.newHTTPServer(s.Admin())
	s.publicServer.ConnContext, s.publicServer.ConnState = s.admitConnection, s.countConnection // operators connect however many clients there are
	return s, nil
}

// Mount sets the routes of the public listener and of the operators'.
func (s *Server) Mount(routes, operatorRoutes []Route) {
	s.routes = append(routes, s.probes()...)
	s.operatorRoutes = operatorRoutes
	s.router, s.operatorRouter = s.newRouter(s.routes), s.newRouter(operatorRoutes)
}

// Routes returns the table of the public listener.
func (s *Server) Routes() []Route { return s.routes }

// Options returns the options of the server, with the defaults filled in.
func (s *Server) Options() Options { return s.options }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handle(s.router, w, r) }

// Admin returns the handler of the operators' routes. It must be reachable for operators only: it asks for no credential.
func (s *Server) Admin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(s.operatorRouter, w, r) })
}

// Stats describes the memory that clients occupy.
type Stats struct {
	// Credentials is how many credentials are remembered.
	Credentials int64
	// HeadBytes is what the unfinished heads of requests are charged, and MaxHeadBytes what they can be charged, in bytes.
	HeadBytes, MaxHeadBytes int64
}

// Stats returns what clients occupy now.
func (s *Server) Stats() Stats {
	return Stats{
		Credentials: s.authenticator.credentials.size.Load(), HeadBytes: s.heads.Load(),
		MaxHeadBytes: int64(s.options.Limits.Connections)*freeHead + maxHeads,
	}
}

// Flush waits until the uses of credentials so far are recorded.
func (s *Server) Flush() { s.authenticator.reports.Wait() }

func (s *Server) handle(router http.Handler, w http.ResponseWriter, r *http.Request) {
	res := &Response{ResponseWriter: w, Request: r, ID: s.chooseRequestID(r), started: time.Now(), metadata: s.metadata}
	res.Header()["X-Request-Id"] = []string{res.ID}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer s.endRequest(res, r)
	res.limitBody(r, s.options.Limits.RequestTime)
	c := connectionOf(r.Context())
	if c != nil && c.heads != nil {
		c.heads.endHead()
	}
	if c != nil && c.isOverLimit {
		res.Header()["Connection"] = []string{"close"}
		res.fail(ErrOverloaded)
		return
	}
	router.ServeHTTP(res, r)
}

// publicShare is the part of the requests under way that anybody may take. A body that comes slowly, or a queue, holds
// one for long; with more of them strangers would keep out who has a credential.
const publicShare = 4

// operate takes a request through its operation.
func (s *Server) runOperation(op *operation, w *Response, r *http.Request) {
	w.operation = op
	if op.Timing != Streaming {
		defer s.requests.Add(-1)
		if s.requests.Add(1) > int64(s.options.Limits.Requests) {
			w.fail(ErrOverloaded)
			return
		}
	}
	if op.Scope == ScopePublic {
		defer s.publicRequests.Add(-1)
		if s.publicRequests.Add(1) > int64(max(1, s.options.Limits.Requests/publicShare)) {
			w.fail(ErrOverloaded)
			return
		}
	}
	c := &Call{Context: r.Context(), server: s, operation: op, Response: w, Request: r}
	if op.Timing == Brief {
		ctx, cancel := context.WithTimeout(c.Context, s.options.Limits.RequestTime)
		defer cancel()
		c.Context = ctx
	}
	err := c.admit()
	if err == nil {
		err = op.Handler(c)
	}
	if err != nil {
		w.Err = err
		w.fail(err)
	}
}

// limitBody bounds the time that a body may take to arrive, also where nobody reads it: net/http then waits for it before
// it sends the answer. Transfers extend it. Requests without one keep no read deadline, which would end them early: the
// server reads ahead to notice that a client has gone.
func (w *Response) limitBody(r *http.Request, d time.Duration) {
	if r.ContentLength != 0 {
		http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(d))
	}
}

// overDrive tells whether the request is for a drive, whose clients know HTTP Basic.
func (w *Response) isDriveRequest() bool {
	return w.operation != nil && strings.HasPrefix(w.operation.Path, DrivePath)
}

// challenges returns the ways to authenticate.
func (w *Response) challenges() []string {
	if w.isDriveRequest() {
		return []string{w.bearerChallenge(), `Basic realm="Atelier", charset="UTF-8"`}
	}
	return []string{w.bearerChallenge()}
}

// ResourceMetadataPath is the path of the metadata that leads clients to the authorization server (RFC 9728).
const ResourceMetadataPath = "/.well-known/oauth-protected-resource"

// bearerChallenge returns the challenge for a request without a valid credential (RFC 6750, section 3; RFC 9728, section
// 5.1). After a token it says that the token is not valid, whatever the reason.
func (w *Response) bearerChallenge() string {
	metadata := `resource_metadata="` + w.metadata + `"`
	scheme, token, _ := strings.Cut(w.Request.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && strings.Trim(token, " ") != "" {
		return `Bearer error="invalid_token", ` + metadata
	}
	return "Bearer " + metadata
}

// requestID is the client's, where it is fit for logs, or a new one.
func (s *Server) chooseRequestID(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && isRequestID(given[0]) {
		return given[0]
	}
	return s.options.NewID("req_")
}

func isRequestID(text string) bool {
	for _, c := range []byte(text) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(text) >= 8 && len(text) <= 64
}

// finish ends a request: a panic is answered as internal and ends nothing else.
func (s *Server) endRequest(w *Response, r *http.Request) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		s.log.Error("handler panicked", "request", w.ID, "panic", p, "stack", string(debug.Stack()))
		if w.status != 0 {
			p = http.ErrAbortHandler // the answer is cut short: the client must not take it for whole
		} else {
			p = nil
			w.fail(entity.Errorf(entity.Internal, ""))
		}
	}
	if w.status == 0 && p == nil {
		w.status = http.StatusOK // net/http answers so for a handler that wrote nothing
	}
	s.recordRequest(w, r)
	if p != nil {
		panic(p)
	}
}

// record measures and logs a request that is over.
func (s *Server) recordRequest(w *Response, r *http.Request) {
	elapsed := time.Since(w.started)
	m := s.metrics.unrouted
	if w.operation != nil {
		m = w.operation.meter
	}
	m.observe(w.status, elapsed)
	s.logAccess(w, r, elapsed)
}

// Serve answers the requests of a listener until Shutdown; it returns nil then.
func (s *Server) Serve(l net.Listener) error {
	return untilClosed(s.publicServer.Serve(headListener{l, &s.heads}))
}

// ServeAdmin answers the requests of the operators' listener until Shutdown; it returns nil then.
func (s *Server) ServeAdmin(l net.Listener) error { return untilClosed(s.operatorServer.Serve(l)) }

func untilClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends open streams at once and cleanly, refuses new ones, and waits for other requests until ctx ends; what
// is left then is cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.watch.close()
	var failed error
	for _, server := range []*http.Server{s.publicServer, s.operatorServer} {
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
			failed = errors.Join(failed, err)
		}
	}
	s.Flush()
	return failed
}

// Link returns the public URL of a path of this server.
func (s *Server) Link(path string) string {
	return strings.TrimSuffix(s.options.PublicURL.String(), "/") + path
}
