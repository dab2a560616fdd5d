package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A follower collects the seqs that a stream sends.
type follower struct {
	t      *testing.T
	mu     sync.Mutex
	seqs   []uint64
	arrive chan struct{}
	block  chan struct{}
	cancel context.CancelFunc
	ended  chan error
}

func (b *bench) follow(t *testing.T, id string, after uint64, reads bool, adjust ...func(*follower)) *follower {
	t.Helper()
	f := &follower{t: t, arrive: make(chan struct{}, 1), ended: make(chan error, 1)}
	for _, fn := range adjust {
		fn(f)
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	follow, err := b.router.Subscribe(ctx, activity.Subscription{
		WorkspaceID: id, Principal: person("usr_1"), After: after, Reads: reads, Send: f.send,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- follow(ctx) }()
	t.Cleanup(f.cancel)
	return f
}

func (f *follower) send(frames []byte) error {
	if f.block != nil {
		<-f.block
	}
	cursor := activity.NewCursor(secret, "ws_1")
	f.mu.Lock()
	defer f.mu.Unlock()
	for frame := range bytes.SplitSeq(bytes.TrimSuffix(frames, []byte("\n\n")), []byte("\n\n")) {
		lines := strings.Split(string(frame), "\n")
		if len(lines) != 3 {
			f.t.Errorf("a frame is %q", frame)
			continue
		}
		seq, err := cursor.Position(strings.TrimPrefix(lines[0], "id: "))
		if err != nil {
			f.t.Error(err)
		}
		if !strings.Contains(lines[2], fmt.Sprintf(`{"seq":%d,`, seq)) {
			f.t.Errorf("the frame %q does not belong to %d", lines[2], seq)
		}
		f.seqs = append(f.seqs, seq)
	}
	select {
	case f.arrive <- struct{}{}:
	default:
	}
	return nil
}

// wait returns the seqs when the last of them is at least want.
func (f *follower) wait(want uint64) []uint64 {
	f.t.Helper()
	timeout := time.After(patience)
	for {
		f.mu.Lock()
		seqs := append([]uint64(nil), f.seqs...)
		f.mu.Unlock()
		if len(seqs) > 0 && seqs[len(seqs)-1] >= want {
			return seqs
		}
		select {
		case <-f.arrive:
		case <-timeout:
			select {
			case err := <-f.ended:
				f.t.Errorf("the stream ended: %v", err)
			default:
			}
			f.t.Fatalf("%d has not arrived: %d rows so far", want, len(seqs))
		}
	}
}

func contiguous(t *testing.T, seqs []uint64, from, to uint64) {
	t.Helper()
	if uint64(len(seqs)) != to-from+1 {
		t.Errorf("%d rows, not %d to %d", len(seqs), from, to)
	}
	for i, seq := range seqs {
		if seq != from+uint64(i) {
			t.Fatalf("row %d has the seq %d, after %d", i, seq, from)
		}
	}
}

func (b *bench) write(id string, from, to int) {
	b.t.Helper()
	for i := from; i <= to; i++ {
		b.mustAsk(record(id, operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("f%d", i))))
	}
}

func TestStreamReplaysThenFollows(t *testing.T) {
	inBothModes(t, testStreamReplaysThenFollows)
}

func testStreamReplaysThenFollows(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	b.write("ws_1", 1, 300)
	var followers []*follower
	var wg sync.WaitGroup
	wg.Go(func() { b.write("ws_1", 301, 900) })
	for i := range 8 {
		followers = append(followers, b.follow(t, "ws_1", uint64(i*40), false))
	}
	wg.Wait()
	for i, f := range followers {
		contiguous(t, f.wait(900), uint64(i*40)+1, 900)
	}
}

func TestStreamOmitsReadsByDefault(t *testing.T) {
	inBothModes(t, testStreamOmitsReadsByDefault)
}

func testStreamOmitsReadsByDefault(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a"), operation(activityv1.Kind_KIND_READ, "a")))
	without, with := b.follow(t, "ws_1", 0, false), b.follow(t, "ws_1", 0, true)
	without.wait(1)
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_READ, "b"), operation(activityv1.Kind_KIND_WRITE, "a")))
	if got := fmt.Sprint(without.wait(4)); got != "[1 4]" {
		t.Errorf("without reads: %s", got)
	}
	contiguous(t, with.wait(4), 1, 4)
}

