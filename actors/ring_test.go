package actors

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

func row(seq uint64, kind activityv1.Kind, size int) persistence.Event {
	return persistence.Event{Version: seq, Payload: activity.Encode(activity.Row{Seq: seq, Operation: &activityv1.Operation{
		Kind: kind, Path: strings.Repeat("x", size), Author: &activityv1.Author{Actor: "system"},
	}})}
}

// TestRingReturnsEachRowOnce appends batches of rows and reads them from random positions.
func TestRingReturnsEachRowOnce(t *testing.T) {
	cursor := activity.NewCursor([]byte("secret"), "ws_1")
	rapid.Check(t, func(t *rapid.T) {
		reads := rapid.Bool().Draw(t, "reads")
		next := rapid.Uint64Range(1, 100).Draw(t, "first")
		r := newRing(reads, next)
		var wanted []uint64
		follower := next
		var got []uint64
		for range rapid.IntRange(1, 40).Draw(t, "batches") {
			var batch []persistence.Event
			for range rapid.IntRange(1, 30).Draw(t, "rows") {
				kind := rapid.SampledFrom([]activityv1.Kind{activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_READ}).Draw(t, "kind")
				batch = append(batch, row(next, kind, rapid.IntRange(1, 9000).Draw(t, "size")))
				if reads || kind != activityv1.Kind_KIND_READ {
					wanted = append(wanted, next)
				}
				next++
			}
			r.append(cursor, batch)
			if rapid.Bool().Draw(t, "follow") {
				got, follower = drain(t, r, got, follower, &wanted)
			}
		}
		got, follower = drain(t, r, got, follower, &wanted)
		if follower != next {
			t.Fatalf("the follower is at %d, not %d", follower, next)
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Fatalf("got %v, not %v", got, wanted)
		}
	})
}

// drain reads the ring to its end. Rows that the ring no longer has count as read from the journal.
func drain(t *rapid.T, r *ring, got []uint64, from uint64, wanted *[]uint64) ([]uint64, uint64) {
	for {
		frames, next, ok := r.read(from)
		if !ok {
			start := r.published.Load().start
			if from >= start {
				t.Fatalf("the ring of %d to %d does not have %d", start, r.published.Load().end, from)
			}
			for _, seq := range *wanted {
				if seq >= from && seq < start {
					got = append(got, seq)
				}
			}
			from = start
			continue
		}
		if len(frames) == 0 {
			return got, next
		}
		for _, data := range bytes.Split(frames, []byte("data: "))[1:] {
			var seq uint64
			if _, err := fmt.Sscanf(string(data), `{"seq":%d`, &seq); err != nil {
				t.Fatal(err)
			}
			got = append(got, seq)
		}
		from = next
	}
}

func TestRingRestartsAfterGap(t *testing.T) {
	cursor := activity.NewCursor([]byte("secret"), "ws_1")
	r := newRing(false, 1)
	r.append(cursor, []persistence.Event{row(1, activityv1.Kind_KIND_WRITE, 1)})
	r.append(cursor, []persistence.Event{row(5, activityv1.Kind_KIND_WRITE, 1)})
	if _, _, ok := r.read(2); ok {
		t.Error("the ring answers for a row that it never had")
	}
	if frames, next, ok := r.read(5); !ok || next != 6 || !bytes.Contains(frames, []byte(`"seq":5`)) {
		t.Errorf("%q, %d, %v", frames, next, ok)
	}
	r.resume(9)
	if _, _, ok := r.read(6); ok {
		t.Error("the ring answers for rows that it missed")
	}
}
