package actors

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// parkedIndex has a row for each stream with suspended reactions, by stream.
//
// The cursor advances past the events of such a stream: its row has the first event with open reactions. The row is durable
// before the cursor advances past that event, and is removed when the stream has caught up; from then on its lane holds back
// the cursor again.
const parkedIndex = "parked"

// maxParkedError limits the text of the error in a row, in bytes.
const maxParkedError = 1 << 10

var (
	errNotParked = entity.Errorf(entity.NotFound, "the stream's reactions are not parked")
	// errNotResumed has no hint to retry, because a retry would skip another event.
	errNotResumed = &entity.Error{
		Code: entity.Unavailable, Message: "the event is skipped, but the stream was not resumed; resume it without skipping another event",
	}
	// errSkipUnknown has no hint to retry either.
	errSkipUnknown = &entity.Error{
		Code: entity.Unavailable, Message: "it is unknown whether the event is skipped; list the parked streams before you skip one again",
	}
	errResuming = &entity.Error{Code: entity.Unavailable, Message: "the stream's reactions are being retried", RetryAfter: reacting.Longest}
)

type (
	// parkWritten and unparkWritten are the outcomes of writing and of removing a row.
	parkWritten struct {
		lane *lane
		row  *journalv1.Parked
		err  error
	}
	unparkWritten struct {
		lane *lane
		err  error
	}
	// A resumption is a request to resume a parked stream; with skip, after the event that failed.
	resumption struct {
		stream persistence.Stream
		skip   bool
		done   chan error
	}
	// skipWritten is the outcome of writing that an event is skipped.
	skipWritten struct {
		resumption *resumption
		lane       *lane
		row        *journalv1.Parked
		err        error
	}
)

// Parked returns the streams of a partition with suspended reactions, in the order of their names. It returns the journal's
// errors.
func (s *System) Parked(p persistence.Partition) ([]*journalv1.Parked, error) {
	v, err := s.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return readParked(v, p)
}

func readParked(v persistence.View, p persistence.Partition) ([]*journalv1.Parked, error) {
	var all []*journalv1.Parked
	for entry, err := range v.Index(p, persistence.Query{Index: parkedIndex, Prefix: true}) {
		if err != nil {
			return nil, err
		}
		row := new(journalv1.Parked)
		if err := proto.Unmarshal(entry.Data, row); err != nil {
			return nil, err
		}
		row.Stream, row.Partition = strings.Clone(entry.Value), uint32(p)
		all = append(all, row)
	}
	return all, nil
}

// Resume resumes the reactions of a parked stream, in order, from the event that failed; with skip, from the event after it. It
// returns when they have been resumed: if they fail again, the stream is parked again. Resume returns ErrRetry, not_found if
// the stream is not parked, unavailable, and ctx's error. An error after which the event may be skipped has no hint to retry, because
// another call would skip the next event that fails.
func (s *System) Resume(ctx context.Context, p persistence.Partition, stream string, skip bool) error {
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	m := &resumption{stream: persistence.Stream(stream), skip: skip, done: make(chan error, 1)}
	s.root.Send(t.shard, m)
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		if skip {
			return errSkipUnknown
		}
		return ctx.Err()
	}
}

// park suspends the reactions of a stream. Until the row is durable, the lane holds back the cursor. If the row cannot be
// written, the lane is retried: the journal's failure may be the reason why the reaction failed.
func (r *reactor) park(l *lane, m *laneEnded) {
	row := &journalv1.Parked{
		Version: l.done + 1, Sequence: l.low, Event: m.event, Error: truncateError(m.err.Error()), Attempts: uint32(l.attempts),
		Since: r.system.clock().UnixMilli(),
	}
	l.state = laneParking
	r.storeParked(l.stream, row, func(err error) any { return &parkWritten{l, row, err} })
}

// truncateError returns the text of an error as valid UTF-8 of at most maxParkedError bytes.
func truncateError(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxParkedError)], "")
}

// storeParked writes a stream's row, or removes it if row is nil, and sends the reactor the message that outcome returns.
func (r *reactor) storeParked(stream persistence.Stream, row *journalv1.Parked, outcome func(error) any) {
	change := persistence.Change{Entry: persistence.Entry{Index: parkedIndex, Value: string(stream)}, Remove: row == nil}
	if row != nil {
		var err error
		if change.Data, err = proto.Marshal(row); err != nil {
			r.system.root.Send(r.self, outcome(err))
			return
		}
	}
	self, root, term := r.self, r.system.root, r.term
	term.reactorWrites.Add(1)
	r.system.journal.Append(persistence.Proposal{
		Partition: term.partition, Stream: cursorIndex + "/" + reactorKind, Epoch: term.epoch, Entries: []persistence.Change{change},
	}, func(result persistence.Result) {
		term.reactorWrites.Add(-1)
		root.Send(self, outcome(result.Err))
	})
}

