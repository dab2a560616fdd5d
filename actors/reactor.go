package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	reactorKind = "reactor"
	// cursorIndex has the durable cursor of a partition's reactor.
	cursorIndex = "reactor"
	// passedEvents is the number of events without reactions after which the cursor is written.
	passedEvents = 4096
	// The cursor is written after reactedEvents events with reactions, or cursorPause after the first of these events.
	reactedEvents = 256
	cursorPause   = 100 * time.Millisecond
	// feedStep limits the events that the reactor reads between two messages.
	feedStep = 4096
	// maxLanes limits the streams of a partition with open reactions. At the limit the reactor stops reading the feed.
	maxLanes = 16384
	// runningLanes limits the lanes of a partition that run at the same time.
	runningLanes = 64
)

// A Trail has the reactions to the activity of workspaces that have rows in a list. Without it a reactor skips activity, which
// is most of the events in a journal.
type Trail struct {
	// List is the list that the workspaces have rows in. Begins is the name of the event that adds a workspace's first row, and
	// Kind the kind of its entity.
	List, Kind, Begins string
	// React is called with each stored row, in the order of the workspace's rows. It is called again with the same row after an
	// error or a crash. It does not keep row.
	React func(ctx context.Context, workspaceID string, row []byte) error
}

// A reactor runs the reactions to a partition's events. See "The way of a reaction" in the package comment.
//
//	feed ──read──► dispatch ──► lane of the event's stream ──start──► goroutine: load, react, send the commands
//	                                 ▲                                     │
//	                                 └── retry, after a pause ◄── failed ◄─┤
//	                                                 └─ too often ─► park  └─► done ──► cursor
//
// A lane runs the reactions to one stream in order; the lanes of different streams run concurrently. The durable cursor is a
// low-water mark: the reactions to every event at or before it are done, or its stream is parked from that event or an earlier
// one. After a crash the reactions to the events after the cursor run again, and the targets recognize the commands that they
// have applied; see marks.
//
// All methods except the methods of run are called in the reactor's actor.
type reactor struct {
	system  *System
	term    *term
	mailbox *mailbox
	self    *actor.PID

	// running is canceled when this actor ends.
	running context.Context
	end     context.CancelFunc

	// loaded is set when the durable state has been read: the cursor, parked, and trailWorkspaces, the workspaces with rows in
	// the Trail's list.
	loaded          bool
	trailWorkspaces map[string]bool
	parked          map[persistence.Stream]*journalv1.Parked

	// read is the sequence of the last event that was read from the feed.
	read uint64
	// failures is the number of failures in a row to read the feed. again is the timer of the next attempt.
	failures int
	again    *time.Timer

	lanes map[persistence.Stream]*lane
	// full is set while the feed is not read because there are maxLanes lanes.
	full    bool
	ready   queue
	started int
	// waiting has the requests of Settle for events that may not have been read yet.
	waiting []*settleRequest

	cursor cursor
}

// cursor is the state of writing the durable cursor.
type cursor struct {
	written uint64
	// tried is the position in the feed at which the cursor was last to be written. An event with open reactions may have
	// prevented its advance.
	tried   uint64
	writing bool
	timer   *time.Timer
	// reacted counts the events with reactions since the last write.
	reacted int
}

type (
	// continueReading makes the reactor read on; retried is set if it does so after a failure.
	continueReading struct{ retried bool }
	// writeCursor makes the reactor write its cursor.
	writeCursor struct{}
	// cursorWritten is the outcome of writing the cursor.
	cursorWritten struct {
		sequence uint64
		err      error
	}
)

func (r *reactor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		r.start(ctx.Self())
	case feedGrew:
		r.term.notified.Store(false)
		r.readOn()
	case continueReading:
		if m.retried {
			r.again = nil
		}
		r.readOn()
	case *settleRequest:
		m.upTo = r.term.sequence.Load()
		r.waiting = append(r.waiting, m)
		r.readOn()
	case *laneEnded:
		r.handleLaneEnded(m)
	case laneDue:
		r.requeue(m.lane)
	case *parkWritten:
		r.parkWritten(m)
	case *unparkWritten:
		r.unparkWritten(m)
	case *resumption:
		r.resume(m)
	case *skipWritten:
		r.skipWritten(m)
	case writeCursor:
		r.cursor.timer = nil
		r.writeCursor()
	case cursorWritten:
		r.cursorWritten(m)
	case *actor.Restarting:
		r.stop()
	case *actor.Stopping:
		r.mailbox.closed.Store(true)
		r.stop()
	}
}

