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
	// idleConns is the number of idle connections to an app that are kept, for idleConnTime.
	idleConns    = 64
	idleConnTime = time.Minute
	// unusedTime is the time after which an upstream without requests is removed, and sweepTime that between two searches for such.
	unusedTime = 2 * time.Minute
	sweepTime  = 10 * time.Second
	// redialTime is the pause between two attempts to reach an app that does not run yet, and wakeTime that between two requests to wake it.
	redialTime = 50 * time.Millisecond
	wakeTime   = time.Second
	// retryTime is the time after which clients are asked to try again.
	retryTime = 2 * time.Second
)

// upstreams has the connections to apps, by the identity of the app.
type upstreams struct {
	byApp sync.Map
	// open is the number of connections.
	open atomic.Int64
	// sweptAt is the time of the last sweep. Only the watcher uses it.
	sweptAt time.Time
}

// upstream has the connections to the process of one app. Its counters are those of the app, regardless of the process.
type upstream struct {
	workspaceID, appID string
	active, usedAt     atomic.Int64
	wokenAt            atomic.Int64

	transport atomic.Pointer[generation]
}

// generation has the connections to the processes of one configuration, which have one time to begin a response.
type generation struct {
	number uint64
	// revision is the version of the app in which it had this configuration and time.
	revision uint64
	// headerTime is that of the app; 0: it has none, and the time of the transport is Limits.HeaderTime.
	headerTime time.Duration
	*http.Transport
}

// serves reports whether requests for a target use the generation. A target that was looked up earlier than the one of the generation does,
// so that the generations of an app only go forward.
func (g *generation) serves(t *target) bool {
	return g != nil && (g.revision >= t.revision || g.number == t.generation && g.headerTime == t.headerTime)
}

// get returns the upstream of an app. If the app has accepted another configuration, or has another time to begin its responses, new
// requests get new connections; those in flight continue with the old process, which drains, and with the old time.
func (u *upstreams) get(e *Edge, t *target) *upstream {
	found, ok := u.byApp.Load(t.appID)
	if !ok {
		found, _ = u.byApp.LoadOrStore(t.appID, &upstream{workspaceID: t.workspaceID, appID: t.appID})
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

// sweep removes the upstreams that are not used any more. With more than most connections it also closes those without a request.
// Otherwise it does nothing if the last one was less than sweepTime ago.
func (u *upstreams) sweep(now time.Time, most int64) {
	isFull := u.open.Load() > most
	if !isFull && now.Sub(u.sweptAt) < sweepTime {
		return
	}
	u.sweptAt = now
	u.byApp.Range(func(key, found any) bool {
		up := found.(*upstream)
		isUnused := up.active.Load() == 0 && now.UnixNano()-up.usedAt.Load() > int64(unusedTime) && up.usedAt.Load() != 0
		if isUnused {
			u.byApp.Delete(key) // a request that has just found it uses its connections to the end
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
		// The app and the client agree on the encoding; the edge passes it on.
		DisableCompression: true, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleConnTime,
		ResponseHeaderTimeout: headerTime, MaxResponseHeaderBytes: e.o.Limits.HeaderBytes, ExpectContinueTimeout: time.Second,
	}
}

// dialError is an error of the Dialer.
type dialError struct{ error }

func (d dialError) Unwrap() error { return d.error }

// dial connects to the process of the app. If the app does not run, it is woken, and dial tries again until the request has waited long
// enough.
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
			up.wokenAt.Store(0) // if the app falls asleep again, it is woken at once
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

// wake makes the process of a sleeping app start. It has no effect on other apps. It asks the app at most once in wakeTime.
func (up *upstream) wake(ctx context.Context, e *Edge) {
	now, last := time.Now().UnixNano(), up.wokenAt.Load()
	if now-last < int64(wakeTime) || !up.wokenAt.CompareAndSwap(last, now) {
		return
	}
	e.metrics.wakes.Inc()
	_, err := entity.AskAsPlatform[proto.Message](ctx, e.o.Asker, entity.KindApp, app.Identity(up.workspaceID, up.appID), &appv1.WakeApp{})
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		e.log.Warn("cannot wake an app", "workspace", up.workspaceID, "app", up.appID, "error", err)
	}
}

// reasonOf returns the reason of an error of the Dialer, or "".
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
