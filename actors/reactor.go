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
	// cursorIndex holds the durable cursor of a partition's reactor.
	cursorIndex = "reactor"
	// passedEvents is how far the cursor may advance over events without reactions before it is written.
	passedEvents = 4096
	// reactedEvents and cursorPause bound how many events, and for how long, are reacted to before the cursor is written.
	reactedEvents = 256
	cursorPause   = 100 * time.Millisecond
	// feedStep bounds the events that the reactor reads between two messages.
	feedStep = 4096
	// maxLanes bounds the streams of a partition with reactions that are not done. Beyond it the feed is not read.
	maxLanes = 16384
	// runningLanes bounds the lanes of a partition that run at the same time.
	runningLanes = 64
)

// Trail has the activity of workspaces that have rows in a list reacted to. Without it a reactor passes over activity,
// which is most of what a journal holds.
type Trail struct {
	// List is the list that says which workspaces; Begins is the event that puts the first row there.
	List   string
	Begins string
	// React is called with each row, as it is stored, in the order of the workspace's rows. Errors are tried again.
	React func(ctx context.Context, workspaceID string, row []byte) error
}

// reactor carries out the reactions to a partition's events:
//
//	feed ──read──► dispatch ──► lane of the event's stream ──start──► goroutine: load, react, send the commands
//	                                 ▲                                     │
//	                                 └── retry, after a pause ◄── failed ◄─┤
//	                                                 └─ too often ─► park  └─► done ──► cursor
//
// A lane carries out the reactions to one stream in their order; the lanes of different streams run concurrently. The
// durable cursor is a low-water mark: every event at or before it is done, or its stream is parked from that event or an
// earlier one. After a crash the events behind the cursor are reacted to again, and the targets of the commands recognize
// those that they have carried out; see marks.
//
// All methods but those of run are called in the reactor's actor.
type reactor struct {
	node    *System
	term    *term
	mailbox *mailbox
	self    *actor.PID

	// running ends with this actor.
	running context.Context
	end     context.CancelFunc

	// recalled is set once the durable state has been read: the cursor, the parked streams, and trailed, the workspaces
	// whose activity has reactions.
	recalled bool
	trailed  map[string]bool
	parked   map[persistence.Stream]*journalv1.Parked

	// read is the sequence of the last event that was read from the feed.
	read  uint64
	pause time.Duration
	retry *time.Timer

	lanes map[persistence.Stream]*lane
	// full tells that the feed is not read on until a lane has ended.
	full    bool
	ready   queue
	started int
	// waiting are the callers of Settle whose events may not have been read yet.
	waiting []*settle

	cursor cursor
}

// cursor is the state of the durable cursor.
type cursor struct {
	written uint64
	// tried is how far the feed was read when the cursor was last to be written: an event that is not done may have kept
	// it from advancing.
	tried   uint64
	writing bool
	timer   *time.Timer
	// reacted counts the events that were reacted to since the last write.
	reacted int
}

type (
	// readOn has the reactor go on reading the feed; retried tells that it does so after a failure.
	readOn struct{ retried bool }
	// writeCursor has the reactor write its cursor.
	writeCursor struct{}
	// cursorWritten tells the outcome of writing the cursor.
	cursorWritten struct {
		sequence uint64
		err      error
	}
)

func (r *reactor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		r.start(ctx.Self())
	case advanced:
		r.term.told.Store(false)
		r.follow()
	case readOn:
		if m.retried {
			r.retry = nil
		}
		r.follow()
	case *settle:
		m.upTo = r.term.sequence.Load()
		r.waiting = append(r.waiting, m)
		r.follow()
	case *laneEnded:
		r.ended(m)
	case laneDue:
		r.due(m.lane)
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
		r.write()
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
	r.running, r.end = context.WithCancel(r.node.running)
	r.lanes, r.parked = map[persistence.Stream]*lane{}, map[persistence.Stream]*journalv1.Parked{}
	r.startExpiry()
	r.beginReports()
	// A message of before, which clears told, may have been lost with an earlier reactor of the term.
	r.term.told.Store(false)
	r.follow()
}

// stop cancels the lanes, whose goroutines then return, answers the callers of Settle, and writes the cursor.
func (r *reactor) stop() {
	if r.end == nil {
		return
	}
	r.end()
	for _, t := range []*time.Timer{r.retry, r.cursor.timer} {
		if t != nil {
			t.Stop()
		}
	}
	for _, l := range r.lanes {
		l.stop()
	}
	for _, w := range r.waiting {
		w.end(ErrRetry)
	}
	r.waiting = nil
	if r.recalled {
		r.cursor.writing = false
		r.write()
	}
	r.report(0, 0)
}

// report sets the partition's metrics, unless a later term's reactor does by now.
func (r *reactor) report(parked int, lag uint64) {
	r.node.reporting.Lock()
	defer r.node.reporting.Unlock()
	if r.node.reporters[r.term.partition] != r.term {
		return
	}
	partition := strconv.Itoa(int(r.term.partition))
	r.node.metrics.parked.WithLabelValues(partition).Set(float64(parked))
	r.node.metrics.reactorLag.WithLabelValues(partition).Set(float64(lag))
}

// beginReports makes the reactor the one that sets the partition's metrics.
func (r *reactor) beginReports() {
	r.node.reporting.Lock()
	defer r.node.reporting.Unlock()
	r.node.reporters[r.term.partition] = r.term
}