func (r *reactor) start(self *actor.PID) {
	r.self = self
	r.running, r.end = context.WithCancel(r.system.running)
	r.lanes, r.parked = map[persistence.Stream]*lane{}, map[persistence.Stream]*journalv1.Parked{}
	r.startExpiry()
	r.beginReports()
	// The message that clears notified may have been lost with an earlier reactor of the term.
	r.term.notified.Store(false)
	r.readOn()
}

// stop cancels the goroutines of the lanes, answers the requests of Settle with ErrRetry, and writes the cursor.
func (r *reactor) stop() {
	if r.end == nil {
		return
	}
	r.end()
	for _, t := range []*time.Timer{r.again, r.cursor.timer} {
		if t != nil {
			t.Stop()
		}
	}
	for _, l := range r.lanes {
		l.stop()
	}
	for _, w := range r.waiting {
		w.conclude(ErrRetry)
	}
	r.waiting = nil
	if r.loaded {
		r.cursor.writing = false
		r.writeCursor()
	}
	r.report(0, 0)
}

// report sets the partition's metrics, unless the reactor of a later term sets them already.
func (r *reactor) report(parked int, lag uint64) {
	r.system.reporting.Lock()
	defer r.system.reporting.Unlock()
	if r.system.reporters[r.term.partition] != r.term {
		return
	}
	partition := strconv.Itoa(int(r.term.partition))
	r.system.metrics.parked.WithLabelValues(partition).Set(float64(parked))
	r.system.metrics.reactorLag.WithLabelValues(partition).Set(float64(lag))
}

// beginReports makes this reactor set the partition's metrics from now on, instead of an earlier reactor.
func (r *reactor) beginReports() {
	r.system.reporting.Lock()
	defer r.system.reporting.Unlock()
	r.system.reporters[r.term.partition] = r.term
}

// readOn reads the feed, starts lanes and answers requests of Settle. If the feed cannot be read, it tries again after a pause.
func (r *reactor) readOn() {
	if r.again != nil || r.running.Err() != nil {
		return
	}
	err := r.loadState()
	if err == nil {
		err = r.readFeed()
	}
	r.startLanes()
	r.answerSettleRequests()
	r.scheduleCursorWrite()
	switch {
	case err == nil:
		r.failures = 0
	case !errors.Is(err, persistence.ErrClosed):
		r.system.log.Warn("cannot read the feed; trying again", slog.Int("partition", int(r.term.partition)), slog.Any("error", err))
		r.failures++
		r.again = r.after(reacting.After(r.failures), continueReading{retried: true})
	}
}

var errWritesInFlight = errors.New("the state of the reactor before this one is being written")

// loadState reads the durable state: the cursor, the parked streams and the workspaces of the Trail.
func (r *reactor) loadState() error {
	if r.loaded {
		return nil
	}
	if r.term.reactorWrites.Load() > 0 {
		return errWritesInFlight
	}
	v, err := r.system.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	if r.read, err = readCursor(v, r.term.partition); err != nil {
		return err
	}
	rows, err := readParked(v, r.term.partition)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.parked[persistence.Stream(row.GetStream())] = row
	}
	if r.system.trail.React != nil {
		r.trailWorkspaces = map[string]bool{}
		for entry, err := range v.Index(r.term.partition, persistence.Query{Index: listIndex(r.system.trail.List), Prefix: true}) {
			if err != nil {
				return err
			}
			workspaceID, _, _ := strings.Cut(entry.Value, "\x00")
			r.trailWorkspaces[workspaceID] = true
		}
	}
	r.cursor.written, r.cursor.tried, r.loaded = r.read, r.read, true
	return nil
}

// readFeed dispatches the events of the feed up to the end of a view, which has every event that was acknowledged before the
// call. It stops after feedStep events or at maxLanes lanes.
func (r *reactor) readFeed() error {
	if r.full = len(r.lanes) >= maxLanes; r.full {
		return nil // handleLaneEnded reads on
	}
	upTo := r.term.sequence.Load()
	v, err := r.system.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	n := 0
	for event, err := range v.Feed(r.term.partition, r.read+1, r.wants) {
		if err != nil {
			return err
		}
		r.dispatch(event)
		r.read = event.Sequence
		if n++; n == feedStep || len(r.lanes) >= maxLanes {
			r.system.root.Send(r.self, continueReading{})
			return nil
		}
	}
	r.read = max(r.read, upTo)
	return nil
}

// wants reports whether events of a stream may have reactions.
func (r *reactor) wants(s persistence.Stream) bool {
	name, identity, _ := strings.Cut(string(s), "/")
	if name == entity.KindActivity {
		return r.trailWorkspaces[identity]
	}
	k := r.system.kinds[name]
	return k != nil && k.React != nil || name == r.system.trail.Kind
}

