package runner

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// recorded implements Asker for an output.
type recorded struct {
	rows    []*sessionv1.Row
	deltas  []string
	inputs  []uint64 // of deltas
	batches []uint64
	times   []time.Time
	pause   time.Duration
	err     error
}

func (r *recorded) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	time.Sleep(r.pause)
	switch m := c.Message.(type) {
	case *sessionv1.RecordRows:
		if r.err != nil {
			return nil, r.err
		}
		r.rows = append(r.rows, m.GetRows()...)
		r.batches = append(r.batches, m.GetBatch())
	case *sessionv1.PublishDelta:
		r.deltas, r.times, r.inputs = append(r.deltas, m.GetText()), append(r.times, time.Now()), append(r.inputs, m.GetInputSeq())
	}
	return nil, nil
}

func TestLongTextIsSeveralRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		defer f.detach()
		text := strings.Repeat("aé€😀", 20_000)
		for part := range slices.Chunk([]rune(text), 7) {
			o.write(string(part), false)
		}
		if !f.flush(t.Context()) {
			t.Fatal("not flushed")
		}
		var all strings.Builder
		for _, row := range r.rows {
			if part := row.GetText().GetText(); len(part) > maxBlock || !utf8.ValidString(part) {
				t.Errorf("a row has %d bytes", len(part))
			}
			all.WriteString(row.GetText().GetText())
		}
		if all.String() != text {
			t.Error("the rows do not have the text")
		}
		for i, n := range r.batches {
			if n != uint64(i)+1 {
				t.Errorf("batches %v", r.batches)
			}
		}
	})
}

func TestDeltasAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		defer f.detach()
		for range 1000 {
			o.write("x", false)
			time.Sleep(time.Millisecond)
		}
		f.flush(t.Context())
		if n := len(r.deltas); n < 15 || n > 25 || strings.Join(r.deltas, "") != strings.Repeat("x", 1000) {
			t.Errorf("%d deltas: %q", n, r.deltas)
		}
	})
}

// TestDeltasFollowEarlierRows adds a tool and text before anything is sent: the delta of the text must not overtake the tool's row.
func TestDeltasFollowEarlierRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		o := newOutput(r, "ws/ses", newMetrics())
		o.add(&sessionv1.Row{Tool: &sessionv1.Tool{ToolCallId: "call"}})
		o.write("after the tool", false)
		// The text ends before the feed begins, so that both rows are in its first batch.
		o.mu.Lock()
		o.endBlock()
		o.mu.Unlock()
		f := o.attach(t.Context(), 1, "run", 1)
		defer f.detach()
		if !f.flush(t.Context()) {
			t.Fatal("not flushed")
		}
		if len(r.rows) != 2 || len(r.deltas) != 0 {
			t.Errorf("rows %v, deltas %q", r.rows, r.deltas)
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{pause: time.Minute}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		most := 0
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := range 3000 {
				o.write(strings.Repeat("x", 4<<10), i%2 == 0)
				o.mu.Lock()
				most = max(most, o.waiting+len(o.block)+o.deltaBytes)
				o.mu.Unlock()
			}
		}()
		<-ended
		if most > maxWaiting+maxDeltas+maxBlock {
			t.Errorf("%d bytes waited", most)
		}
		f.detach()
		o.close()
	})
}

func TestRefusedReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{err: entity.Errorf(entity.NotFound, "no such turn")}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		defer f.detach()
		o.write("x", false)
		if f.flush(t.Context()) {
			t.Error("flushed")
		}
		<-f.refused
	})
}

func TestUnreachableSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{err: errors.New("unreachable")}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		o.write("x", false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if f.flush(ctx) {
			t.Error("flushed")
		}
		f.detach()
	})
}

func TestMiddle(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("€", 100_000)} {
		got := middle(text, maxToolOutput)
		if len(got) > maxToolOutput || !utf8.ValidString(got) || len(text) <= maxToolOutput && got != text {
			t.Errorf("%d bytes became %d", len(text), len(got))
		}
	}
}

// TestOutputOfManyContents expects that the work for an update grows with its length alone.
func TestOutputOfManyContents(t *testing.T) {
	u := &updates{token: "token"}
	var contents []acp.ToolCallContent
	var all strings.Builder
	for i := range 20_000 {
		text := strings.Repeat("é", 5+i%20)
		contents = append(contents, acp.ToolContent(acp.TextBlock(text)))
		all.WriteString(text + "\n")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var call sessionv1.Tool
	u.apply(&call, acp.SessionToolCallUpdate{Content: contents})
	runtime.ReadMemStats(&after)
	if want := middle(strings.TrimSuffix(all.String(), "\n"), maxToolOutput); call.GetOutput() != want {
		t.Errorf("the output has %d bytes, and is not the beginning and the end of the contents", len(call.GetOutput()))
	}
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 64 {
		t.Errorf("%d MiB were allocated for an update of %d bytes", allocated, all.Len())
	}
}

// TestFlushOfAnAgentThatWritesOn expects that a turn ends although its agent never stops writing.
func TestFlushOfAnAgentThatWritesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{pause: 2 * time.Millisecond}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
				o.add(&sessionv1.Row{Plan: &sessionv1.Plan{}})
			}
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if !f.flush(ctx) {
			t.Error("not flushed")
		}
		f.detach()
		o.close()
		<-written
	})
}

// TestDeltasBetweenTurns has an agent write after the end of its turn. The deltas of a text belong to the same input as its row.
func TestDeltasBetweenTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		o := newOutput(r, "ws/ses", newMetrics())
		o.attach(t.Context(), 1, "run", 1).detach()
		o.write("late", false)
		f := o.attach(t.Context(), 2, "run2", 2)
		defer f.detach()
		time.Sleep(time.Second)
		o.write(" and later", false)
		time.Sleep(time.Second)
		f.flush(t.Context())
		if len(r.deltas) == 0 || len(r.rows) != 1 {
			t.Fatalf("deltas %q, rows %v", r.deltas, r.rows)
		}
		for _, seq := range r.inputs {
			if want := r.rows[0].GetText().GetInputSeq(); seq != want {
				t.Errorf("a delta belongs to the input %d, and its row to %d", seq, want)
			}
		}
	})
}

// slowAsker records rows after a second, unless the context ends before.
type slowAsker struct{ recorded }

func (s *slowAsker) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	select {
	case <-time.After(time.Second):
		return s.recorded.Ask(ctx, c)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestDetachWhileABatchIsSent ends a turn. Its agent waits for a permission and has written more since the last flush.
func TestDetachWhileABatchIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowAsker{}
		o := newOutput(r, "ws/ses", newMetrics())
		f := o.attach(t.Context(), 1, "run", 1)
		for i := range 3 {
			o.add(&sessionv1.Row{Tool: &sessionv1.Tool{ToolCallId: string(rune('a' + i))}})
			synctest.Wait()
		}
		f.detach()
		f = o.attach(t.Context(), 2, "run2", 2)
		defer f.detach()
		f.flush(t.Context())
		var all string
		for _, row := range r.rows {
			all += row.GetTool().GetToolCallId()
		}
		if all != "abc" {
			t.Errorf("the rows %q are recorded", all)
		}
	})
}