// follow reads on in the feed, and tries again later if that fails.
func (r *reactor) follow() {
	if r.retry != nil || r.running.Err() != nil {
		return
	}
	err := r.recall()
	if err == nil {
		err = r.readFeed()
	}
	r.startLanes()
	r.answerSettled()
	r.advance()
	switch {
	case err == nil:
		r.pause = 0
	case !errors.Is(err, persistence.ErrClosed):
		r.node.log.Warn("the feed cannot be read and is tried again", slog.Int("partition", int(r.term.partition)), slog.Any("error", err))
		r.pause = min(max(2*r.pause, firstRetry), longestRetry)
		r.retry = r.after(r.pause, readOn{retried: true})
	}
}

func (r *reactor) recall() error {
	if r.recalled {
		return nil
	}
	v, err := r.node.journal.View()
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
	if r.node.trail.React != nil {
		r.trailed = map[string]bool{}
		for entry, err := range v.Index(r.term.partition, persistence.Query{Index: listIndex(r.node.trail.List), Prefix: true}) {
			if err != nil {
				return err
			}
			workspaceID, _, _ := strings.Cut(entry.Value, "\x00")
			r.trailed[workspaceID] = true
		}
	}
	r.cursor.written, r.cursor.tried, r.recalled = r.read, r.read, true
	return nil
}

// readFeed dispatches the events of the feed to the end of a view, which has all that was acknowledged before. It stops
// after feedStep events, and where there are too many lanes.
func (r *reactor) readFeed() error {
	if r.full = len(r.lanes) >= maxLanes; r.full {
		return nil // a lane that ends reads on
	}
	upTo := r.term.sequence.Load()
	v, err := r.node.journal.View()
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
			r.node.root.Send(r.self, readOn{})
			return nil
		}
	}
	r.read = max(r.read, upTo)
	return nil
}

func (r *reactor) wants(s persistence.Stream) bool {
	kind, identity, _ := strings.Cut(string(s), "/")
	return kind != entity.KindActivity || r.trailed[identity]
}

// dispatch hands an event that is reacted to over to the lane of its stream.
func (r *reactor) dispatch(event persistence.Event) {
	if event.Version == 0 { // passed over
		return
	}
	if r.trailed != nil && event.Name == r.node.trail.Begins {
		_, identity, _ := strings.Cut(string(event.Stream), "/")
		r.trailed[identity] = true
	}
	if !r.node.reacts(event) {
		return
	}
	l := r.lanes[event.Stream]
	switch {
	case l != nil:
		l.extend(event)
	case r.parked[event.Stream] != nil: // its row remembers from where
	default:
		l = &lane{stream: event.Stream, done: event.Version - 1, last: event.Version, low: event.Sequence}
		r.lanes[event.Stream] = l
		r.enqueue(l)
	}
}

// reacts reports whether something follows from an event. It also reports true if the event cannot be decoded or the
// kind's React panics: the event's lane then fails, which parks the stream.
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

// reactionsTo returns what the event's kind says follows from it. A panic is returned as an error.
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

// lowWater returns the sequence up to which every event is done, or parked.
func (r *reactor) lowWater() uint64 {
	low := r.read
	for _, l := range r.lanes {
		if !l.resuming && l.done < l.last {
			low = min(low, l.low-1)
		}
	}
	return low
}

// advance sees to it that the cursor is written in time.
func (r *reactor) advance() {
	r.report(len(r.parked), max(r.term.sequence.Load(), r.read)-r.read+r.undone())
	switch {
	case r.cursor.reacted >= reactedEvents, r.cursor.reacted == 0 && r.read-r.cursor.tried >= passedEvents:
		r.write()
	case r.cursor.reacted > 0 && r.cursor.timer == nil:
		r.cursor.timer = r.after(cursorPause, writeCursor{})
	}
}

// undone is the number of streams whose reactions are not done.
func (r *reactor) undone() uint64 { return uint64(len(r.lanes)) }

// write makes the cursor durable. If that is lost, what lies behind it is reacted to again.
func (r *reactor) write() {
	if r.cursor.writing {
		return
	}
	low := r.lowWater()
	r.cursor.reacted, r.cursor.tried = 0, r.read
	if low <= r.cursor.written {
		return
	}
	r.cursor.writing = true
	self, root := r.self, r.node.root
	r.node.journal.Append(persistence.Proposal{
		Partition: r.term.partition, Stream: cursorIndex + "/" + reactorKind, Epoch: r.term.epoch,
		Entries: []persistence.Change{{Entry: persistence.Entry{
			Index: cursorIndex, Value: reactorKind, Data: binary.BigEndian.AppendUint64(nil, low),
		}}},
	}, func(result persistence.Result) { root.Send(self, cursorWritten{low, result.Err}) })
}

func (r *reactor) cursorWritten(m cursorWritten) {
	r.cursor.writing = false
	if m.err == nil {
		r.cursor.written = max(r.cursor.written, m.sequence)
	} else {
		r.cursor.reacted++ // tried again with the next
	}
	r.advance()
}

// readCursor returns the durable cursor of a partition's reactor; 0: there is none.
func readCursor(v persistence.View, p persistence.Partition) (uint64, error) {
	data, ok, err := v.Lookup(p, cursorIndex, reactorKind, 0)
	if err != nil || !ok {
		return 0, err
	}
	return binary.BigEndian.Uint64(data), nil
}

// after sends a message to the reactor after a pause.
func (r *reactor) after(pause time.Duration, message any) *time.Timer {
	self, root := r.self, r.node.root
	return time.AfterFunc(pause, func() { root.Send(self, message) })
}