func (r *reactor) parkWritten(m *parkWritten) {
	l := m.lane
	if r.lanes[l.stream] != l {
		return
	}
	if m.err != nil {
		r.system.log.Warn("cannot park the reactions of a stream", slog.String("stream", string(l.stream)), slog.Any("error", m.err))
		r.pauseLane(l)
		return
	}
	m.row.Stream, m.row.Partition = string(l.stream), uint32(r.term.partition)
	r.parked[l.stream] = m.row
	delete(r.lanes, l.stream)
	l.answer(l.last, errParked)
	r.cursor.reacted++
	r.system.metrics.reactions.WithLabelValues("parked").Inc()
	r.system.log.Error("parked the reactions of a stream; see atelier admin reactions", slog.String("stream", string(l.stream)), slog.Uint64("version", m.row.GetVersion()),
		slog.String("event", m.row.GetEvent()), slog.Uint64("attempts", uint64(m.row.GetAttempts())), slog.String("error", m.row.GetError()))
	r.readOn()
}

// resume starts a lane for a parked stream or, with skip, first writes that the event is skipped.
func (r *reactor) resume(m *resumption) {
	row := r.parked[m.stream]
	switch {
	case !r.loaded:
		m.done <- ErrRetry
		return
	case row == nil:
		m.done <- errNotParked
		return
	case r.lanes[m.stream] != nil && m.skip:
		m.done <- errResuming
		return
	case r.lanes[m.stream] != nil:
		m.done <- nil
		return
	}
	l, err := r.newResumedLane(m.stream, row)
	if err != nil {
		r.system.log.Error("cannot read a parked stream", slog.String("stream", string(m.stream)), slog.Any("error", err))
		m.done <- unavailable("the stream cannot be read at the moment; try again")
		return
	}
	r.lanes[m.stream] = l
	if m.skip {
		r.skip(m, l, row)
		return
	}
	r.startResumedLane(l)
	m.done <- nil
}

// newResumedLane returns a lane from the event in the row to the stream's head.
func (r *reactor) newResumedLane(stream persistence.Stream, row *journalv1.Parked) (*lane, error) {
	v, err := r.system.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	head, err := v.Head(r.term.partition, stream)
	return &lane{
		stream: stream, done: row.GetVersion() - 1, last: max(head, row.GetVersion()-1), low: row.GetSequence(), resuming: true,
	}, err
}

// startResumedLane lets the lane of a resumed stream run.
func (r *reactor) startResumedLane(l *lane) {
	r.system.log.Info("resumed the reactions of a stream", slog.String("stream", string(l.stream)), slog.Uint64("version", l.done+1))
	if l.done >= l.last {
		r.endLane(l)
		return
	}
	r.enqueue(l)
	r.startLanes()
}

// skip writes a row that begins after the event that failed.
func (r *reactor) skip(m *resumption, l *lane, row *journalv1.Parked) {
	l.state = laneParking
	next := &journalv1.Parked{
		Version: row.GetVersion() + 1, Sequence: row.GetSequence() + 1, Error: row.GetError(), Since: row.GetSince(),
	}
	r.storeParked(m.stream, next, func(err error) any { return &skipWritten{m, l, next, err} })
}

func (r *reactor) skipWritten(m *skipWritten) {
	l, before := m.lane, r.parked[m.lane.stream]
	if r.lanes[l.stream] != l { // a lane of the actor before its restart
		m.answerInterrupted()
		return
	}
	if m.err != nil {
		delete(r.lanes, l.stream)
		m.answerInterrupted()
		return
	}
	r.system.metrics.reactions.WithLabelValues("skipped").Inc()
	r.system.log.Warn("skipped the reactions to an event", slog.String("stream", string(l.stream)), slog.Uint64("version", before.GetVersion()),
		slog.String("event", before.GetEvent()), slog.String("error", before.GetError()))
	m.row.Stream, m.row.Partition = before.GetStream(), before.GetPartition()
	r.parked[l.stream] = m.row
	l.done, l.low = m.row.GetVersion()-1, m.row.GetSequence()
	l.last = max(l.last, l.done)
	r.startResumedLane(l)
	m.resumption.done <- nil
}

// answerInterrupted answers a resumption that does not continue after its row was written. It hints at a retry only if the row was not
// written: otherwise the next attempt would skip another event.
func (m *skipWritten) answerInterrupted() {
	switch {
	case m.err == nil:
		m.resumption.done <- errNotResumed
	case errors.Is(m.err, persistence.ErrUnknown):
		m.resumption.done <- errSkipUnknown
	default:
		m.resumption.done <- unavailable("the journal accepts no writes at the moment; try again")
	}
}

// unpark removes the row of a stream that has caught up. From then on the lane holds back the cursor for further events.
func (r *reactor) unpark(l *lane) {
	l.resuming, l.state = false, laneParking
	r.storeParked(l.stream, nil, func(err error) any { return &unparkWritten{l, err} })
}

func (r *reactor) unparkWritten(m *unparkWritten) {
	l := m.lane
	if r.lanes[l.stream] != l {
		return
	}
	if m.err != nil {
		r.system.log.Warn("cannot remove the parked row of a stream that has caught up; trying again", slog.String("stream", string(l.stream)), slog.Any("error", m.err))
		l.attempts = max(l.attempts, 1)
		r.pauseLane(l)
		return
	}
	delete(r.parked, l.stream)
	r.system.log.Info("the reactions of a parked stream have caught up", slog.String("stream", string(l.stream)))
	if l.done < l.last {
		r.enqueue(l)
		r.startLanes()
	} else {
		delete(r.lanes, l.stream)
	}
	r.answerSettleRequests()
	r.scheduleCursorWrite()
}
