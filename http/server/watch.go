package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
)

// sweepEvery is the time between two checks of long requests, and bounds each check.
const sweepEvery = 500 * time.Millisecond

// errShuttingDown is the cause with which streams end when the server shuts down.
var errShuttingDown = errors.New("the server is shutting down")

// watcher ends streams and transfers within a second after their access is lost. While there are any, it revalidates each of
// their credentials every sweepEvery, without the cache, and asks the workspaces of transfers for the access again. The
// workspace of a stream ends the stream by itself.
type watcher struct {
	authenticator *authenticator
	limits        Limits
	gauge         prometheus.Gauge

	mu          sync.Mutex
	credentials map[string]*watchedCredential
	// streams is the number of open streams.
	streams  int
	sweeping bool
	// drained is closed when the server shuts down; no stream is admitted after it.
	drained chan struct{}
}

// watchedCredential has the streams and transfers with one credential.
type watchedCredential struct {
	credential *Credential
	requests   map[*watchedRequest]struct{}
	// streams is the number of open streams.
	streams int
	// isChecking reports that a check of the credential is in flight.
	isChecking bool
}

// watchedRequest is a stream or a transfer; end ends it.
type watchedRequest struct {
	end      context.CancelCauseFunc
	isStream bool
	access   access
}

// access is the access that a transfer needs besides its credential; the zero value for a stream.
type access struct {
	operation   *operation
	workspaceID string
}

func newWatcher(a *authenticator, limits Limits, gauge prometheus.Gauge) *watcher {
	return &watcher{
		authenticator: a, limits: limits, gauge: gauge, credentials: map[string]*watchedCredential{}, drained: make(chan struct{}),
	}
}

// addStream admits a stream. The caller calls remove when the stream is over. Errors: unavailable, rate_limited.
func (w *watcher) addStream(c *Credential, end context.CancelCauseFunc) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.credentials[c.Principal.GetCredentialId()]
	switch {
	case w.isClosed():
		return nil, &entity.Error{Code: entity.Unavailable, Message: errShuttingDown.Error(), RetryAfter: time.Second}
	case w.streams >= w.limits.Streams:
		return nil, &entity.Error{Code: entity.Unavailable, Message: "too many open streams", RetryAfter: 5 * time.Second}
	case of != nil && of.streams >= w.limits.CredentialStreams:
		return nil, &entity.Error{
			Code: entity.RateLimited, Message: "too many open streams with this credential", RetryAfter: 5 * time.Second,
		}
	}
	return w.add(c, &watchedRequest{end: end, isStream: true}), nil
}

// addTransfer watches a transfer; end gets the refusal, an *entity.Error. The caller calls remove when the transfer is over.
func (w *watcher) addTransfer(c *Call, end context.CancelCauseFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(c.Caller, &watchedRequest{end: end, access: access{c.operation, c.Workspace.ID}})
}

// add watches a request and starts the checks if there are none. The caller holds mu.
func (w *watcher) add(c *Credential, l *watchedRequest) (remove func()) {
	id := c.Principal.GetCredentialId()
	of := w.credentials[id]
	if of == nil {
		of = &watchedCredential{credential: c, requests: map[*watchedRequest]struct{}{}}
		w.credentials[id] = of
	}
	of.requests[l] = struct{}{}
	w.count(of, l, 1)
	if !w.sweeping {
		w.sweeping = true
		go w.sweep()
	}
	return func() { w.remove(id, of, l) }
}

func (w *watcher) remove(id string, of *watchedCredential, l *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(of.requests, l)
	if len(of.requests) == 0 && w.credentials[id] == of {
		delete(w.credentials, id)
	}
	w.count(of, l, -1)
}

// count adds n to the number of streams if the request is one. The caller holds mu.
func (w *watcher) count(of *watchedCredential, l *watchedRequest, n int) {
	if !l.isStream {
		return
	}
	of.streams += n
	w.streams += n
	w.gauge.Set(float64(w.streams))
}

// end ends the requests with a credential that is no longer valid.
func (w *watcher) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.credentials[id]; of != nil {
		of.endMatching(ErrUnauthorized, func(*watchedRequest) bool { return true })
	}
}

// endMatching ends the requests that match a condition. The caller holds the watcher's mu.
func (of *watchedCredential) endMatching(cause error, holds func(*watchedRequest) bool) {
	for l := range of.requests {
		if holds(l) {
			l.end(cause)
		}
	}
}

// close ends every stream and admits no more. Transfers continue: Shutdown waits for them.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isClosed() {
		close(w.drained)
	}
	for _, of := range w.credentials {
		of.endMatching(errShuttingDown, func(l *watchedRequest) bool { return l.isStream })
	}
}

// isClosed reports whether close was called.
func (w *watcher) isClosed() bool {
	select {
	case <-w.drained:
		return true
	default:
		return false
	}
}

// sweep checks all credentials every sweepEvery, until there are no requests to watch.
func (w *watcher) sweep() {
	pause := time.NewTicker(sweepEvery)
	defer pause.Stop()
	for range pause.C {
		if !w.checkAll() {
			return
		}
	}
}

// checkAll starts a check of each credential that has none in flight, so that a look-up that blocks delays no other. It
// reports whether there are requests to watch.
func (w *watcher) checkAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.credentials {
		if !of.isChecking {
			of.isChecking = true
			go w.check(of)
		}
	}
	w.sweeping = len(w.credentials) > 0
	return w.sweeping
}

// check ends the requests of a credential that is no longer valid, and the transfers that their workspace refuses. If a
// look-up fails for another reason they continue: a stream is also ended by its workspace, and a transfer is authorized
// again before its change is decided.
func (w *watcher) check(of *watchedCredential) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	err := w.authenticator.revalidate(ctx, of.credential)
	if errors.Is(err, ErrUnauthorized) {
		w.end(of.credential.Principal.GetCredentialId())
	} else {
		w.checkWorkspaces(ctx, of)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of.isChecking = false
}

// checkWorkspaces asks each workspace once for each operation that the credential's transfers run there.
func (w *watcher) checkWorkspaces(ctx context.Context, of *watchedCredential) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for a := range w.distinctAccesses(of) {
		asking.Go(func() {
			question := a.operation.authorizeCommand(a.workspaceID)
			question.Principal = of.credential.Principal
			_, err := w.authenticator.asker.Ask(ctx, question)
			if refused, is := errors.AsType[*entity.Error](err); is && refusesAccess(refused.Code) {
				w.mu.Lock()
				defer w.mu.Unlock()
				of.endMatching(refused, func(l *watchedRequest) bool { return l.access == a })
			}
		})
	}
}

// distinctAccesses returns the accesses of the transfers, each once.
func (w *watcher) distinctAccesses(of *watchedCredential) map[access]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	distinct := map[access]struct{}{}
	for l := range of.requests {
		if !l.isStream {
			distinct[l.access] = struct{}{}
		}
	}
	return distinct
}

// refusesAccess reports whether a code means that the caller has lost the access.
func refusesAccess(code entity.Code) bool {
	switch code {
	case entity.NotFound, entity.Forbidden, entity.WorkspaceSuspended, entity.WorkspaceClosed:
		return true
	default:
		return false
	}
}
