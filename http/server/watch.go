package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// sweepEvery is the time between two checks of long requests, and bounds each check.
const sweepEvery = 500 * time.Millisecond

// errShuttingDown is the cause of the end of streams and terminals when the server shuts down.
var errShuttingDown = &entity.Error{Code: entity.Unavailable, Message: "the server is shutting down", RetryAfter: time.Second}

// watcher ends long requests, and what outlives its request, within a second after their access is lost. While there are any,
// it revalidates each of their credentials every sweepEvery, without the cache, and asks their workspaces for the access
// again. A stream of events is ended by its workspace itself. A new stream takes over the slot of a stream that waits for a client that may
// have gone (passSlot).
type watcher struct {
	authenticator *authenticator
	limits        Limits
	slots         *limit.Shares[holder]
	gauge         prometheus.Gauge

	mu          sync.Mutex
	credentials map[watchedID]*watchedCredential
	// leaving has the streams with a slot whose clients may have gone.
	leaving  map[*watchedRequest]*watchedCredential
	sweeping bool
	// drained is closed when the server shuts down; no stream and no terminal is admitted after it.
	drained chan struct{}
	// open counts the streams and terminals. It grows only before drained is closed.
	open sync.WaitGroup
}

// watchedID identifies a credential and, for the credential of an app, the hash of its secret: when the secret is replaced, requests
// with the old secret end, and requests with the new secret continue.
type watchedID struct{ credentialID, appSecret string }

func watchedIDOf(c *Credential) watchedID {
	return watchedID{c.Principal.GetCredentialId(), c.appSecret()}
}

// watchedCredential has the watched operations of one credential.
type watchedCredential struct {
	credential *Credential
	requests   map[*watchedRequest]struct{}
	// streams is the number of open streams, and terminals the number of open terminals.
	streams, terminals int
	// isChecking reports that a check of the credential is in flight.
	isChecking bool
}

// watchedRequest is a long request, or a terminal, which outlives the request that opened it; end ends it.
type watchedRequest struct {
	end    context.CancelCauseFunc
	kind   watchedKind
	access access
	// patience is how long a stream waits for a client that may have gone; nil for transfers and terminals.
	patience *patience
}

// watchedKind says which limits count a watchedRequest.
type watchedKind int

const (
	// watchedTransfer has no limit here. It continues during a shutdown, which waits for it. A stream that has passed its slot on becomes one.
	watchedTransfer watchedKind = iota
	// watchedStream has a slot of the person, and counts against Limits.CredentialStreams. It ends at a shutdown.
	watchedStream
	// watchedTerminal counts against Limits.CredentialTerminals. It ends at a shutdown.
	watchedTerminal
)

// access is the access that is needed in a workspace besides the credential; the zero value for streams of events, and for
// operations in no workspace.
type access struct {
	operation   *operation
	workspaceID string
}

func newWatcher(a *authenticator, limits Limits, slots *limit.Shares[holder], gauge prometheus.Gauge) *watcher {
	return &watcher{
		authenticator: a, limits: limits, slots: slots, gauge: gauge, credentials: map[watchedID]*watchedCredential{},
		leaving: map[*watchedRequest]*watchedCredential{}, drained: make(chan struct{}),
	}
}

// addStream admits a stream; access is the zero value if its workspace ends it. The caller calls remove when the stream is
// over. Errors: unavailable, rate_limited.
func (w *watcher) addStream(c *Call, a access, end context.CancelCauseFunc) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed() {
		return nil, errShuttingDown
	}
	if err := w.takeSlot(c.Caller); err != nil {
		return nil, err
	}
	return w.add(c.Caller, &watchedRequest{end: end, kind: watchedStream, access: a, patience: c.patience}), nil
}

// takeSlot takes the slot of a stream with a credential. If a limit leaves none, the stream takes over a slot that the same limit counts;
// see passSlot. The caller holds mu. Errors: unavailable, rate_limited.
func (w *watcher) takeSlot(c *Credential) error {
	h := holderOf(c)
	if own := w.credentials[watchedIDOf(c)]; own != nil && own.streams >= w.limits.CredentialStreams {
		if w.passSlot(h, func(of *watchedCredential) bool { return of == own }) {
			return nil
		}
		return &entity.Error{
			Code: entity.RateLimited, Message: "too many open streams with this credential", RetryAfter: 5 * time.Second,
		}
	}
	switch err := w.slots.Acquire(h); {
	case errors.Is(err, limit.ErrShare):
		if w.passSlot(h, func(of *watchedCredential) bool { return holderOf(of.credential) == h }) {
			return nil
		}
		return &entity.Error{Code: entity.RateLimited, Message: "too many open streams of this person", RetryAfter: 5 * time.Second}
	case err != nil:
		if w.passSlot(h, func(*watchedCredential) bool { return true }) {
			return nil
		}
		return &entity.Error{Code: entity.Unavailable, Message: "too many open streams", RetryAfter: 5 * time.Second}
	}
	return nil
}