func TestSlowStreamFallsBackToJournal(t *testing.T) {
	inBothModes(t, testSlowStreamFallsBackToJournal)
}

func testSlowStreamFallsBackToJournal(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	slow := b.follow(t, "ws_1", 0, false, func(f *follower) { f.block = make(chan struct{}) })
	fast := b.follow(t, "ws_1", 0, false)
	long := strings.Repeat("x", 200)
	const rows = 8000 // several rings
	for i := 0; i < rows; i += 100 {
		var ops []*activityv1.Operation
		for j := range 100 {
			ops = append(ops, operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("%s/%d", long, i+j)))
		}
		b.mustAsk(record("ws_1", ops...))
	}
	contiguous(t, fast.wait(rows), 1, rows)
	close(slow.block)
	contiguous(t, slow.wait(rows), 1, rows)
}

func TestStreamOfStrangerIsRefused(t *testing.T) { inBothModes(t, testStreamOfStrangerIsRefused) }

func testStreamOfStrangerIsRefused(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	_, err := b.router.Subscribe(t.Context(), activity.Subscription{WorkspaceID: "ws_1", Principal: person("usr_2")})
	if code(err) != entity.NotFound {
		t.Errorf("the stranger gets %v", err)
	}
}

func TestStreamEndsWithContextOrClient(t *testing.T) {
	inBothModes(t, testStreamEndsWithContextOrClient)
}

func testStreamEndsWithContextOrClient(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	f := b.follow(t, "ws_1", 0, false)
	f.cancel()
	if err := <-f.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	gone := errors.New("gone")
	follow, err := b.router.Subscribe(t.Context(), activity.Subscription{
		WorkspaceID: "ws_1", Principal: person("usr_1"), Send: func([]byte) error { return gone },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.write("ws_1", 1, 1)
	if err := follow(t.Context()); !errors.Is(err, gone) {
		t.Errorf("ended with %v", err)
	}
}

func TestStreamSurvivesFailedAppend(t *testing.T) { inBothModes(t, testStreamSurvivesFailedAppend) }

func testStreamSurvivesFailedAppend(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	f := b.follow(t, "ws_1", 0, false)
	b.write("ws_1", 1, 3)
	b.faults.failing(refuseOnce("activity/ws_1"))
	if _, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "x"))); err == nil {
		t.Fatal("a refused append is acknowledged")
	}
	b.write("ws_1", 4, 6)
	contiguous(t, f.wait(6), 1, 6)
}

// TestSubscribeHasDeadline delays the views that the workspace needs for its activation.
func TestSubscribeHasDeadline(t *testing.T) {
	inBothModes(t, testSubscribeHasDeadline)
}

func testSubscribeHasDeadline(t *testing.T, mode func(*bench)) {
	b := newBench(t, mode)
	b.createWorkspace("ws_1", "usr_1")
	b.restart()
	views := make(chan struct{})
	b.faults.mu.Lock()
	b.faults.views = views
	b.faults.mu.Unlock()
	b.router.Deadline = 20 * time.Millisecond
	_, err := b.router.Subscribe(context.Background(), activity.Subscription{
		WorkspaceID: "ws_1", Principal: person("usr_1"), Send: func([]byte) error { return nil },
	})
	var refused *entity.Error
	if !errors.As(err, &refused) || refused.Code != entity.Unavailable {
		t.Errorf("%v", err)
	}
	close(views)
	b.router.Deadline = patience
	b.follow(t, "ws_1", 0, false)
}
