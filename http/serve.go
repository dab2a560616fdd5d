package http

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

	"github.com/atelier-run/atelier/entity"
)

// Server answers the API's requests.
type Server struct {
	options       Options
	now           func() time.Time
	log           *slog.Logger
	metrics       *metrics
	addresses     *addresses
	crossOrigin   *http.CrossOriginProtection
	authenticator *authenticator
	workspaces    *cache[*workspace]
	cursors       cursors
	watch         *watch
	guesses       *guesses
	mails         *mails
	passwords     *passwords
	forgotten     *forgotten
	oidc          *provider
	router        *mux.Router
	adminRouter   *mux.Router
	document      []byte
	requests      atomic.Int64
	// publicRequests are those of them that are anybody's.
	publicRequests atomic.Int64
	connections    atomic.Int64
	// heads is what unfinished heads are charged, in bytes.
	heads         atomic.Int64
	listening     *http.Server
	administering *http.Server
}

// New makes a server that waits for requests.
func New(o Options) (*Server, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, now: o.Clock, log: o.Log, cursors: newCursors(o.Secret), addresses: newAddresses(), crossOrigin: http.NewCrossOriginProtection()}
	// A proxy may ask for another host than the browser did.
	if err = s.crossOrigin.AddTrustedOrigin(o.PublicURL.Scheme + "://" + o.PublicURL.Host); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(o.Registerer, o.Gatherer); err != nil {
		return nil, err
	}
	if s.document, err = documentJSON(); err != nil {
		return nil, err
	}
	s.guesses, s.mails, s.passwords, s.oidc = newGuesses(), newMails(), newPasswords(), newProvider(s)
	s.forgotten = newForgotten(o.Secret)
	s.authenticator = newAuthenticator(o.Asker, o.Clock, strings.TrimSuffix(o.PublicURL.String(), "/"), s.metrics.credentialLookup)
	s.workspaces = newCache(o.Clock, knownSlugs, s.metrics.slugLookup, s.resolveSlug)
	s.watch = newWatch(s.authenticator, o.Limits, s.metrics.streams)
	s.router, s.adminRouter = s.newRouter(s.routes()), s.newRouter(s.adminRoutes())
	s.listening, s.administering = s.newListening(s), s.newListening(s.Admin())
	s.listening.ConnContext, s.listening.ConnState = s.enter, s.count // operators get in however many clients there are
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.answer(s.router, w, r) }

// Admin is the operators' API. It must be reachable for them alone: it asks for no credential.
func (s *Server) Admin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(s.adminRouter, w, r) })
}

func (s *Server) answer(router http.Handler, w http.ResponseWriter, r *http.Request) {
	res := &response{ResponseWriter: w, id: s.requestID(r), started: time.Now()}
	res.Header()["X-Request-Id"] = []string{res.id}
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	defer s.finish(res, r)
	res.limitBody(r, s.options.Limits.RequestTime)
	c := connectionOf(r.Context())
	if c != nil && c.heads != nil {
		c.heads.endHead()
	}
	if c != nil && c.over {
		res.Header()["Connection"] = []string{"close"}
		res.fail(errOverloaded)
		return
	}
	router.ServeHTTP(res, r)
}

// requestID is the client's, where it is fit for logs, or a new one.
func (s *Server) requestID(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && requestIDLike(given[0]) {
		return given[0]
	}
	return s.options.NewID("req_")
}

func requestIDLike(text string) bool {
	for _, c := range []byte(text) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(text) >= 8 && len(text) <= 64
}

// finish ends a request: a panic is answered as internal and ends nothing else.
func (s *Server) finish(w *response, r *http.Request) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		s.log.Error("handler panicked", "request", w.id, "panic", p, "stack", string(debug.Stack()))
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
	s.record(w, r)
	if p != nil {
		panic(p)
	}
}

// record measures and logs a request that is over.
func (s *Server) record(w *response, r *http.Request) {
	elapsed := time.Since(w.started)
	m := s.metrics.unrouted
	if w.route != nil {
		m = w.route.meter
	}
	m.observe(w.status, elapsed)
	s.logAccess(w, r, elapsed)
}

// Serve answers the requests of a listener until Shutdown; it returns nil then.
func (s *Server) Serve(l net.Listener) error {
	return untilClosed(s.listening.Serve(headListener{l, &s.heads}))
}

// ServeAdmin does the same for the operators' API.
func (s *Server) ServeAdmin(l net.Listener) error { return untilClosed(s.administering.Serve(l)) }

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
	for _, server := range []*http.Server{s.listening, s.administering} {
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
			failed = errors.Join(failed, err)
		}
	}
	s.authenticator.reports.Wait()
	return errors.Join(failed, s.forgotten.drain(ctx))
}