// passSlot passes the slot of a stream on to a holder and ends the waits of the stream, which only has to end or to answer then. The stream
// waits for a client that may have gone, and its credential meets a condition. A client that has left and comes back is therefore not
// refused because of its former streams. A stream that changes something keeps its slot: it does not wait. passSlot reports false if there
// is no such stream. The caller holds mu.
func (w *watcher) passSlot(to holder, holds func(*watchedCredential) bool) bool {
	for l, of := range w.leaving {
		if l.patience.waiting.Load() == 0 || !holds(of) || w.slots.Move(holderOf(of.credential), to) != nil {
			continue
		}
		delete(w.leaving, l)
		w.count(of, l, -1)
		l.kind = watchedTransfer
		l.patience.endWaits()
		return true
	}
	return false
}

// addTerminal admits a terminal that the caller opens. The caller calls remove when the terminal has ended. Errors:
// unavailable, rate_limited.
func (w *watcher) addTerminal(c *Call, end context.CancelCauseFunc) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.credentials[watchedIDOf(c.Caller)]
	switch {
	case w.isClosed():
		return nil, errShuttingDown
	case of != nil && of.terminals >= w.limits.CredentialTerminals:
		return nil, &entity.Error{
			Code: entity.RateLimited, Message: "too many open terminals with this credential", RetryAfter: 5 * time.Second,
		}
	}
	return w.add(c.Caller, &watchedRequest{end: end, kind: watchedTerminal, access: c.access()}), nil
}

// addTransfer watches a transfer; end gets the refusal, an *entity.Error. The caller calls remove when the transfer is over.
func (w *watcher) addTransfer(c *Call, end context.CancelCauseFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(c.Caller, &watchedRequest{end: end, kind: watchedTransfer, access: c.access()})
}

// access returns the access that the operation requires in the workspace of the path; the zero value if the path has none.
func (c *Call) access() access {
	if c.Workspace == nil {
		return access{}
	}
	return access{c.operation, c.Workspace.ID}
}

// add watches a request and starts the checks if there are none. The caller holds mu.
func (w *watcher) add(c *Credential, l *watchedRequest) (remove func()) {
	id := watchedIDOf(c)
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
	unwatch := func() bool { return true }
	if l.patience != nil {
		unwatch = context.AfterFunc(l.patience.request, func() { w.setLeaving(of, l) })
	}
	return func() {
		unwatch()
		w.remove(id, of, l)
	}
}

// setLeaving records that the client of a stream may have gone, unless the stream has ended meanwhile.
func (w *watcher) setLeaving(of *watchedCredential, l *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isOpen := of.requests[l]; isOpen {
		w.leaving[l] = of
	}
}

func (w *watcher) remove(id watchedID, of *watchedCredential, l *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(of.requests, l)
	delete(w.leaving, l)
	if len(of.requests) == 0 && w.credentials[id] == of {
		delete(w.credentials, id)
	}
	if l.kind == watchedStream {
		w.slots.Release(holderOf(of.credential))
	}
	w.count(of, l, -1)
}

// count adds n to the number of streams or terminals if the request is one. The caller holds mu.
func (w *watcher) count(of *watchedCredential, l *watchedRequest, n int) {
	switch l.kind {
	case watchedTransfer:
		return
	case watchedTerminal:
		of.terminals += n
	case watchedStream:
		of.streams += n
		w.gauge.Add(float64(n))
	}
	w.open.Add(n)
}

// end ends the requests with a credential that is no longer valid.
func (w *watcher) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watched, of := range w.credentials {
		if watched.credentialID == id {
			of.endMatching(ErrUnauthorized, func(*watchedRequest) bool { return true })
		}
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

// close ends every stream and terminal and admits no more. Transfers continue: Shutdown waits for them.
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isClosed() {
		close(w.drained)
	}
	for _, of := range w.credentials {
		of.endMatching(errShuttingDown, func(l *watchedRequest) bool { return l.kind != watchedTransfer })
	}
}

// wait waits until all streams and terminals have ended. It is called after close. It returns the context's error if ctx ends
// first.
func (w *watcher) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		w.open.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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

// checkAll starts a check of each credential without a check in flight, so that a look-up that blocks delays no other look-up. It
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

// check ends the requests of a credential that is no longer valid, and the requests that their workspace refuses. If a look-up fails
// for another reason they continue: a stream of events is also ended by its workspace, and a transfer is authorized again
// before its change is decided.
func (w *watcher) check(of *watchedCredential) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	err := w.authenticator.revalidate(ctx, of.credential)
	if errors.Is(err, ErrUnauthorized) {
		w.mu.Lock()
		of.endMatching(ErrUnauthorized, func(*watchedRequest) bool { return true })
		w.mu.Unlock()
	} else {
		w.checkWorkspaces(ctx, of)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of.isChecking = false
}

// checkWorkspaces asks each workspace once for each operation that runs there with the credential.
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

// distinctAccesses returns the accesses that are needed in workspaces, each once.
func (w *watcher) distinctAccesses(of *watchedCredential) map[access]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	distinct := map[access]struct{}{}
	for l := range of.requests {
		if l.access != (access{}) {
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
