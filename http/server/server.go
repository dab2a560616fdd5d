// Package server is the core of the HTTP API: it takes a request from the network to the handler of its operation.
//
// A request passes these steps, in this order:
//
//	connections.go   a slot for the connection, which idle connections give up: 503
//	listener.go      limits on unfinished request heads: 431, 503; a body with two lengths: 400
//	head_refusal.go  the refusals of net/http, such as 400 for a malformed head, in the form of all errors
//	hosts.go         the host: 421, unless it is the server's, or an app's, which the edge serves
//	server.go        handle: request id, recovery from panics, metrics; access_log.go: the access log
//	route.go         newRouter: path and method: 404 and 405
//	half_closed.go   attend: how long the operation goes on if the client may have gone
//	server.go        runOperation; slots.go: slots of the address for concurrent requests: 429, 503
//	access.go        Call.admit: the credential: 401; its person's slots and its rate: 429; the workspace in the path: 404
//	call.go          Answer: decodes the input: 400, 413, 415; sends the command; encodes the reply
//
// The packages beside this one provide the routes and their handlers, one type for each resource. A handler is a function
// from an input to an output, which Answer adapts. Operations that last longer have functions of their own: StreamTo for
// streams of server-sent events, TransferTo for requests on a drive, which may have bodies of any size, and RunLong for the
// output of a process, for terminals, and for requests that wait for an agent.
//
// # Authorization
//
// Route.Scope names the access that an operation requires, and it is enforced in one way:
//
//  1. Call.admit checks everything that needs no workspace: whether the credential is valid, and whether it belongs to a
//     person if the scope is ScopeHuman. It also resolves the slug in the path.
//  2. If the operation sends a command to the workspace, or to an entity that the workspace owns, the rules of that
//     entity authorize it, in order with changes of roles. The handler adds nothing.
//  3. If the operation sends no such command, its handler calls Call.Authorize, which asks the workspace whether the
//     caller has the access that Route.Scope requires.
//  4. If the input is invalid, no command is sent. Answer passes the error through Call.Withhold, which authorizes the
//     caller first: callers without access get the refusal of access and learn nothing from validation.
//  5. Streams, transfers, processes and terminals outlast the first check. The watcher (watch.go) revalidates their access
//     twice a second and ends each that has lost it. Right before a change of a drive is decided, Call.Reauthenticate
//     verifies the credential once more, and the rules of the workspace authorize the command; Call.Authorize does so for
//     changes that no command decides.
//
// A workspace answers not_found to callers who are not members, and forbidden to members who lack the capability. Entities
// return an *entity.Error, which becomes the response with the status of its code in answer.Statuses.
//
// # Streams
//
// A stream of file activity passes these steps:
//
//  1. api.fileActivity.stream decodes the position of the client in the events: the Last-Event-ID header or a
//     cursor.
//  2. Call.StreamTo admits the stream, within the limits for the person and for the credential (watcher.addStream).
//  3. The function that the handler passes to StreamTo calls api.Streams.Subscribe, which package actors implements (see
//     "The way of an activity stream" there). The workspace authorizes the subscription, and the connection is registered
//     before history is read, so that no event falls between history and live events.
//  4. sink.open sends the response head, the retry time and, while the stream is idle, heartbeats.
//  5. The follow function that Subscribe returned sends the frames: the rows after the client's position from the
//     journal, then live ones from the workspace's ring. If the client is so slow that the ring has overwritten its
//     position, the stream falls back to the journal until it has caught up, and loses nothing.
//  6. The stream ends when the segment is over (Options.StreamSegment), the client leaves, a write takes longer than
//     Limits.StallTime, the access ends (step 5 above) or the server shuts down. The client reconnects with Last-Event-ID.
//
// # Uploads
//
// An upload passes these steps:
//
//  1. Call.admit, as every request. Response.limitBody bounds the time for a body that no handler reads.
//  2. api.drive.serve authorizes the caller (Call.FetchAuthorization) and calls Call.TransferTo.
//  3. TransferTo registers the request with the watcher and wraps its body: transferBody extends the read deadline as
//     bytes arrive with the minimum rate (traffic, bodyPace).
//  4. api.Drive.ServeDrive, which package webdav implements, stages the body in a temporary file, calls
//     Call.Reauthenticate, and has the drive apply the change: an intent, which the workspace authorizes, one rename and
//     the activity row (see package drive).
//  5. If the access ends before that, watcher.check cancels the context with the refusal as its cause, and traffic.cutOff
//     ends the body. ServeDrive returns the refusal, and the caller gets it as the response.
//  6. Once the body has been read, traffic.endBody removes the read deadline: the drive may take its own time.
//
// # Processes and terminals
//
// A command passes these steps (api/exec.go):
//
//  1. api.processes.exec validates the input and authorizes the caller. Call.RunLong admits the request like a stream, and
//     registers it with the watcher.
//  2. api.Computers.Exec, which cmd/node implements with computer.Fleet.Launch, starts the process. Until step 7 errors are
//     ordinary responses.
//  3. Launch sends StartProcess to the entity of the computer. The rules of the workspace authorize the caller again, the
//     rules in entity/computer limit the number of processes, and the event ProcessStarted and the row of the audit log are
//     durable before anything runs.
//  4. computer.Observer.Begin, which drive/observe implements, begins to observe the drive.
//  5. computer.Host.Start starts the computer if it has no process, and a process that waits. In package computer/local the
//     driver puts it into its control group; package sandbox has the steps within the computer.
//  6. The driver calls Spec.Attribute, so that drive/observe knows the author of the process, and then lets the process
//     execute the program.
//  7. Call.OpenLines sends the head of the response. The output is written as it arrives; while the client does not read,
//     nothing reads the output, and the process waits. Every change of a file becomes a row with the author ("The life of a
//     change" in drive/observe).
//  8. The process ends by itself, or api.follow ends it (Call.EndLasting) because its time is over, the client has gone or
//     stalls, or the context of RunLong ends with an *entity.Error as its cause: the access is lost, or the server shuts
//     down. The driver ends all its descendants.
//  9. Fleet.follow calls Watch.End, which returns when the rows of all changes are durable, and then sends
//     ReportProcessEnded, which removes the process from the state.
//  10. api.Process.Wait returns, and the last line follows, with the exit status or the reason of the end.
//
// A terminal outlives its connections (api/terminals.go):
//
//  1. api.processes.terminal validates, authorizes and admits like step 1 above. CheckWebSocket refuses other requests, and
//     pages of other sites.
//  2. A new terminal is opened in OpenLasting, which counts it against Limits.CredentialTerminals and registers it with the
//     watcher for as long as it lives: it ends with the credential that opened it, also while no client is connected. An
//     open one is found by its id.
//  3. Call.AcceptWebSocket takes the connection over. The terminal's output is copied to it from a position in the
//     scroll-back, and its messages to the terminal.
//  4. The connection ends with the terminal, with its own access, with a message that is not valid, or when the peer
//     answers no ping. The terminal is then detached, until a client attaches to it or it ends.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/cache"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// Server serves the routes that Mount sets.
type Server struct {
	options Options
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	// addresses limits requests without a known credential, by the network of the client.
	addresses     limit.ClientBuckets
	crossOrigin   *http.CrossOriginProtection
	authenticator *authenticator
	workspaces    *cache.Cache[*Workspace]
	cursors       cursors
	watcher       *watcher
	// routes is the table of the public listener, operatorRoutes the table of the operators' listener.
	routes, operatorRoutes []Route
	router, operatorRouter *mux.Router
	// overloaded answers requests for apps on connections without a slot. It has no probes: their paths at the host of an app are the app's.
	overloaded *mux.Router
	// misdirected answers requests for unknown host names, and metricsRouter requests to the listener of the metrics.
	misdirected, metricsRouter *mux.Router
	// hosts are the names of the server.
	hosts hosts
	// strictTransport is the value of Strict-Transport-Security; nil: it is not sent.
	strictTransport []string
	slots           slots
	// running has a *Response for each request with a running operation, with the function that ends the operation, and an *http.Request for
	// each request to an app.
	running     sync.Map
	connections *connections
	// heads is the number of bytes charged for unfinished request heads; see headConn.
	heads          atomic.Int64
	publicServer   *http.Server
	operatorServer *http.Server
	// redirectServer serves plain HTTP beside HTTPS, and metricsServer the metrics, if they have a listener of their own.
	redirectServer, metricsServer *http.Server
	// forwarded is done when warnOfForwarded has logged a warning.
	forwarded sync.Once
}

