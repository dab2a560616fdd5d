package actors_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// tryingFollower is a follower. Its client may take frames without waiting.
type tryingFollower struct {
	*follower
	// takes decides whether the client takes all of the frames of a call.
	takes func(call int) bool

	mu      sync.Mutex
	calls   int
	partial []byte
}

func (b *bench) followTrying(t *testing.T, id string, takes func(call int) bool, adjust ...func(*follower)) *tryingFollower {
	t.Helper()
	f := &tryingFollower{takes: takes, follower: &follower{t: t, arrive: make(chan struct{}, 1), ended: make(chan error, 1)}}
	for _, fn := range adjust {
		fn(f.follower)
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	follow, err := b.router.Subscribe(ctx, activity.Subscription{
		WorkspaceID: id, Principal: person("usr_1"), Send: f.send, TrySend: f.trySend,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- follow(ctx) }()
	t.Cleanup(f.cancel)
	return f
}

func (f *tryingFollower) trySend(frames []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.partial != nil {
		f.t.Error("TrySend is called before Send has sent what is missing")
	}
	f.calls++
	if f.takes(f.calls) {
		return f.follower.send(frames) == nil
	}
	f.partial = bytes.Clone(frames)
	return false
}

func (f *tryingFollower) send(frames []byte) error {
	f.mu.Lock()
	if f.partial != nil && !bytes.Equal(frames, f.partial) {
		f.t.Errorf("Send is called with %q after TrySend with %q", frames, f.partial)
	}
	f.partial = nil
	f.mu.Unlock()
	return f.follower.send(frames)
}

func (f *tryingFollower) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func TestRound(t *testing.T) {
	t.Run("every_connection_gets_every_row_once", func(t *testing.T) { inBothModes(t, testRoundReachesAll) })
	t.Run("a_client_that_takes_nothing_delays_no_other", func(t *testing.T) { inBothModes(t, testRoundPassesStalledClient) })
}

func testRoundReachesAll(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	var followers []*tryingFollower
	for i := range 40 {
		followers = append(followers, b.followTrying(t, "ws_1", func(call int) bool { return (call+i)%5 != 0 }))
	}
	rows := 0
	// A connection that is catching up when a round begins gets its rows from its actor instead, on a busy machine all of them.
	b.eventually(func() bool {
		b.write("ws_1", rows+1, rows+100)
		rows += 100
		tried := 0
		for _, f := range followers {
			contiguous(t, f.wait(uint64(rows)), 1, uint64(rows))
			tried += f.called()
		}
		return tried >= len(followers)
	})
}

func testRoundPassesStalledClient(t *testing.T, mode func(*bench)) {
	const rows = 8000 // several rings
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	stalled := b.followTrying(t, "ws_1", func(int) bool { return false }, func(f *follower) { f.block = make(chan struct{}) })
	fast := b.followTrying(t, "ws_1", func(int) bool { return true })
	long := strings.Repeat("x", 200)
	for i := 0; i < rows; i += 100 {
		var ops []*activityv1.Operation
		for j := range 100 {
			ops = append(ops, operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("%s/%d", long, i+j)))
		}
		b.mustAsk(record("ws_1", ops...))
	}
	contiguous(t, fast.wait(rows), 1, rows)
	close(stalled.block)
	contiguous(t, stalled.wait(rows), 1, rows)
}

// TestStreamEndsDuringRound ends a stream while a round sends to its client: the stream ends after that, and with what the
// round has left of its frames.
func TestStreamEndsDuringRound(t *testing.T) {
	for name, takesAll := range map[string]bool{"all_was_sent": true, "a_part_was_sent": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.createWorkspace("ws_1", "usr_1")
			other := b.followTrying(t, "ws_1", func(int) bool { return true })
			entered, release := make(chan struct{}, 1), make(chan struct{})
			f := b.followTrying(t, "ws_1", func(int) bool {
				select {
				case entered <- struct{}{}:
				default: // a later round
				}
				<-release
				return takesAll
			})
			b.eventually(func() bool { // the first rows may find the stream not yet caught up, and are then sent by its actor
				b.write("ws_1", 1, 1)
				return len(entered) > 0
			})
			f.cancel()
			other.cancel()
			otherErr := <-other.ended
			select {
			case err := <-f.ended:
				close(release)
				t.Fatalf("the stream ended with %v while a round sent to it", err)
			default: // although a stream that was canceled later has ended
			}
			close(release)
			if otherErr != nil {
				t.Errorf("the other stream ended with %v", otherErr)
			}
			if err := <-f.ended; err != nil {
				t.Errorf("ended with %v", err)
			}
			if f.partial != nil {
				t.Error("what the round has left of its frames is not sent")
			}
		})
	}
}
