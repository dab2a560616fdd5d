package actors

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A pipeline recognizes a repeated command in two ways: a client's command by its id, and the command of a reaction by its
// source. The reply of the first and the mark of the second are stored in one batch with the command's effect.

// commandIndex has the replies of commands with an id, by stream and id. Expire removes old replies.
const commandIndex = "command"

// markIndex has the marks of reactions: for each pair of a target and a source stream, the last command of the source's
// reactions that the target has applied or refused, as a journal.v1.Mark. The value is "target, zero byte, source". The order
// is the version of the source's event, so that expiry never removes a newer mark than the mark that it has read. A mark is
// written in one batch with the command's effect, or alone if the command changed nothing or was refused. It expires when the
// source's cursor has passed the event: from then on the cursor recognizes the command (mark.isLate).
const markIndex = "reaction"

// maxMarks is the number of marks in a pipeline's cache at which durable ones are dropped.
const maxMarks = 1024

// errRefusedBefore answers a repeated command that was refused.
var errRefusedBefore = entity.Errorf(entity.Forbidden, "the command was refused before")

// marks caches a stream's marks by source stream, including the marks of proposals in flight.
type marks map[string]mark

type mark struct {
	*journalv1.Mark
	// ticket is the proposal that writes the mark; 0: the mark is durable.
	ticket uint64
	// passed and parked are of the time at which the mark was read: the durable cursor of the source's partition, and the first version
	// with open reactions if the source stream is parked, else 0.
	passed, parked uint64
}

// covers reports whether the command of a source was applied or refused.
func (m mark) covers(s *entity.Source) bool {
	return m.Mark != nil && (s.Version < m.GetVersion() || s.Version == m.GetVersion() && s.Index <= m.GetIndex()) || m.isLate(s)
}

// isLate reports whether the reactions to the event of a source were done when the mark was read. The command of such an event was sent by an
// earlier reactor, and the command of the next reactor has overtaken it. The mark of the command may have expired.
func (m mark) isLate(s *entity.Source) bool {
	return s.Sequence <= m.passed && (m.parked == 0 || s.Version < m.parked)
}

// answerMarked answers a command of a reaction that the stream has applied or refused before, and reports whether it has
// answered. If the mark is not durable yet, it answers ErrRetry.
func (p *pipeline) answerMarked(r *request) bool {
	source := r.command.Source
	m, err := p.findMark(source)
	switch {
	case err != nil:
		p.fail(r, err)
		return true
	case !m.covers(source):
		return false
	case m.ticket > p.concluded:
		r.answer(nil, ErrRetry)
	case m.GetRefused() && source.Version == m.GetVersion() && source.Index == m.GetIndex():
		r.answer(nil, errRefusedBefore)
	default:
		r.answer(decodeReply(nil))
	}
	return true
}

// findMark returns the mark of a source's stream, without a journalv1.Mark if there is none.
func (p *pipeline) findMark(s *entity.Source) (mark, error) {
	if m, ok := p.marks[s.Stream]; ok {
		return m, nil
	}
	v, err := p.term.system.journal.View()
	if err != nil {
		return mark{}, err
	}
	defer v.Close()
	found, err := p.readMark(v, s)
	if err != nil {
		return mark{}, err
	}
	p.remember(s.Stream, found)
	return found, nil
}

// readMark reads the mark of a source's stream, and the cursor: the reactions to the source are done up to it. It reads both from one view:
// an expired mark is before the cursor.
func (p *pipeline) readMark(v persistence.View, s *entity.Source) (found mark, err error) {
	for row, err := range v.Index(p.term.partition, persistence.Query{
		Index: markIndex, Value: markValue(p.stream, s.Stream), From: math.MaxUint64, Direction: persistence.Descending,
	}) {
		if err != nil {
			return mark{}, err
		}
		found.Mark = new(journalv1.Mark)
		if err := proto.Unmarshal(row.Data, found.Mark); err != nil {
			return mark{}, err
		}
		break
	}
	source := persistence.Partition(s.Partition)
	if found.passed, err = readCursor(v, source); err != nil {
		return mark{}, err
	}
	data, isParked, err := v.Lookup(source, parkedIndex, s.Stream, 0)
	if err != nil || !isParked {
		return found, err
	}
	var row journalv1.Parked
	err = proto.Unmarshal(data, &row)
	found.parked = row.GetVersion()
	return found, err
}

// remember caches a mark. If the cache is full, it drops durable marks, which can be read again.
func (p *pipeline) remember(source string, m mark) {
	if len(p.marks) >= maxMarks {
		for other, known := range p.marks {
			if known.ticket <= p.concluded {
				delete(p.marks, other)
			}
		}
	}
	p.marks[source] = m
}

// advanceMark returns the changes that write the mark of a source and remove the previous mark. They belong to the next proposal.
func (p *pipeline) advanceMark(s *entity.Source, refused bool) []persistence.Change {
	next := &journalv1.Mark{
		Version: s.Version, Index: s.Index, Refused: refused, Partition: uint32(s.Partition), Sequence: s.Sequence,
	}
	data, err := proto.Marshal(next)
	if err != nil {
		return nil // a message of numbers and booleans always encodes
	}
	value := markValue(p.stream, s.Stream)
	before := p.marks[s.Stream]
	changes := []persistence.Change{{Entry: persistence.Entry{Index: markIndex, Value: value, Order: s.Version, Data: data}}}
	if before.Mark != nil && before.GetVersion() != s.Version {
		changes = append(changes, persistence.Change{
			Entry: persistence.Entry{Index: markIndex, Value: value, Order: before.GetVersion()}, Remove: true,
		})
	}
	p.remember(s.Stream, mark{Mark: next, ticket: p.proposed + 1})
	return changes
}

// markValue returns the value of a mark in markIndex.
func markValue(target persistence.Stream, source string) string {
	return string(target) + "\x00" + source
}

func (p *pipeline) commandValue(id string) string { return string(p.stream) + "\x00" + id }

// answerRepeated answers a command that the stream has applied before, by its id or source, with the stored reply, and reports
// whether it has answered. If the first command is still in flight, it answers ErrRetry.
func (p *pipeline) answerRepeated(r *request) bool {
	if r.command.Source != nil {
		return p.answerMarked(r)
	}
	id := r.command.ID
	if id == "" {
		return false
	}
	if ticket, ok := p.byID[id]; ok && ticket > p.concluded {
		r.answer(nil, ErrRetry) // when the command is sent again, the outcome of the first command is known
		return true
	}
	v, err := p.term.system.journal.View()
	if err != nil {
		p.fail(r, err)
		return true
	}
	defer v.Close()
	data, done, err := v.Lookup(p.term.partition, commandIndex, p.commandValue(id), 0)
	switch {
	case err != nil:
		p.fail(r, err)
	case done:
		r.answer(decodeReply(data))
	}
	return err != nil || done
}

// encodeReply encodes a reply with the time at which it is stored; nil is stored as wirev1.Done.
func encodeReply(m proto.Message, at time.Time) []byte {
	if m == nil {
		m = &wirev1.Done{}
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	b, _ := proto.Marshal(&wirev1.Reply{Name: entity.MessageName(m), Payload: payload, At: at.UnixMilli()})
	return b
}

// decodeReply decodes a stored reply. An empty reply is wirev1.Done.
func decodeReply(b []byte) (proto.Message, error) {
	if len(b) == 0 {
		return &wirev1.Done{}, nil
	}
	var r wirev1.Reply
	if err := proto.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	return entity.Message(r.GetName(), r.GetPayload())
}