// New returns a server. Mount must be called before the first request. Errors: a required option is missing or invalid.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, now: o.Clock, log: o.Log, cursors: newCursors(o.Secret), addresses: limit.NewClientBuckets(), crossOrigin: http.NewCrossOriginProtection()}
	// Behind a proxy the host of a request may differ from the host of the page that the browser shows.
	if err = s.crossOrigin.AddTrustedOrigin(o.PublicURL.Scheme + "://" + o.PublicURL.Host); err != nil {
		return nil, err
	}
	s.hosts = newHosts(append(o.Hosts, o.PublicURL.Host)...)
	s.overloaded = mux.NewRouter()
	s.overloaded.NotFoundHandler = http.HandlerFunc(overloaded)
	s.misdirected = mux.NewRouter()
	s.misdirected.NotFoundHandler = http.HandlerFunc(misdirected)
	if o.StrictTransport > 0 {
		s.strictTransport = []string{fmt.Sprintf("max-age=%d", int64(o.StrictTransport.Seconds()))}
	}
	if s.metrics, err = newMetrics(o.Registerer, o.Gatherer); err != nil {
		return nil, err
	}
	if s.connections, err = newConnections(o.Limits.Connections, o.TrustedProxies, o.Registerer); err != nil {
		return nil, err
	}
	if s.slots, err = newSlots(o.Limits, o.Registerer); err != nil {
		return nil, err
	}
	s.authenticator = newAuthenticator(o.Asker, o.Clock, strings.TrimSuffix(o.PublicURL.String(), "/"), s.metrics.credentialLookup)
	s.workspaces = cache.New(o.Clock, maxSlugs, s.metrics.slugLookup, s.resolveSlug)
	s.watcher = newWatcher(s.authenticator, o.Limits, s.slots.streams, s.metrics.streams)
	s.publicServer, s.operatorServer, s.redirectServer = s.newHTTPServer(s), s.newHTTPServer(s.Admin()), s.newHTTPServer(nil)
	s.metricsServer = s.newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.servePlatform(s.metricsRouter, w, r) }))
	// Operators have no such limit, so that they can connect while clients hold every connection.
	for _, limited := range []*http.Server{s.publicServer, s.redirectServer} {
		limited.ConnContext, limited.ConnState = s.connections.admit, s.connections.setState
	}
	return s, nil
}

