package actors

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

const (
	// maxDelivering limits the due commands of one partition in flight.
	maxDelivering = 64
	// deliveryTimeout limits one attempt to send a due command.
	deliveryTimeout = 10 * time.Second
	// longestNap is the longest pause between two readings of the clock, which may be set at any time.
	longestNap = 15 * time.Second
	// maxSearched limits the rows of one turn of the search for timers that were set while the clock was ahead.
	maxSearched = 256
	// maxRetries limits the rows that are remembered because they are delivered again.
	maxRetries = 1024
)

// redelivering has the pauses before a timer that still exists after its command was answered is delivered again.
var redelivering = retry.Policy{First: 100 * time.Millisecond, Longest: time.Minute}

type (
	// timerSet notifies the timers actor of a timer that is due earlier than all timers that the actor knows.
	timerSet struct{ at int64 }
	// checkTimers makes the timers actor deliver the timers that are due.
	checkTimers struct{}
	// delivered is the result of a delivery.
	delivered struct {
		value string
		// remains is set if the timer still exists.
		remains bool
		err     error
	}
)

// A timers actor sends the due commands of a partition's timers. It has in memory only the rows that it is delivering or
// retries, and the time at which it reads the index next, however many timers wait.
//
// A row is delivered until it has disappeared from the index, so that no crash loses a timer. It disappears in the batch with
// the events of the due command, so that no command is applied twice.
type timers struct {
	system    *System
	partition persistence.Partition
	effects   *effects
	mailbox   *mailbox

	self *actor.PID
	// cursor is a value: the next read of the index continues after it. Rows up to it are being delivered or retried.
	cursor string
	// ahead is the value of the last row in the search for timers that were set while the clock was ahead. searched is set when the search
	// has ended. A turn searches maxSearched rows, so that the timers that are due meanwhile do not wait for the end of the search.
	ahead    string
	searched bool
	// delivering has the rows with a command in flight, by value.
	delivering map[string]*delivery
	// full is set if more timers are due than can be delivered at once.
	full    bool
	retries retries
	// next wakes the actor.
	next *time.Timer
}

// A delivery is a row with a command in flight. passed is set when the index is read past the row meanwhile: the timer may have been
// removed, and set again for the same time.
type delivery struct{ passed bool }

func (t *timers) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		t.self = ctx.Self()
		t.delivering, t.retries = map[string]*delivery{}, retries{}
		t.check()
	case timerSet:
		// The timer may be due before the cursor.
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

// check delivers the timers that are due, and arms the actor's own timer for the next timer that becomes due.
func (t *timers) check() {
	if t.effects.ctx.Err() != nil {
		return // the term has ended
	}
	if t.full && len(t.delivering) > maxDelivering/2 {
		return // the end of a delivery checks again
	}
	// The view may lack timers that are set from now on; the actor is notified of each until armed is set below.
	t.effects.armed.Store(math.MaxInt64)
	due, err := t.deliverDue()
	pause := longestNap
	switch {
	case errors.Is(err, persistence.ErrClosed):
		return
	case err != nil:
		t.system.log.Error("cannot read the rows of timers; trying again", slog.Int("partition", int(t.partition)), slog.Any("error", err))
		pause = redelivering.After(1)
	case !t.full && !t.searched:
		pause = 0 // the next turn of the search
	case due < math.MaxInt64:
		pause = min(pause, max(time.UnixMilli(due).Sub(t.system.clock()), 0))
	}
	pause = min(pause, t.retries.untilNext())
	if t.next != nil {
		t.next.Stop()
	}
	self := t.self
	t.next = time.AfterFunc(pause, func() { t.system.root.Send(self, checkTimers{}) })
	if err == nil {
		t.effects.armed.Store(due)
	}
}

// deliverDue starts the delivery of due timers while fewer than maxDelivering are in flight, and returns the due time of the
// next timer; MaxInt64 if none waits or the limit was reached.
func (t *timers) deliverDue() (next int64, err error) {
	v, err := t.system.journal.View()
	if err != nil {
		return 0, err
	}
	defer v.Close()
	t.full = false
	if t.retries.takeRescan() {
		t.cursor, t.ahead, t.searched = "", "", false
	}
	for _, value := range t.retries.ready() {
		if len(t.delivering) == maxDelivering {
			t.full = true
			return math.MaxInt64, nil
		}
		data, ok, err := v.Lookup(t.partition, timerIndex, value, 0)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			delete(t.retries.rows, value)
		default:
			t.begin(value, data)
		}
	}
	now := t.system.clock().UnixMilli()
	if next, err = t.deliverPassed(v, now); err == nil && !t.full && !t.searched {
		err = t.deliverAhead(v, now)
	}
	return next, err
}

