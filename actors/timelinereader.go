package actors

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// readerRows and readerBytes limit the rows of a batch, and the bytes of their payloads, unless one row is larger.
	readerRows  = 256
	readerBytes = 64 << 10
	// maxPassed limits the bytes of the messages that wait in a reader.
	maxPassed = 64 << 10
)

// readerLeft notifies an entity that a reader of its timeline has ended.
type readerLeft struct{ reader *timelineReader }

// A timelineReader is one open stream of a timeline. It has no queue of rows: it reads the rows that its entity permits from the
// journal. Messages that are passed on wait in a bounded buffer. See "The way of a timeline's stream" in the package comment.
type timelineReader struct {
	system    *System
	kind      *kind
	partition persistence.Partition
	stream    persistence.Stream
	principal *wirev1.Principal
	access    entity.Access
	send      func(entity.TimelineBatch) error
	// role is the role of the principal, which the owner's actor sets before the entity's actor reads it.
	role workspacev1.Role
	// next is the version of the first event that was not sent. It belongs to the goroutine that runs run.
	next uint64
	// signal has an element if there may be rows or messages to send.
	signal chan struct{}

	mu sync.Mutex
	// pipeline is the pipeline of the entity that has admitted the reader, or nil.
	pipeline *pipeline
	// readable is the last version that the reader may send.
	readable uint64
	passed   []passedMessage
	// passedBytes are the bytes of passed.
	passedBytes int
	ended       bool
	err         error
}

// A passedMessage is sent after the rows up to a version, and before later rows.
type passedMessage struct {
	message proto.Message
	after   uint64
	size    int
}

// FollowTimeline opens a stream of an entity's timeline. No row after sub.After is lost, even if it is recorded before the caller
// calls Follow. A caller that does not call Follow cancels ctx. FollowTimeline returns not_found, forbidden, unavailable,
// invalid_request for a kind without a timeline, invalid_cursor for a version after the last event, the errors of
// Timeline.Visible, ErrRetry, and ctx's error. Follow returns ErrRetry also when the access or the role of the principal has
// changed: a new subscription is then refused or goes on.
func (s *System) FollowTimeline(ctx context.Context, p persistence.Partition, sub entity.TimelineSubscription) (Follow, error) {
	k := s.kinds[sub.Kind]
	if k == nil {
		return nil, unknownKind(sub.Kind)
	}
	access, err := k.timelineAccess()
	if err != nil {
		return nil, err
	}
	t := &timelineReader{
		system: s, kind: k, partition: p, stream: persistence.Stream(key(sub.Kind, sub.Identity)), principal: sub.Principal,
		access: access, send: sub.Send, next: sub.After + 1, signal: make(chan struct{}, 1),
	}
	r := s.newRequest(k, entity.Command{Kind: sub.Kind, Identity: sub.Identity, Principal: sub.Principal})
	r.reader = t
	if _, err := s.deliver(ctx, p, r); err != nil {
		t.leave(nil)
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { t.leave(nil) })
	return func(ctx context.Context) (uint64, error) {
		defer release()
		err := t.run(ctx)
		return t.next, err
	}, nil
}

// run sends until the reader ends.
func (t *timelineReader) run(ctx context.Context) error {
	t.system.metrics.readers.Inc()
	defer t.system.metrics.readers.Dec()
	defer t.leave(nil)
	for ctx.Err() == nil {
		batch, next, err := t.collect()
		if ended, reason := t.state(); ended {
			return reason
		}
		if err != nil {
			return err
		}
		if len(batch.Passed)+len(batch.Rows) > 0 {
			if err := t.send(batch); err != nil {
				return err
			}
		} else if next == t.next {
			select {
			case <-t.signal:
			case <-ctx.Done():
			}
		}
		t.next = next
	}
	return nil
}

// collect returns the next batch, and the version of the first event after the batch. If the batch is empty, the version is t.next.
func (t *timelineReader) collect() (batch entity.TimelineBatch, next uint64, err error) {
	t.mu.Lock()
	n := 0
	for n < len(t.passed) && t.passed[n].after < t.next {
		batch.Passed = append(batch.Passed, t.passed[n].message)
		t.passedBytes -= t.passed[n].size
		n++
	}
	clear(t.passed[:n])
	t.passed = t.passed[n:]
	upTo := t.readable
	if len(t.passed) > 0 {
		upTo = min(upTo, t.passed[0].after)
	}
	t.mu.Unlock()
	if next = t.next; next > upTo {
		return batch, next, nil
	}
	batch.Rows, next, err = t.read(upTo)
	if err != nil {
		t.system.log.Error("cannot read the rows of a timeline", slog.String("stream", string(t.stream)), slog.Any("error", err))
		return batch, next, unavailable("the journal cannot be read at the moment; try again")
	}
	return batch, next, nil
}