// Mount sets the routes of the public listener and of the operators' listener, and adds the probes.
func (s *Server) Mount(routes, operatorRoutes []Route) {
	s.routes = append(routes, s.probes()...)
	s.operatorRoutes = operatorRoutes
	s.router, s.operatorRouter = s.newRouter(s.routes), s.newRouter(operatorRoutes)
	s.metricsRouter = s.newRouter([]Route{s.metricsRoute()})
}

// Routes returns the table of the public listener.
func (s *Server) Routes() []Route { return s.routes }

// Options returns the server's options, with the defaults filled in.
func (s *Server) Options() Options { return s.options }

// ServeHTTP serves a request of the public listener. Requests for the hosts of apps go to the edge, and requests for unknown host names are
// refused.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.warnOfForwarded(r)
	if e := s.options.Edge; e != nil && e.Serves(r) {
		s.serveEdge(w, r)
		return
	}
	s.servePlatform(s.router, w, r)
}

// servePlatform serves a request with a router if its host is one of the server's.
func (s *Server) servePlatform(router *mux.Router, w http.ResponseWriter, r *http.Request) {
	if !s.hosts.serve(r.Host) && !isMonitored(r) {
		router = s.misdirected
	}
	s.handle(router, w, r)
}

// Admin returns the handler of the operators' routes. It does not authenticate: only operators may be able to reach it.
func (s *Server) Admin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(s.operatorRouter, w, r) })
}

// Stats describes the memory that clients occupy.
type Stats struct {
	// Credentials is the number of cached credentials.
	Credentials int64
	// HeadBytes is the number of bytes charged for unfinished request heads, MaxHeadBytes its limit.
	HeadBytes, MaxHeadBytes int64
}

// Stats returns the current statistics.
func (s *Server) Stats() Stats {
	return Stats{
		Credentials: s.authenticator.credentials.Size(), HeadBytes: s.heads.Load(),
		MaxHeadBytes: int64(s.options.Limits.Connections)*freeHead + maxHeads,
	}
}

// Flush waits until the uses of credentials so far have been reported to their entities.
func (s *Server) Flush() { s.authenticator.reports.Wait() }

// handle serves a request with a router, between the request id and the access log.
func (s *Server) handle(router *mux.Router, w http.ResponseWriter, r *http.Request) {
	res := &Response{ResponseWriter: w, Request: r, ID: answer.RequestID(r, s.options.NewID), body: r.Body, started: time.Now(), server: s}
	res.Header()["X-Request-Id"] = []string{res.ID}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer s.endRequest(res, r)
	res.limitBody(r, s.options.Limits.RequestTime)
	c := connectionOf(r.Context())
	if c != nil && c.heads != nil {
		c.heads.endHead()
	}
	if strict := s.strictTransportOf(c); strict != nil {
		res.Header()["Strict-Transport-Security"] = strict
	}
	if c != nil && c.isOverLimit && !isProbe(r.URL.Path) {
		overloaded(res, r)
		return
	}
	s.route(router, res, r)
}

