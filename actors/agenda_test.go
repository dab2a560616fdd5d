package actors_test

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/atelier-run/atelier/entity"
)

// agenda is a kind with timers and tasks. Its state, commands and events are Structs: a command and its event are an action on
// an id, and the state counts by action and id.
//
//	set, ring, cancel   set a timer, its due command, cancel it
//	open, done, drop    open a task, complete it, give it up
//	deaf                ring no longer removes timers
//	brief               is the id of a timer that is due within an hour
//	list                add the agenda's row to the list of agendas with timers and tasks
func agenda() entity.Kind {
	return entity.Rules[*structpb.Struct, *structpb.Struct, *structpb.Struct]{
		Name: "agenda", Zero: func(string) *structpb.Struct { return &structpb.Struct{} },
		Decide: func(_ entity.Call, s, c *structpb.Struct) ([]*structpb.Struct, error) {
			id := text(c, "id")
			_, waits := noted(s, "set", id)
			_, open := noted(s, "open", id)
			_, deaf := noted(s, "deaf", "")
			switch action := text(c, "do"); {
			case action == "describe", action == "ring" && deaf, (action == "ring" || action == "cancel") && !waits,
				(action == "done" || action == "drop") && !open:
				return nil, nil
			}
			return []*structpb.Struct{c}, nil
		},
		Evolve: func(s, e *structpb.Struct) *structpb.Struct {
			next := proto.CloneOf(s)
			action, id := text(e, "do"), text(e, "id")
			count, _ := noted(s, action, id)
			setNote(next, action, id, count+1)
			switch action {
			case "set":
				setNote(next, "set", id, e.GetFields()["at"].GetNumberValue())
			case "ring", "cancel":
				delete(next.GetFields(), "set "+id)
			case "done", "drop":
				delete(next.GetFields(), "open "+id)
			}
			return next
		},
		Reply:       func(_ entity.Call, s, _ *structpb.Struct, _ []*structpb.Struct) proto.Message { return s },
		EffectLists: []string{"agendas"},
		Pauses:      map[string]time.Duration{"brief": time.Hour},
		Rows: func(_ entity.Call, _, _, c *structpb.Struct, events []*structpb.Struct) []entity.Row {
			if len(events) == 0 || text(c, "do") != "list" {
				return nil
			}
			return []entity.Row{{List: "agendas", Key: "row", Message: c}}
		},
		StateRows: func(s *structpb.Struct) []entity.Row {
			return []entity.Row{{List: "agendas.state", Key: "row", Message: s}}
		},
		Timers: func(s *structpb.Struct) []entity.Timer {
			var all []entity.Timer
			for _, id := range ids(s, "set ") {
				at, _ := noted(s, "set", id)
				all = append(all, entity.Timer{ID: id, At: int64(at), Message: act("ring", id)})
			}
			return all
		},
		Tasks: func(s *structpb.Struct) []entity.Task {
			var all []entity.Task
			for _, id := range ids(s, "open ") {
				all = append(all, entity.Task{Kind: "chore", ID: id, Message: act("done", id)})
			}
			return all
		},
	}.Kind()
}

func act(action, id string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"do": structpb.NewStringValue(action), "id": structpb.NewStringValue(id)}}
}

func text(s *structpb.Struct, name string) string { return s.GetFields()[name].GetStringValue() }

func noted(s *structpb.Struct, action, id string) (float64, bool) {
	v, ok := s.GetFields()[action+" "+id]
	return v.GetNumberValue(), ok
}

func setNote(s *structpb.Struct, action, id string, n float64) {
	if s.Fields == nil {
		s.Fields = map[string]*structpb.Value{}
	}
	s.Fields[action+" "+id] = structpb.NewNumberValue(n)
}

func ids(s *structpb.Struct, prefix string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			all = append(all, name[len(prefix):])
		}
	}
	return all
}

func withAgenda(b *bench) { b.extra = append(b.extra, agenda()) }

func toAgenda(identity string, m *structpb.Struct) entity.Command {
	return entity.Command{Kind: "agenda", Identity: identity, Principal: entity.Platform(), Message: m}
}

// setTimer sets a timer that is due after a pause.
func (b *bench) setTimer(identity, id string, pause time.Duration) {
	b.t.Helper()
	b.mustAsk(toAgenda(identity, timerOf(id, b.clock.Now().Add(pause))))
}

func timerOf(id string, at time.Time) *structpb.Struct {
	m := act("set", id)
	m.Fields["at"] = structpb.NewNumberValue(float64(at.UnixMilli()))
	return m
}

// count returns the number of times that an agenda has recorded an action on an id.
func (b *bench) count(identity, action, id string) int {
	b.t.Helper()
	n, _ := noted(b.mustAsk(toAgenda(identity, act("describe", ""))).(*structpb.Struct), action, id)
	return int(n)
}
