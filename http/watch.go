package http

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
)

// sweepEvery is the time between two looks at the credentials of open streams, and bounds each.
const sweepEvery = 500 * time.Millisecond

// Why a stream ends before its client leaves it.
var (
	errDraining = errors.New("the server is shutting down")
	errRevoked  = errors.New("the credential is no longer valid")
)

// watch knows the open streams by credential, and ends those whose credential ends. While there are any, each distinct
// credential is asked for again and again, past what is remembered of it.
type watch struct {
	authenticator *authenticator
	limits        Limits
	gauge         prometheus.Gauge

	mu       sync.Mutex
	streams  map[string]*watched
	open     int
	sweeping bool
	// drained is closed when no more streams are admitted.
	drained chan struct{}
}

type watched struct {
	credential *credential
	ends       map[*context.CancelCauseFunc]struct{}
	// asking tells that a check is under way.
	asking bool
}

func newWatch(a *authenticator, limits Limits, gauge prometheus.Gauge) *watch {
	return &watch{
		authenticator: a, limits: limits, gauge: gauge, streams: map[string]*watched{}, drained: make(chan struct{}),
	}
}

// add admits a stream, which end ends. The caller removes it when it is over.
func (w *watch) add(c *credential, end context.CancelCauseFunc) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := c.principal.GetCredentialId()
	of := w.streams[id]
	switch {
	case w.closed():
		return nil, &entity.Error{Code: entity.Unavailable, Message: errDraining.Error(), RetryAfter: time.Second}
	case w.open >= w.limits.Streams:
		return nil, &entity.Error{Code: entity.Unavailable, Message: "too many open streams", RetryAfter: 5 * time.Second}
	case of != nil && len(of.ends) >= w.limits.CredentialStreams:
		return nil, &entity.Error{
			Code: entity.RateLimited, Message: "too many open streams with this credential", RetryAfter: 5 * time.Second,
		}
	case of == nil:
		of = &watched{credential: c, ends: map[*context.CancelCauseFunc]struct{}{}}
		w.streams[id] = of
	}
	of.ends[&end] = struct{}{}
	w.open++
	w.gauge.Set(float64(w.open))
	if !w.sweeping {
		w.sweeping = true
		go w.sweep()
	}
	return func() { w.remove(id, of, &end) }, nil
}

func (w *watch) remove(id string, of *watched, end *context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(of.ends, end)
	if len(of.ends) == 0 && w.streams[id] == of {
		delete(w.streams, id)
	}
	w.open--
	w.gauge.Set(float64(w.open))
}

// end ends the streams of a credential.
func (w *watch) end(id string) { w.finish(id, errRevoked) }

func (w *watch) finish(id string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.streams[id]; of != nil {
		for end := range of.ends {
			(*end)(cause)
		}
	}
}

// close ends every stream and admits no more.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed() {
		close(w.drained)
	}
	for _, of := range w.streams {
		for end := range of.ends {
			(*end)(errDraining)
		}
	}
}

func (w *watch) closed() bool {
	select {
	case <-w.drained:
		return true
	default:
		return false
	}
}

// sweep goes on while there are streams.
func (w *watch) sweep() {
	pause := time.NewTicker(sweepEvery)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-w.drained:
			return
		}
		if !w.checkAll() {
			return
		}
	}
}

// checkAll begins a check of each credential but those whose last one is still under way: one that is not answered holds
// no other up. It tells whether there are any.
func (w *watch) checkAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.streams {
		if !of.asking {
			of.asking = true
			go w.check(of)
		}
	}
	w.sweeping = len(w.streams) > 0
	return w.sweeping
}

// check ends the streams of a credential that is refused. Where nobody answers, they stay: nothing comes over them that
// is not asked for elsewhere.
func (w *watch) check(of *watched) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
	defer cancel()
	err := w.authenticator.current(ctx, of.credential)
	if errors.Is(err, errUnauthorized) {
		w.end(of.credential.principal.GetCredentialId())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of.asking = false
}
