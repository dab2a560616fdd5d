package actors

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// markIndex holds how far a stream has carried out the reactions to each other stream's events: under the value "target,
// zero byte, source" and the order of the source event's version there is one journal.v1.Mark. It is written in the batch
// of the command's effect, or alone if the command changed nothing or was refused for good.
//
// The version is the row's order so that expiry never removes a newer mark than the one that it has read.
const markIndex = "reaction"

// maxMarks bounds the marks that a pipeline remembers.
const maxMarks = 1024

// errRefusedBefore answers a repeated command that was refused for good.
var errRefusedBefore = entity.Errorf(entity.Forbidden, "the command was refused before")

// marks are a stream's marks by source stream, as of its last proposal.
type marks map[string]mark

type mark struct {
	*journalv1.Mark
	// ticket is the proposal that writes the mark; 0: it is durable.
	ticket uint64
}

// covers reports whether the mark says that a command has been carried out.
func (m mark) covers(s *entity.Source) bool {
	return m.Mark != nil && (s.Version < m.GetVersion() || s.Version == m.GetVersion() && s.Index <= m.GetIndex())
}

// marked answers a command of a reaction that the stream has carried out. While the mark is not durable, the command is
// to be sent again.
func (p *pipeline) marked(r *request) bool {
	source := r.command.Source
	m, err := p.findMark(source.Stream)
	switch {
	case err != nil:
		p.refuse(r, err)
		return true
	case !m.covers(source):
		return false
	case m.ticket > p.settled:
		r.answer(nil, ErrRetry)
	case m.GetRefused() && source.Version == m.GetVersion() && source.Index == m.GetIndex():
		r.answer(nil, errRefusedBefore)
	default:
		r.answer(decodeReply(nil))
	}
	return true
}

// findMark returns the mark of a source stream; without a journalv1.Mark: there is none.
func (p *pipeline) findMark(source string) (mark, error) {
	if m, ok := p.marks[source]; ok {
		return m, nil
	}
	v, err := p.term.node.journal.View()
	if err != nil {
		return mark{}, err
	}
	defer v.Close()
	var found mark
	for row, err := range v.Index(p.term.partition, persistence.Query{
		Index: markIndex, Value: markValue(p.stream, source), From: math.MaxUint64, Direction: persistence.Descending,
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
	p.remember(source, found)
	return found, nil
}

// remember makes room by forgetting marks that are durable.
func (p *pipeline) remember(source string, m mark) {
	if len(p.marks) >= maxMarks {
		for other, known := range p.marks {
			if known.ticket <= p.settled {
				delete(p.marks, other)
			}
		}
	}
	p.marks[source] = m
}

// mark returns the changes that move the mark of a source on. They are for the next proposal.
func (p *pipeline) mark(s *entity.Source, refused bool) []persistence.Change {
	next := &journalv1.Mark{
		Version: s.Version, Index: s.Index, Refused: refused, Partition: uint32(s.Partition), Sequence: s.Sequence,
	}
	data, err := proto.Marshal(next)
	if err != nil {
		return nil // numbers only: it cannot fail
	}
	value := markValue(p.stream, s.Stream)
	before := p.marks[s.Stream]
	changes := []persistence.Change{{Entry: persistence.Entry{Index: markIndex, Value: value, Order: s.Version, Data: data}}}
	if before.Mark != nil && before.GetVersion() != s.Version {
		changes = append(changes, persistence.Change{
			Entry: persistence.Entry{Index: markIndex, Value: value, Order: before.GetVersion()}, Remove: true,
		})
	}
	p.remember(s.Stream, mark{next, p.proposed + 1})
	return changes
}

func markValue(target persistence.Stream, source string) string {
	return string(target) + "\x00" + source
}
