package edge

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

const (
	// idleConns is the maximum number of idle connections to an app. idleConnTime is the time after which an idle connection is closed.
	idleConns    = 64
	idleConnTime = time.Minute
	// unusedTime is the time after which an upstream without requests is removed. sweepTime is the time between two searches for upstreams to
	// remove.
	unusedTime = 2 * time.Minute
	sweepTime  = 10 * time.Second
	// redialTime is the pause between two attempts to connect to an app that does not run yet. wakeTime is the least time between two requests
	// to wake an app.
	redialTime = 50 * time.Millisecond
	wakeTime   = time.Second
	// retryTime is the time after which clients are told to try again.
	retryTime = 2 * time.Second
)

// upstreams has the connections to apps, by the identity of the app.
type upstreams struct {
	byApp sync.Map
	// open is the number of connections.
	open atomic.Int64
	// sweptAt is the time of the last sweep (Edge.passed). Only the watcher uses it.
	sweptAt time.Duration
}

// upstream has the connections to the processes of one app. active counts the requests to the app, whichever process serves them. usedAt and
// wokenAt are the times of the end of the last request and of the last request to wake the app (Edge.passed); 0: there was none.
type upstream struct {
	workspaceID, appID string
	active, usedAt     atomic.Int64
	wokenAt            atomic.Int64
	// passed is Edge.passed.
	passed func() time.Duration

	transport atomic.Pointer[generation]
}

// generation has the connections to the processes of one configuration of an app, with one time to begin a response.
type generation struct {
	number uint64
	// revision is a version of the app at which the app had this configuration and this time.
	revision uint64
	// headerTime is the headerTime of the target; if it is 0, the transport uses Limits.HeaderTime.
	headerTime time.Duration
	*http.Transport
}

// serves reports whether requests for a target use the generation. A request with a target of an earlier revision than the generation uses the
// generation, so that the generations of an app only go forward.
func (g *generation) serves(t *target) bool {
	return g != nil && (g.revision >= t.revision || g.number == t.generation && g.headerTime == t.headerTime)
}

// get returns the upstream of an app. If the app has accepted a new configuration, or its time to begin a response has changed, new requests
// use new connections. Requests in flight continue with the old process, which drains, and with the old time.
func (u *upstreams) get(e *Edge, t *target) *upstream {
	found, ok := u.byApp.Load(t.appID)
	if !ok {
		found, _ = u.byApp.LoadOrStore(t.appID, &upstream{workspaceID: t.workspaceID, appID: t.appID, passed: e.passed})
	}
	up := found.(*upstream)
	for {
		current := up.transport.Load()
		if current.serves(t) {
			return up
		}
		next := &generation{t.generation, t.revision, t.headerTime, up.newTransport(e, cmp.Or(t.headerTime, e.o.Limits.HeaderTime))}
		if up.transport.CompareAndSwap(current, next) {
			if current != nil {
				current.CloseIdleConnections()
			}
			return up
		}
	}
}

// sweep removes the upstreams that are not used any more. If more than most connections are open, it also closes all idle connections.
// Otherwise it does nothing if the last sweep was less than sweepTime ago.
func (u *upstreams) sweep(now time.Duration, most int64) {
	isFull := u.open.Load() > most
	if !isFull && now-u.sweptAt < sweepTime {
		return
	}
	u.sweptAt = now
	u.byApp.Range(func(key, found any) bool {
		up := found.(*upstream)
		isUnused := up.active.Load() == 0 && int64(now)-up.usedAt.Load() > int64(unusedTime) && up.usedAt.Load() != 0
		if isUnused {
			u.byApp.Delete(key) // a request that has just found the upstream uses its connections to the end
		}
		if t := up.transport.Load(); t != nil && (isUnused || isFull) {
			t.CloseIdleConnections()
		}
		return true
	})
}

func (u *upstreams) close() {
	u.byApp.Range(func(_, found any) bool {
		if t := found.(*upstream).transport.Load(); t != nil {
			t.CloseIdleConnections()
		}
		return true
	})
}

func (up *upstream) newTransport(e *Edge, headerTime time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return up.dial(ctx, e) },
		// The app and the client negotiate the encoding; the edge passes the body on unchanged.
		DisableCompression: true, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleConnTime,
		ResponseHeaderTimeout: headerTime, MaxResponseHeaderBytes: e.o.Limits.HeaderBytes, ExpectContinueTimeout: time.Second,
	}
}

// dialError is an error of the Dialer.
type dialError struct{ error }

func (d dialError) Unwrap() error { return d.error }

// dial connects to the process of the app. If the app does not run, dial wakes the app, and tries again for Limits.PageWait or
// Limits.StartWait.
func (up *upstream) dial(ctx context.Context, e *Edge) (net.Conn, error) {
	wait := e.o.Limits.StartWait
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok && isDocument(x.request) {
		wait = e.o.Limits.PageWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	timer := time.NewTimer(redialTime)
	defer timer.Stop()
	for {
		c, err := e.o.Dialer.Dial(ctx, up.workspaceID, up.appID)
		if err == nil {
			up.wokenAt.Store(0) // if the app falls asleep again, the next request wakes it at once
			e.upstreams.open.Add(1)
			return newAppConn(c, func() { e.upstreams.open.Add(-1) }), nil
		}
		if reasonOf(err) != reasonStopped {
			return nil, dialError{err}
		}
		up.wake(ctx, e)
		timer.Reset(redialTime)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, dialError{err}
		}
	}
}

// wake asks a sleeping app to start its process, at most once in wakeTime. An app that is not asleep ignores the command.
func (up *upstream) wake(ctx context.Context, e *Edge) {
	now, last := int64(up.passed()), up.wokenAt.Load()
	if last != 0 && now-last < int64(wakeTime) || !up.wokenAt.CompareAndSwap(last, now) {
		return
	}
	e.metrics.wakes.Inc()
	_, err := entity.AskAsPlatform[proto.Message](ctx, e.o.Asker, entity.KindApp, app.Identity(up.workspaceID, up.appID), &appv1.WakeApp{})
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		e.log.Warn("cannot wake an app", "workspace", up.workspaceID, "app", up.appID, "error", err)
	}
}

// reasonOf returns the reason of an error of the Dialer, or "" if the error has no reason.
func reasonOf(err error) string {
	var refused *entity.Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}

// RoundTrip implements http.RoundTripper with the connections to the app of the request.
func (e *Edge) RoundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	x.generation = x.upstream.transport.Load()
	return x.generation.RoundTrip(r)
}
