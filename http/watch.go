package http

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
)

// sweepEvery is the least time between two looks at the credentials of open streams.
const sweepEvery = 500 * time.Millisecond

// Why a stream ends before its client leaves it.
var (
	errDraining = errors.New("the server is shutting down")
	errRevoked  = errors.New("the credential is no longer valid")
)

// watch knows the open streams by credential, and ends those whose credential ends. While there are any, one sweep at a
// time asks for each distinct credential, past what is remembered of it.
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
		of = &watched{c, map[*context.CancelCauseFunc]struct{}{}}
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
		credentials := w.distinct()
		if credentials == nil {
			return
		}
		w.check(credentials)
	}
}

// distinct is the credentials of open streams; nil ends the sweep.
func (w *watch) distinct() []*credential {
	w.mu.Lock()
	defer w.mu.Unlock()
	var credentials []*credential
	for _, of := range w.streams {
		credentials = append(credentials, of.credential)
	}
	w.sweeping = credentials != nil
	return credentials
}

// check ends the streams of credentials that are refused. Where nobody answers, they stay: nothing comes over them that
// is not asked for elsewhere.
func (w *watch) check(credentials []*credential) {
	var group errgroup.Group
	group.SetLimit(wide)
	for _, c := range credentials {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), sweepEvery)
			defer cancel()
			if errors.Is(w.authenticator.current(ctx, c), errUnauthorized) {
				w.end(c.principal.GetCredentialId())
			}
			return nil
		})
	}
	group.Wait()
}
