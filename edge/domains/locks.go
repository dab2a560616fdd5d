package domains

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	"github.com/atelier-run/atelier/retry"
)

const (
	// lease is how long a lock is held without a renewal. It is renewed three times as often.
	lease = 30 * time.Second
	// longestWait is the longest pause between two attempts to acquire a lock.
	longestWait = time.Second
	// storeTimeout limits a change of the store that must be tried although the context of the operation has ended.
	storeTimeout = 10 * time.Second
)

// locks are the locks that a session holds.
type locks struct {
	mu   sync.Mutex
	held []*heldLock
}

type heldLock struct {
	name  string
	token uint64
	// stop ends the renewal of the lease, which closes stopped.
	stop    context.CancelFunc
	stopped chan struct{}
}

// fences returns the locks that are held, in the order of their names.
func (l *locks) fences() []*certificatesv1.Fence {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*certificatesv1.Fence
	for _, h := range l.held {
		all = append(all, &certificatesv1.Fence{Lock: h.name, Token: h.token})
	}
	return all
}

// acquire waits for a lock. It returns the error of ctx, or of the store.
func (l *locks) acquire(ctx context.Context, f *files, name string) error {
	for {
		acquired, err := entity.ReplyAs[*certificatesv1.Acquired](
			f.ask(ctx, &certificatesv1.AcquireLock{Name: name, LeaseMs: lease.Milliseconds()}))
		if err != nil {
			return err
		}
		if token := acquired.GetToken(); token != 0 {
			l.add(f, name, token)
			return nil
		}
		wait := time.UnixMilli(acquired.GetExpiresAt()).Sub(f.clock())
		if !retry.Pause(ctx, min(max(wait, longestWait/20), longestWait)) {
			return ctx.Err()
		}
	}
}

func (l *locks) add(f *files, name string, token uint64) {
	ctx, stop := context.WithCancel(context.Background())
	h := &heldLock{name: name, token: token, stop: stop, stopped: make(chan struct{})}
	l.mu.Lock()
	l.held = append(l.held, h)
	slices.SortFunc(l.held, func(a, b *heldLock) int { return strings.Compare(a.name, b.name) })
	l.mu.Unlock()
	go h.renew(ctx, f)
}

// renew extends the lease until ctx is canceled or the lock was lost. After the loss the store refuses the fence.
func (h *heldLock) renew(ctx context.Context, f *files) {
	defer close(h.stopped)
	for retry.Pause(ctx, lease/3) {
		_, err := f.ask(ctx, &certificatesv1.RenewLock{Name: h.name, Token: h.token, LeaseMs: lease.Milliseconds()})
		if entity.HasCode(err, entity.Forbidden) {
			f.log.Warn("a lock of the store of certificates was lost", slog.String("lock", h.name), slog.Uint64("token", h.token))
			return
		}
	}
}

// release releases a lock. It has no effect if the lock is not held.
func (l *locks) release(ctx context.Context, f *files, name string) error {
	l.mu.Lock()
	i := slices.IndexFunc(l.held, func(h *heldLock) bool { return h.name == name })
	if i < 0 {
		l.mu.Unlock()
		return nil
	}
	h := l.held[i]
	l.held = slices.Delete(l.held, i, i+1)
	l.mu.Unlock()
	h.stop()
	<-h.stopped
	_, err := f.ask(ctx, &certificatesv1.ReleaseLock{Name: h.name, Token: h.token})
	return err
}

// releaseAll releases all locks. A lock that cannot be released is free after its lease.
func (l *locks) releaseAll(ctx context.Context, f *files) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	for _, fence := range l.fences() {
		if err := l.release(ctx, f, fence.GetLock()); err != nil {
			f.log.Warn("a lock of the store of certificates could not be released", slog.String("lock", fence.GetLock()), slog.Any("error", err))
		}
	}
}