// read returns rows from t.next up to a version, at most a batch, and the version of the first event after them. It closes its
// view before it returns, so that a slow reader holds none.
func (t *timelineReader) read(upTo uint64) (rows []entity.TimelineRow, next uint64, err error) {
	v, err := t.system.journal.View()
	if err != nil {
		return nil, 0, err
	}
	defer v.Close()
	next = t.next
	size, scanned := 0, 0
	for event, err := range v.Read(t.partition, t.stream, t.next, persistence.Ascending) {
		if err != nil {
			return nil, 0, err
		}
		if event.Version > upTo || len(rows) == readerRows || scanned == scanBudget {
			break
		}
		isRow, err := t.kind.isRow(event.Name)
		if err != nil {
			return nil, 0, err
		}
		if isRow {
			m, err := entity.Message(event.Name, event.Payload)
			if err != nil {
				return nil, 0, err
			}
			if size += len(event.Payload); size > readerBytes && len(rows) > 0 {
				break
			}
			rows = append(rows, entity.TimelineRow{Version: event.Version, At: event.At.UnixMilli(), Event: m})
		}
		scanned++
		next = event.Version + 1
	}
	return rows, next, nil
}

// advance lets the reader send the rows up to a version.
func (t *timelineReader) advance(readable uint64) {
	t.mu.Lock()
	t.readable = readable
	t.mu.Unlock()
	t.wake()
}

// pass adds a message to the waiting ones, unless there are too many, and reports whether it was added.
func (t *timelineReader) pass(m passedMessage) bool {
	t.mu.Lock()
	if t.passedBytes+m.size > maxPassed {
		t.mu.Unlock()
		return false
	}
	t.passed = append(t.passed, m)
	t.passedBytes += m.size
	t.mu.Unlock()
	t.wake()
	return true
}

func (t *timelineReader) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// finish ends the reader, from any goroutine, and returns the pipeline that has to forget it; nil: none. A send in progress is
// not interrupted. Only the first call has an effect.
func (t *timelineReader) finish(err error) *pipeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	t.ended, t.err, t.passed = true, err, nil
	t.wake()
	return t.pipeline
}

// leave ends the reader and makes its entity forget it.
func (t *timelineReader) leave(err error) {
	if p := t.finish(err); p != nil {
		p.term.system.root.Send(p.self, readerLeft{t})
	}
}

func (t *timelineReader) authorization() authorization {
	return authorization{principal: t.principal, access: t.access, role: t.role, byRole: true}
}

func (t *timelineReader) hasEnded() bool {
	ended, _ := t.state()
	return ended
}

// state reports whether the reader has ended, and why.
func (t *timelineReader) state() (ended bool, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended, t.err
}

// revoke makes the router subscribe again, so that the owner authorizes the principal as it is now.
func (t *timelineReader) revoke(error) { t.leave(ErrRetry) }

// addReader admits a reader of the timeline when the state that allows it is durable: from then on each commit wakes it.
func (e *entityActor) addReader(r *request) {
	t := r.reader
	err := e.mayRead(t.authorization())
	if err == nil && t.next > e.own.version+1 { // a version that was lost since, for example by a restore
		err = entity.Errorf(entity.InvalidCursor, "")
	}
	e.own.afterDurable(r, err, func() {
		t.mu.Lock()
		t.pipeline, t.readable = e.own, e.own.durable
		ended := t.ended
		t.mu.Unlock()
		if !ended {
			if e.readers == nil {
				e.readers = map[*timelineReader]struct{}{}
			}
			if len(e.readers) == 0 {
				e.readable = e.own.durable
			}
			e.readers[t] = struct{}{}
		}
		r.answer(nil, nil)
	})
}

// wakeReaders lets the readers send the rows that have become durable, unless they may not read the timeline any more.
func (e *entityActor) wakeReaders() {
	if len(e.readers) == 0 || e.readable == e.own.durable {
		return
	}
	e.readable = e.own.durable
	for t := range e.readers {
		if e.mayRead(t.authorization()) != nil {
			delete(e.readers, t)
			t.finish(ErrRetry)
			continue
		}
		t.advance(e.readable)
	}
}

// pass passes a command on to the readers, after the rows that are decided so far, and answers it.
func (e *entityActor) pass(r *request) {
	if e.kind.Owner == "" && !entity.IsPlatform(r.command.Principal) { // no owner has authorized it
		err := e.own.ensureLoaded()
		if err == nil {
			err = entity.PlatformOnly().Authorize(r.command.Principal, e.check(r.command.Principal))
		}
		if err != nil {
			e.own.fail(r, err)
			return
		}
	}
	if len(e.readers) > 0 {
		m := passedMessage{message: r.command.Message, after: e.own.version, size: proto.Size(r.command.Message)}
		metrics, dropped := e.term.system.metrics, 0
		for t := range e.readers {
			if !t.pass(m) {
				dropped++
			}
		}
		metrics.passed.Add(float64(len(e.readers) - dropped))
		metrics.dropped.Add(float64(dropped))
	}
	r.answer(&wirev1.Done{}, nil)
}

func (e *entityActor) removeReader(t *timelineReader) { delete(e.readers, t) }

// endReaders ends the streams of the timeline.
func (e *entityActor) endReaders(reason error) {
	for t := range e.readers {
		t.finish(reason)
	}
	clear(e.readers)
}
