package actors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A timeline is a stream of rows and of other events.
type timeline struct {
	*rapid.T
	journal *persistence.Store
	epoch   uint64
	stream  persistence.Stream
	head    uint64
	rows    []uint64
}

func (l *timeline) meanwhile() {
	for range rapid.IntRange(0, 4).Draw(l.T, "events") {
		l.head++
		var event proto.Message = &sessionv1.ReadMarked{}
		if rapid.Bool().Draw(l.T, "row") {
			event = &sessionv1.RowAdded{Seq: l.head}
			l.rows = append(l.rows, l.head)
		}
		payload, err := proto.Marshal(event)
		if err != nil {
			l.Fatal(err)
		}
		done := make(chan error, 1)
		l.journal.Append(persistence.Proposal{Stream: l.stream, Epoch: l.epoch, Expected: l.head - 1, Events: []persistence.Event{
			{Name: entity.MessageName(event), Payload: payload, At: time.UnixMilli(1)},
		}}, func(r persistence.Result) { done <- r.Err })
		if err := <-done; err != nil {
			l.Fatal(err)
		}
	}
}

// page returns the versions of the rows of a page, the position of the next one, and the last version of the view.
func (l *timeline) page(from uint64, descending bool) (rows []uint64, next, head uint64) {
	l.meanwhile()
	v, err := l.journal.View()
	if err != nil {
		l.Fatal(err)
	}
	defer v.Close()
	head = l.head
	l.meanwhile()
	page, err := readTimelinePage(source{view: v, stream: l.stream}, &kind{Kind: session.Kind}, &wirev1.ReadTimeline{
		From: from, Descending: descending, Limit: int32(rapid.IntRange(1, 4).Draw(l.T, "limit")),
	})
	if err != nil {
		l.Fatal(err)
	}
	for _, e := range page.GetEvents() {
		rows = append(rows, e.GetVersion())
	}
	return rows, page.GetNext(), head
}

// check compares got, in ascending order, with the rows of the range.
func (l *timeline) check(got []uint64, first, last uint64) {
	want := slices.DeleteFunc(slices.Clone(l.rows), func(row uint64) bool { return row < first || row > last })
	if !slices.Equal(got, want) {
		l.Fatalf("the rows from %d to %d are %v, not %v", first, last, want, got)
	}
}

// TestNoPositionPassesARowOfATimeline reads a timeline page by page, in both orders, while events become durable. After its last
// page, an ascending client continues behind the last row that it has.
func TestNoPositionPassesARowOfATimeline(t *testing.T) {
	journal, epoch := openInterleaved(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		l := &timeline{T: t, journal: journal, epoch: epoch, stream: persistence.Stream(fmt.Sprint("session/ws_", runs))}
		var received []uint64
		for range 6 {
			from := uint64(1)
			if len(received) > 0 {
				from = received[len(received)-1] + 1
			}
			for from > 0 {
				rows, next, head := l.page(from, false)
				if received = append(received, rows...); next > 0 {
					head = next - 1
				}
				l.check(received, 1, head)
				from = next
			}
		}
		received = nil
		for from, last := uint64(0), uint64(0); ; {
			rows, next, head := l.page(from, true)
			if received = append(received, rows...); last == 0 {
				last = head
			}
			ascending := slices.Clone(received)
			slices.Reverse(ascending)
			l.check(ascending, next+1, last) // the next page begins with the row next
			if from = next; from == 0 {
				break
			}
		}
	})
}