// overloaded answers that the server is overloaded, and closes the connection.
func overloaded(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Connection"] = []string{"close"}
	w.(*Response).fail(ErrOverloaded)
}

// route calls the handler that a router finds for a request. The router's own ServeHTTP would copy the request twice, to attach
// the match to its context.
func (s *Server) route(router *mux.Router, w *Response, r *http.Request) {
	var matched mux.RouteMatch
	router.Match(r, &matched)
	w.variables = matched.Vars
	matched.Handler.ServeHTTP(w, r)
}

// runOperation runs an operation within the limits on concurrent requests, and answers with the error that it returns. It
// answers after countAndRun has returned, because the answer waits for the rest of the request's body, which a client without
// a credential may send slowly: the request must not count against the limits meanwhile. A client that has gone gets no answer, so that none
// is counted, and its connection is closed.
func (s *Server) runOperation(op *operation, w *Response, r *http.Request) {
	w.operation, w.refuse = op, op.Refuse
	if op.Timing != Transfer {
		r = s.withPacedBody(w, r)
	}
	c := &Call{server: s, operation: op, Response: w, Request: r}
	end := s.attend(c)
	defer end()
	s.running.Store(w, end)
	defer s.running.Delete(w)
	err := s.countAndRun(c)
	if err == nil {
		return
	}
	w.Err = err
	if w.status == 0 && c.isGone() && publicError(err, w.ID).Code == entity.Unavailable {
		panic(http.ErrAbortHandler)
	}
	w.fail(err)
}

// countAndRun takes the slots of a request (slots.go) while it admits the request and runs the handler of its operation. Errors:
// the errors of takeSlots, of admit and of the handler.
func (s *Server) countAndRun(c *Call) error {
	taken, err := s.takeSlots(c.operation, c.Request)
	defer func() { taken.release() }()
	if err != nil {
		return err
	}
	c.slots = &taken
	if err := c.admit(); err != nil {
		return err
	}
	return c.operation.Handler(c)
}

// limitBody bounds the time in which the body may arrive. It is needed even if no handler reads the body, because net/http
// reads the rest of it before it sends the response. Transfers extend the deadline. Requests without a body get none:
// net/http reads ahead to notice that a client has gone, and a read deadline would end such a request early.
func (w *Response) limitBody(r *http.Request, d time.Duration) {
	if r.ContentLength != 0 {
		http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(d))
	}
}

// endRequest is deferred by handle. It recovers from a panic of the handler, answers it with internal, and records the
// request. If the response had begun, it aborts the connection, so that the client does not take the truncated response for
// complete.
func (s *Server) endRequest(w *Response, r *http.Request) {
	p := recover()
	if answer.ReportPanic(s.log, "handler panicked", w.ID, p) {
		if w.status != 0 {
			p = http.ErrAbortHandler
		} else {
			p = nil
			w.fail(entity.Errorf(entity.Internal, ""))
		}
	}
	if w.status == 0 && p == nil {
		w.status = http.StatusOK // the status that net/http sends for a handler that wrote nothing
	}
	s.releaseBody(w)
	if c := connectionOf(r.Context()); w.hijacked != nil && c != nil {
		s.connections.release(c) // net/http does not report its end
	}
	s.recordRequest(w, r)
	if p != nil {
		panic(p)
	}
}

// recordRequest measures and logs a request that has ended.
func (s *Server) recordRequest(w *Response, r *http.Request) {
	elapsed := time.Since(w.started)
	m := s.metrics.unrouted
	if w.operation != nil {
		m = w.operation.meter
	}
	m.observe(w.status, elapsed)
	s.logAccess(w, r, elapsed)
}

// Serve serves the public routes on a listener. It returns nil after Shutdown.
func (s *Server) Serve(l net.Listener) error {
	return untilClosed(s.publicServer.Serve(headListener{l, s}))
}

// ServeAdmin serves the operators' routes on a listener. It returns nil after Shutdown.
func (s *Server) ServeAdmin(l net.Listener) error { return untilClosed(s.operatorServer.Serve(l)) }

// ServeMetrics serves the metrics alone on a listener. It returns nil after Shutdown.
func (s *Server) ServeMetrics(l net.Listener) error { return untilClosed(s.metricsServer.Serve(l)) }

// untilClosed returns nil for the error of net/http that reports Shutdown.
func untilClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Link returns the public URL of a path of this server.
func (s *Server) Link(path string) string {
	return strings.TrimSuffix(s.options.PublicURL.String(), "/") + path
}
