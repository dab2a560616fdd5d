package actors

import (
	"cmp"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// maxTimelineRows limits the rows of a page of a timeline.
	maxTimelineRows = 100
	// defaultTimelineBytes limits the payloads of a page that sets no limit.
	defaultTimelineBytes = 1 << 20
)

// timelineAccess returns the access to the timeline of a kind's entities, or InvalidRequest if they have none.
func (k *kind) timelineAccess() (entity.Access, error) {
	if k.Timeline == nil {
		return entity.Access{}, entity.Errorf(entity.InvalidRequest, "a %s has no timeline", k.Name)
	}
	return entity.Requires(k.Timeline.Need), nil
}

// passes reports whether a command is only passed on to the streams of the timeline.
func (k *kind) passes(m proto.Message) bool { return k.Timeline != nil && k.Timeline.Passes(m) }

// isRow reports whether an event with a name is a row of the timeline. It does not decode the event, because events that are no rows can be
// large, and each stream reads all events.
func (k *kind) isRow(name string) (bool, error) {
	m, err := entity.Message(name, nil)
	return err == nil && k.Timeline.IsRow(m), err
}

func isReadTimeline(r *request) bool {
	_, ok := r.command.Message.(*wirev1.ReadTimeline)
	return ok
}

// mayRead returns nil if a principal may read the timeline, according to the state with all decisions so far. Of an owned
// entity, the owner has authorized the principal with a role.
func (e *entityActor) mayRead(r authorization) error {
	if err := e.own.ensureLoaded(); err != nil {
		return err
	}
	call, err := e.reader(r.principal, r.access, r.role)
	if err != nil {
		return err
	}
	return e.kind.Timeline.Visible(call, e.own.machine.(*ruled).state)
}

// readTimeline answers with a page of the timeline, from a view of the journal, when the state that allows it is durable.
func (e *entityActor) readTimeline(r *request) {
	access, err := e.kind.timelineAccess()
	if err == nil {
		err = e.mayRead(authorization{principal: r.command.Principal, access: access, role: r.role})
	}
	asked := r.command.Message.(*wirev1.ReadTimeline)
	e.own.afterDurable(r, err, func() {
		e.answerFromView(r, func(src source) (proto.Message, error) { return readTimelinePage(src, e.kind, asked) })
	})
}

// readTimelinePage returns a page of a timeline. It reads at most scanBudget events, so that a page may be shorter than its
// limits although more rows follow. If it reaches a limit first, next is the version of the next row.
func readTimelinePage(src source, k *kind, asked *wirev1.ReadTimeline) (*wirev1.Timeline, error) {
	limit := min(max(int(asked.GetLimit()), 1), maxTimelineRows)
	most := cmp.Or(max(asked.GetBytes(), 0), defaultTimelineBytes)
	from, direction := asked.GetFrom(), persistence.Ascending
	if asked.GetDescending() {
		from, direction = cmp.Or(from, math.MaxUint64), persistence.Descending
	}
	out, size, scanned := &wirev1.Timeline{}, int64(0), 0
	for event, err := range src.view.Read(src.partition, src.stream, from, direction) {
		if err != nil {
			return nil, err
		}
		if scanned == scanBudget {
			out.Next = event.Version
			break
		}
		scanned++
		isRow, err := k.isRow(event.Name)
		if err != nil {
			return nil, err
		}
		if !isRow {
			continue
		}
		size += int64(len(event.Payload))
		if n := len(out.Events); n == limit || n > 0 && size > most {
			out.Next = event.Version
			break
		}
		out.Events = append(out.Events, &wirev1.TimelineEvent{
			Version: event.Version, At: event.At.UnixMilli(), Name: event.Name,
			Payload: append([]byte(nil), event.Payload...), // the event's bytes belong to the view
		})
	}
	return out, nil
}