// deliverPassed is deliverDue for the timers with a due time that has passed.
func (t *timers) deliverPassed(v persistence.View, now int64) (next int64, err error) {
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
		if begun := t.delivering[row.Value]; begun != nil {
			begun.passed = true
		} else if !t.retries.has(row.Value) {
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

// deliverAhead starts the delivery of the timers that were set while the clock was ahead (entity.HasPassed), among the next maxSearched rows. It
// reads each row of the index once in a term: the clock of a process does not go backwards.
func (t *timers) deliverAhead(v persistence.View, now int64) error {
	after, searched := max(t.ahead, dueValue(now+1)), 0
	for row, err := range v.Index(t.partition, persistence.Query{Index: timerIndex, Prefix: true, After: after}) {
		if err != nil {
			return err
		}
		at, err := dueAt(row.Value)
		if err != nil {
			return err
		}
		pause := t.pauseOf(row.Value)
		if pause > 0 && entity.HasPassed(at-pause.Milliseconds(), now, pause) && t.delivering[row.Value] == nil && !t.retries.has(row.Value) {
			if len(t.delivering) == maxDelivering {
				t.full = true
				return nil
			}
			t.begin(row.Value, row.Data)
		}
		t.ahead = row.Value
		if searched++; searched == maxSearched {
			return nil
		}
	}
	t.searched = true
	return nil
}

// pauseOf returns the longest time between the setting of the timer with a value and its due time; 0: any time.
func (t *timers) pauseOf(value string) time.Duration {
	kind, _, _ := strings.Cut(value[8:], "/")
	if k := t.system.kinds[kind]; k != nil {
		return k.Pauses[value[strings.LastIndexByte(value, 0)+1:]]
	}
	return 0
}

// begin delivers one row in a separate goroutine. data belongs to the view and is only valid during the call.
func (t *timers) begin(value string, data []byte) {
	value = strings.Clone(value)
	t.delivering[value] = &delivery{}
	t.retries.begin(value)
	var row runtimev1.Timer
	err := proto.Unmarshal(data, &row)
	self := t.self
	t.system.launchWork(func() {
		d := delivered{value: value, remains: true, err: err}
		if err == nil {
			d.remains, d.err = t.deliver(value, &row)
		}
		t.system.root.Send(self, d)
	})
}

// deliver sends the command of a row and reports whether the row still exists.
func (t *timers) deliver(value string, row *runtimev1.Timer) (remains bool, err error) {
	command, err := decodePayload(row.GetCommand())
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(t.effects.ctx, deliveryTimeout)
	defer cancel()
	_, err = t.system.ask(ctx, entity.Command{
		Kind: row.GetKind(), Identity: row.GetIdentity(), Principal: entity.Platform(), Message: command,
	})
	remains, failed := t.system.rowExists(t.partition, timerIndex, value)
	if failed != nil {
		return true, failed
	}
	if !remains {
		t.system.metrics.timerLateness.Observe(t.system.clock().Sub(time.UnixMilli(row.GetAt())).Seconds())
		return false, nil
	}
	return true, err
}

// delivered handles the end of a delivery.
func (t *timers) delivered(d delivered) {
	begun := t.delivering[d.value]
	passed := begun != nil && begun.passed
	delete(t.delivering, d.value)
	switch {
	case !d.remains:
		delete(t.retries.rows, d.value)
		t.system.metrics.timers.WithLabelValues("done").Inc()
		if passed {
			t.cursor = min(t.cursor, d.value[:8]) // before the row, if it exists again
		}
	case t.effects.ctx.Err() != nil:
		return
	default:
		outcome, reason := "failed", d.err
		if d.err == nil {
			outcome, reason = "remains", errTimerRemains
		}
		t.system.metrics.timers.WithLabelValues(outcome).Inc()
		attempts := t.retries.add(d.value, redelivering)
		t.system.log.Warn("a timer was delivered and still exists; trying again", slog.String("timer", printable(d.value[8:])), slog.Int("attempts", attempts),
			slog.Any("error", reason))
	}
	if t.full || d.remains || passed {
		t.check()
	}
}

var errTimerRemains = errors.New("the command was applied and did not remove its timer")

// printable returns the value of a row for a log.
func printable(value string) string { return strings.ReplaceAll(value, "\x00", " ") }

// rowExists reports whether an index has a row. After an error it reports true.
func (s *System) rowExists(p persistence.Partition, index, value string) (bool, error) {
	v, err := s.journal.View()
	if err != nil {
		return true, err
	}
	defer v.Close()
	_, ok, err := v.Lookup(p, index, value, 0)
	return ok, err
}

// retries has a bounded number of rows to retry later. Rows beyond the bound are found by reading the index from its beginning
// after the longest pause.
type retries struct {
	rows map[string]*retryRow
	// overflowed is the time at which the index must be read from its beginning; zero: it need not be.
	overflowed time.Time
}

type retryRow struct {
	attempts int
	next     time.Time
}

func (h *retries) has(value string) bool { return h.rows[value] != nil }

// add records that a row failed, and returns the number of its failures. It is tried again after a pause of the policy.
func (h *retries) add(value string, pauses retry.Policy) (attempts int) {
	row := h.rows[value]
	if row == nil {
		if len(h.rows) >= maxRetries {
			if h.overflowed.IsZero() {
				h.overflowed = time.Now().Add(pauses.Longest)
			}
			return 1
		}
		if h.rows == nil {
			h.rows = map[string]*retryRow{}
		}
		row = &retryRow{}
		h.rows[value] = row
	}
	row.attempts++
	row.next = time.Now().Add(pauses.After(row.attempts))
	return row.attempts
}

// ready returns the rows to retry now: their pause has passed.
func (h *retries) ready() []string {
	var all []string
	now := time.Now()
	for value, row := range h.rows {
		if !row.next.IsZero() && !row.next.After(now) {
			all = append(all, value)
		}
	}
	return all
}

// begin records that a row is being tried. It is not ready until it is added again.
func (h *retries) begin(value string) {
	if row := h.rows[value]; row != nil {
		row.next = time.Time{}
	}
}

// takeRescan reports whether the index must be read from its beginning, and resets that.
func (h *retries) takeRescan() bool {
	if h.overflowed.IsZero() || h.overflowed.After(time.Now()) {
		return false
	}
	h.overflowed = time.Time{}
	return true
}

// untilNext returns the pause until a row is ready or the index must be read again.
func (h *retries) untilNext() time.Duration {
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
