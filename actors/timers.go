package actors

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// maxDelivering bounds the due commands of one partition that are sent and not answered.
	maxDelivering = 64
	// deliveryTimeout bounds one attempt to deliver a due command.
	deliveryTimeout = 10 * time.Second
	// longestNap is the longest pause between two looks at the clock, which may be set at any time.
	longestNap = 15 * time.Second
	// A timer whose command was answered, and which still waits, is delivered again after firstRedelivery, and then after
	// pauses that grow to longestRedelivery. maxHeld bounds those that are remembered.
	firstRedelivery   = 100 * time.Millisecond
	longestRedelivery = time.Minute
	maxHeld           = 1024
)

type (
	// timerSet tells of a timer that is due before those that the timers actor knows of.
	timerSet struct{ at int64 }
	// checkTimers has the timers actor deliver what is due.
	checkTimers struct{}
	// delivered ends the delivery of a row.
	delivered struct {
		value string
		// remains tells that the timer waits still.
		remains bool
		err     error
	}
)

// timers sends the due commands of a partition's timers. It keeps in memory what it is delivering and when it looks at
// the index next, however many timers wait: a waiting timer is a row on disk.
//
// A row is delivered until it has disappeared from the index, so that no crash loses a timer. It disappears in the batch
// that records what the due command did, so that none is carried out twice.
type timers struct {
	node      *System
	partition persistence.Partition
	effects   *effects
	mailbox   *mailbox

	self *actor.PID
	// cursor is the value up to which the index was read: what is due before it is being delivered, or is held.
	cursor string
	// delivering are the values of rows whose command is on its way.
	delivering map[string]struct{}
	// full tells that more is due than can be delivered at once.
	full bool
	held holding
	// next wakes the actor.
	next *time.Timer
}

func (t *timers) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		t.self = ctx.Self()
		t.delivering, t.held = map[string]struct{}{}, holding{}
		t.check()
	case timerSet:
		// It may be due before the place to which the index was read.
		t.cursor = min(t.cursor, dueValue(m.at))
		t.check()
	case checkTimers, tick:
		t.check()
	case delivered:
		t.delivered(m)
	case *actor.Restarting:
		t.end()
	case *actor.Stopping:
		t.mailbox.closed.Store(true)
		t.end()
	}
}

func (t *timers) end() {
	if t.next != nil {
		t.next.Stop()
	}
	t.effects.armed.Store(math.MaxInt64)
}

// check delivers what is due, and arms the timer for what is due next.
func (t *timers) check() {
	if t.effects.ctx.Err() != nil {
		return // the term or the process ends: the next one begins anew
	}
	if t.full && len(t.delivering) > maxDelivering/2 {
		return // the end of a delivery checks again
	}
	// A timer that is set from now on may be missing in the view, and is told of.
	t.effects.armed.Store(math.MaxInt64)
	due, err := t.deliverDue()
	pause := longestNap
	switch {
	case errors.Is(err, persistence.ErrClosed):
		return
	case err != nil:
		t.node.log.Error("timers cannot be read", slog.Int("partition", int(t.partition)), slog.Any("error", err))
		pause = firstRedelivery
	case due < math.MaxInt64:
		pause = min(pause, max(time.UnixMilli(due).Sub(t.node.clock()), 0))
	}
	pause = min(pause, t.held.untilNext())
	if t.next != nil {
		t.next.Stop()
	}
	self := t.self
	t.next = time.AfterFunc(pause, func() { t.node.root.Send(self, checkTimers{}) })
	if err == nil {
		t.effects.armed.Store(due)
	}
}

// deliverDue begins to deliver what is due, as far as there is room, and returns when the next timer is due: MaxInt64
// where none waits, or where there was no room to find out.
func (t *timers) deliverDue() (next int64, err error) {
	v, err := t.node.journal.View()
	if err != nil {
		return 0, err
	}
	defer v.Close()
	t.full = false
	if t.held.rescan() {
		t.cursor = ""
	}
	for _, value := range t.held.ready() {
		if len(t.delivering) == maxDelivering {
			t.full = true
			return math.MaxInt64, nil
		}
		data, ok, err := v.Lookup(t.partition, timerIndex, value, 0)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			delete(t.held.rows, value)
		default:
			t.begin(value, data)
		}
	}
	now := t.node.clock().UnixMilli()
	for row, err := range v.Index(t.partition, persistence.Query{Index: timerIndex, Prefix: true, After: t.cursor}) {
		if err != nil {
			return 0, err
		}
		at, err := dueAt(row.Value)
		if err != nil {
			return 0, err
		}
		if at > now {
			return at, nil
		}
		_, begun := t.delivering[row.Value]
		if !begun && !t.held.has(row.Value) {
			if len(t.delivering) == maxDelivering {
				t.full = true
				return math.MaxInt64, nil
			}
			t.begin(row.Value, row.Data)
		}
		t.cursor = row.Value
	}
	return math.MaxInt64, nil
}

