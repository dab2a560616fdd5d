package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
)

// sweepEvery is the time between two looks at the access of long requests, and bounds each look.
const sweepEvery = 500 * time.Millisecond

// errDraining is why a stream ends before its client leaves it.
var errShuttingDown = errors.New("the server is shutting down")

// watch knows the requests that last, streams and transfers, and ends them within a second of the loss of their access.
// While there are any, each distinct credential is looked up again and again, past what is remembered of it, and so is what
// its transfers need of their workspaces. A stream's workspace ends the stream itself.
type watcher struct {
	authenticator *authenticator
	limits        Limits
	gauge         prometheus.Gauge

	mu          sync.Mutex
	credentials map[string]*watchedCredential
	// streams is how many are open.
	streams  int
	sweeping bool
	// drained is closed when no more streams are admitted.
	drained chan struct{}
}

// watched is the requests that last with one credential.
type watchedCredential struct {
	credential *Credential
	requests   map[*watchedRequest]struct{}
	// streams is how many of the requests are streams.
	streams int
	// asking tells that a check is under way.
	isChecking bool
}

// lasting is a request that lasts until end ends it.
type watchedRequest struct {
	end context.CancelCauseFunc
	// stream tells streams from transfers.
	isStream bool
	access   access
}

// access is what a transfer needs besides its credential; the zero value is that of a stream.
type access struct {
	operation   *operation
	workspaceID string
}

func newWatcher(a *authenticator, limits Limits, gauge prometheus.Gauge) *watcher {
	return &watcher{
		authenticator: a, limits: limits, gauge: gauge, credentials: map[string]*watchedCredential{}, drained: make(chan struct{}),
	}
}

// addStream admits a stream, which end ends. The caller removes it when it is over.
func (w *watcher) addStream(c *Credential, end context.CancelCauseFunc) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.credentials[c.Principal.GetCredentialId()]
	switch {
	case w.closed():
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

// addTransfer watches the access of a call that lasts as long as its bytes move. end gets an *entity.Error as its cause.
// The caller removes the transfer when it is over.
func (w *watcher) addTransfer(c *Call, end context.CancelCauseFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(c.Caller, &watchedRequest{end: end, access: access{c.operation, c.Workspace.ID}})
}

// add watches a request. The caller holds mu.
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

// count counts a request where it is a stream. The caller holds mu.
func (w *watcher) count(of *watchedCredential, l *watchedRequest, n int) {
	if !l.isStream {
		return
	}
	of.streams += n
	w.streams += n
	w.gauge.Set(float64(w.streams))
}

// end ends the requests that last with a credential: it is no longer valid.
func (w *watcher) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.credentials[id]; of != nil {
		of.endMatching(ErrUnauthorized, func(*watchedRequest) bool { return true })
	}
}

// finish ends those requests that a condition holds for. The caller holds the watch's mu.
func (of *watchedCredential) endMatching(cause error, holds func(*watchedRequest) bool) {
	for l := range of.requests {
		if holds(l) {
			l.end(cause)
		}
	}
}

// close ends every stream and admits no more. Transfers go on: the server waits for them.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed() {
		close(w.drained)
	}
	for _, of := range w.credentials {
		of.endMatching(errShuttingDown, func(l *watchedRequest) bool { return l.isStream })
	}
}

func (w *watcher) closed() bool {
	select {
	case <-w.drained:
		return true
	default:
		return false
	}
}

// sweep goes on while requests last.
func (w *watcher) sweep() {
	pause := time.NewTicker(sweepEvery)
	defer pause.Stop()
	for range pause.C {
		if !w.checkAll() {
			return
		}
	}
}

// checkAll begins a check of each credential but those whose last one is still under way: one that is not answered holds
// no other up. It tells whether there are any.
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

// check ends the requests of a credential that is refused, and those whose workspace refuses it. Where nobody answers they
// go on: a stream sends nothing that is not asked for elsewhere, and a transfer's change is confirmed when it is decided.
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

// checkWorkspaces asks each workspace once for each operation that transfers have under way there.
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

// refusesAccess tells the codes with which a workspace keeps somebody out from those that say nothing of access.
func refusesAccess(code entity.Code) bool {
	switch code {
	case entity.NotFound, entity.Forbidden, entity.WorkspaceSuspended, entity.WorkspaceClosed:
		return true
	default:
		return false
	}
}
