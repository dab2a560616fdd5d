package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/await"
)

// isPolled reports whether the drive waits for a scan after a number of scans.
func (n *node) isPolled(r *reader, scans float64) bool {
	n.t.Helper()
	isPolled := false
	await.True(n.t, fmt.Sprintf("%v scans", scans), func() bool {
		isIdle := make(chan bool, 1)
		err := r.do(func() {
			d := r.drives[workspace]
			idle := !d.isBusy && counter(n.t, n.observer.metrics.scans.WithLabelValues("ok")) >= scans
			if idle && r.drainHints() == nil {
				isPolled = !d.scanSince.IsZero()
			}
			isIdle <- idle
		})
		if err != nil {
			n.t.Fatal(err)
		}
		return <-isIdle
	})
	return isPolled
}

// TestPollingEnds observes a drive while no more folders can be watched, because another drive has too many. When the observation of
// that one has ended, the drive is scanned once more and then not polled.
func TestPollingEnds(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	r, err := n.observer.retain()
	if err != nil {
		t.Fatal(err)
	}
	defer n.observer.releaseReader()
	r.hints.mu.Lock()
	for id := range int32(maxHints) {
		r.hints.drives[-1-id] = "ws_2"
	}
	r.hints.mu.Unlock()
	w, err := n.observer.Begin(t.Context(), workspace, session)
	if err != nil {
		t.Fatal(err)
	}
	if !n.isPolled(r, 1) {
		t.Error("a drive whose folders are not watched is not polled")
	}
	r.hints.forget("ws_2")
	if err := r.do(func() { r.drives[workspace].scanAt = time.Now() }); err != nil {
		t.Fatal(err)
	}
	if n.isPolled(r, 2) {
		t.Error("a drive whose folders are watched is polled")
	}
	if err := w.End(t.Context()); err != nil {
		t.Error(err)
	}
}