// begin delivers one row in the background. data is the journal's and is not kept.
func (t *timers) begin(value string, data []byte) {
	value = strings.Clone(value)
	t.delivering[value] = struct{}{}
	t.held.begin(value)
	var row runtimev1.Timer
	err := proto.Unmarshal(data, &row)
	self := t.self
	t.node.background(func() {
		d := delivered{value: value, remains: true, err: err}
		if err == nil {
			d.remains, d.err = t.deliver(value, &row)
		}
		t.node.root.Send(self, d)
	})
}

// deliver sends the command of a row and reports whether the row remains.
func (t *timers) deliver(value string, row *runtimev1.Timer) (remains bool, err error) {
	command, err := decodePayload(row.GetCommand())
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(t.effects.ctx, deliveryTimeout)
	defer cancel()
	_, err = t.node.ask(ctx, entity.Command{
		Kind: row.GetKind(), Identity: row.GetIdentity(), Principal: entity.Platform(), Message: command,
	})
	remains, failed := t.node.remains(t.partition, timerIndex, value)
	if failed != nil {
		return true, failed
	}
	if !remains {
		t.node.metrics.timerLateness.Observe(t.node.clock().Sub(time.UnixMilli(row.GetAt())).Seconds())
		return false, nil
	}
	return true, err
}

func (t *timers) delivered(d delivered) {
	delete(t.delivering, d.value)
	switch {
	case !d.remains:
		delete(t.held.rows, d.value)
		t.node.metrics.timers.WithLabelValues("done").Inc()
	case t.effects.ctx.Err() != nil:
		return
	default:
		outcome, reason := "failed", d.err
		if d.err == nil {
			outcome, reason = "remains", errTimerRemains
		}
		t.node.metrics.timers.WithLabelValues(outcome).Inc()
		attempts := t.held.hold(d.value, firstRedelivery, longestRedelivery)
		t.node.log.Warn("a timer is delivered again", slog.String("timer", printable(d.value[8:])), slog.Int("attempts", attempts),
			slog.Any("error", reason))
	}
	if t.full || d.remains {
		t.check()
	}
}

var errTimerRemains = errors.New("the command was carried out and did not remove its timer")

// printable shows a value in a log.
func printable(value string) string { return strings.ReplaceAll(value, "\x00", " ") }

// remains reports whether an index has a row still.
func (s *System) remains(p persistence.Partition, index, value string) (bool, error) {
	v, err := s.journal.View()
	if err != nil {
		return true, err
	}
	defer v.Close()
	_, ok, err := v.Lookup(p, index, value, 0)
	return ok, err
}

// holding remembers rows that are tried again later, a bounded number of them. The rows past the bound are found by
// reading the index from its beginning, once the longest pause has passed.
type holding struct {
	rows map[string]*heldRow
	// overflowed is when the index is to be read from its beginning; the zero time: not needed.
	overflowed time.Time
}

type heldRow struct {
	attempts int
	next     time.Time
}

func (h *holding) has(value string) bool { return h.rows[value] != nil }

// hold notes that a row failed, and returns how often it has.
func (h *holding) hold(value string, first, longest time.Duration) (attempts int) {
	row := h.rows[value]
	if row == nil {
		if len(h.rows) >= maxHeld {
			if h.overflowed.IsZero() {
				h.overflowed = time.Now().Add(longest)
			}
			return 1
		}
		if h.rows == nil {
			h.rows = map[string]*heldRow{}
		}
		row = &heldRow{}
		h.rows[value] = row
	}
	row.attempts++
	pause := min(first<<min(row.attempts-1, 20), longest)
	row.next = time.Now().Add(pause/2 + rand.N(pause/2+1))
	return row.attempts
}

// ready are the rows whose pause has passed.
func (h *holding) ready() []string {
	var all []string
	now := time.Now()
	for value, row := range h.rows {
		if !row.next.IsZero() && !row.next.After(now) {
			all = append(all, value)
		}
	}
	return all
}

// begin notes that a row is tried now. It is not ready until it is held again.
func (h *holding) begin(value string) {
	if row := h.rows[value]; row != nil {
		row.next = time.Time{}
	}
}

// rescan tells, once, that the index is to be read from its beginning.
func (h *holding) rescan() bool {
	if h.overflowed.IsZero() || h.overflowed.After(time.Now()) {
		return false
	}
	h.overflowed = time.Time{}
	return true
}

// untilNext is the pause until a row is ready or the index is to be read again.
func (h *holding) untilNext() time.Duration {
	next := h.overflowed
	for _, row := range h.rows {
		if !row.next.IsZero() && (next.IsZero() || row.next.Before(next)) {
			next = row.next
		}
	}
	if next.IsZero() {
		return math.MaxInt64
	}
	return max(time.Until(next), 0)
}