// dispatch assigns an event that has reactions to the lane of its stream.
func (r *reactor) dispatch(event persistence.Event) {
	if event.Version == 0 { // the feed has only the sequence of an event that wants excludes
		return
	}
	if r.trailWorkspaces != nil && event.Name == r.system.trail.Begins {
		_, identity, _ := strings.Cut(string(event.Stream), "/")
		r.trailWorkspaces[identity] = true
	}
	if !r.system.reacts(event) {
		return
	}
	l := r.lanes[event.Stream]
	switch {
	case l != nil:
		l.extend(event)
	case r.parked[event.Stream] != nil: // the row has the first event with open reactions
	default:
		l = &lane{stream: event.Stream, done: event.Version - 1, last: event.Version, low: event.Sequence}
		r.lanes[event.Stream] = l
		r.enqueue(l)
	}
}

// reacts reports whether an event has reactions. It also reports true if the event cannot be decoded or the kind's React
// panics: the lane then fails, which parks the stream.
func (s *System) reacts(event persistence.Event) bool {
	name, identity, _ := strings.Cut(string(event.Stream), "/")
	if name == entity.KindActivity {
		return s.trail.React != nil
	}
	if event.Name == "" {
		return true
	}
	if k := s.kinds[name]; k == nil || k.React == nil {
		return false
	}
	reactions, err := s.reactionsTo(name, identity, event)
	return err != nil || len(reactions) > 0
}

// reactionsTo returns the reactions of the event's kind to an event. It returns an error if the event cannot be decoded or
// React panics.
func (s *System) reactionsTo(name, identity string, event persistence.Event) (_ []entity.Reaction, err error) {
	m, err := entity.Message(event.Name, event.Payload)
	if err != nil {
		return nil, err
	}
	k := s.kinds[name]
	if k == nil || k.React == nil {
		return nil, nil
	}
	defer func() {
		if reason := recover(); reason != nil {
			s.log.Error("a kind's React panicked", slog.String("stream", string(event.Stream)), slog.Uint64("version", event.Version),
				slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("the kind's React panicked: %v", reason)
		}
	}()
	return k.React(identity, m), nil
}

// lowWater returns the highest sequence such that the reactions to every event up to it are done or parked.
func (r *reactor) lowWater() uint64 {
	low := r.read
	for _, l := range r.lanes {
		if !l.resuming && l.done < l.last {
			low = min(low, l.low-1)
		}
	}
	return low
}

// scheduleCursorWrite writes the cursor or arms the timer for it, and sets the metrics.
func (r *reactor) scheduleCursorWrite() {
	r.report(len(r.parked), max(r.term.sequence.Load(), r.read)-r.read+uint64(len(r.lanes)))
	switch {
	case r.cursor.reacted >= reactedEvents, r.cursor.reacted == 0 && r.read-r.cursor.tried >= passedEvents:
		r.writeCursor()
	case r.cursor.reacted > 0 && r.cursor.timer == nil:
		r.cursor.timer = r.after(cursorPause, writeCursor{})
	}
}

// writeCursor proposes the cursor, unless it has not advanced. If the proposal fails, the reactions to later events run again
// after a restart.
func (r *reactor) writeCursor() {
	if r.cursor.writing {
		return
	}
	low := r.lowWater()
	r.cursor.reacted, r.cursor.tried = 0, r.read
	if low <= r.cursor.written {
		return
	}
	r.cursor.writing = true
	self, root, term := r.self, r.system.root, r.term
	term.reactorWrites.Add(1)
	r.system.journal.Append(persistence.Proposal{
		Partition: term.partition, Stream: cursorIndex + "/" + reactorKind, Epoch: term.epoch,
		Entries: []persistence.Change{{Entry: persistence.Entry{
			Index: cursorIndex, Value: reactorKind, Data: binary.BigEndian.AppendUint64(nil, low),
		}}},
	}, func(result persistence.Result) {
		term.reactorWrites.Add(-1)
		root.Send(self, cursorWritten{low, result.Err})
	})
}

func (r *reactor) cursorWritten(m cursorWritten) {
	r.cursor.writing = false
	if m.err == nil {
		r.cursor.written = max(r.cursor.written, m.sequence)
	} else {
		r.cursor.reacted++ // written with the next advance
	}
	r.scheduleCursorWrite()
}

// readCursor returns the durable cursor of a partition's reactor, or 0 if there is none.
func readCursor(v persistence.View, p persistence.Partition) (uint64, error) {
	data, ok, err := v.Lookup(p, cursorIndex, reactorKind, 0)
	if err != nil || !ok {
		return 0, err
	}
	return binary.BigEndian.Uint64(data), nil
}

// after sends the reactor a message after a pause.
func (r *reactor) after(pause time.Duration, message any) *time.Timer {
	self, root := r.self, r.system.root
	return time.AfterFunc(pause, func() { root.Send(self, message) })
}
