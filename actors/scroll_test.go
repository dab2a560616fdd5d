package actors_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// scroll is a kind with a timeline that workspaces own. freeScroll is such a kind without an owner; its members are all users except
// usr_9. RecordRows adds as many rows as its batch says, and MarkRead as many other events as its seq; a row's reader is the text
// "row", and its seq its number. AwaitInput waits until there are as many rows as its seq. A batch of 13 panics. The title in a
// reply is the role of the sender.
const (
	scroll     = "scroll"
	freeScroll = "free"
)

func withScrolls(b *bench) {
	owned := entity.Rules[*sessionv1.Session, sessionv1.Command, sessionv1.Event]{
		Name: scroll, Owner: entity.KindWorkspace,
		Zero: func(identity string) *sessionv1.Session { return &sessionv1.Session{Id: identity} },
		Access: func(c sessionv1.Command) entity.Access {
			switch c.(type) {
			case *sessionv1.RecordRows, *sessionv1.MarkRead, *sessionv1.ChangeAudience:
				return entity.Requires(entity.Changes(entity.Sessions))
			default:
				return entity.Requires(entity.Reads(entity.Sessions))
			}
		},
		Decide: decideScroll, Evolve: evolveScroll,
		Reply: func(call entity.Call, s *sessionv1.Session, _ sessionv1.Command, _ []sessionv1.Event) proto.Message {
			return &sessionv1.Description{Session: &sessionv1.Session{LastEventSeq: s.GetLastEventSeq(), Title: call.Role.String()}}
		},
		Waits: func(call entity.Call, s *sessionv1.Session, c sessionv1.Command) bool {
			await, ok := c.(*sessionv1.AwaitInput)
			return ok && seesScroll(call, s) == nil && s.GetLastEventSeq() < await.GetSeq()
		},
		Timeline: &entity.Timeline[*sessionv1.Session, sessionv1.Command, sessionv1.Event]{
			Need: entity.Reads(entity.Sessions), Visible: seesScroll,
			IsRow:  func(e sessionv1.Event) bool { _, ok := e.(*sessionv1.RowAdded); return ok },
			Passes: func(c sessionv1.Command) bool { _, ok := c.(*sessionv1.PublishDelta); return ok },
		},
	}
	free := owned
	free.Name, free.Owner = freeScroll, ""
	free.Check = func(call entity.Call, _ *sessionv1.Session, _ entity.Need) error {
		if call.Principal.GetUserId() == "usr_9" {
			return entity.Errorf(entity.NotFound, "")
		}
		return nil
	}
	b.extra = append(b.extra, owned.Kind(), free.Kind())
}

// seesScroll refuses principals outside the audience, if there is one.
func seesScroll(call entity.Call, s *sessionv1.Session) error {
	if entity.IsPlatform(call.Principal) || !s.GetAudience().GetSpecific() {
		return nil
	}
	for _, id := range s.GetAudience().GetUserIds() {
		if id == call.Principal.GetUserId() {
			return nil
		}
	}
	return entity.Errorf(entity.NotFound, "")
}

func decideScroll(call entity.Call, s *sessionv1.Session, c sessionv1.Command) ([]sessionv1.Event, error) {
	if err := seesScroll(call, s); err != nil {
		return nil, err
	}
	var events []sessionv1.Event
	switch c := c.(type) {
	case *sessionv1.RecordRows:
		if c.GetBatch() == 13 {
			panic("a batch of 13")
		}
		for i := range c.GetBatch() {
			events = append(events, &sessionv1.RowAdded{Seq: s.GetLastEventSeq() + i + 1, Reader: "row"})
		}
	case *sessionv1.MarkRead:
		for range c.GetSeq() {
			events = append(events, &sessionv1.ReadMarked{})
		}
	case *sessionv1.ChangeAudience:
		events = append(events, &sessionv1.AudienceChanged{Audience: &sessionv1.Audience{Specific: true, UserIds: c.GetAdd()}})
	}
	return events, nil
}

func evolveScroll(s *sessionv1.Session, e sessionv1.Event) *sessionv1.Session {
	next := proto.CloneOf(s)
	switch e := e.(type) {
	case *sessionv1.RowAdded:
		next.LastEventSeq++
	case *sessionv1.AudienceChanged:
		next.Audience = e.GetAudience()
	}
	return next
}

func toScroll(id string, p *wirev1.Principal, m proto.Message) entity.Command {
	return entity.Command{Kind: scroll, Identity: id, Principal: p, Message: m}
}

func rows(n uint64) *sessionv1.RecordRows { return &sessionv1.RecordRows{Batch: n} }

// described returns the number of rows and the role of the sender from a reply.
func described(m proto.Message) (rows uint64, role string) {
	s := m.(*sessionv1.Description).GetSession()
	return s.GetLastEventSeq(), s.GetTitle()
}

// addRows adds rows one by one, by commands with ids, so that a repetition adds none twice.
func (b *bench) addRows(id string, n int) {
	b.t.Helper()
	for range n {
		c := toScroll(id, entity.Platform(), rows(1))
		c.ID = fmt.Sprint("add-", b.added.Add(1))
		b.mustAsk(c)
	}
}

// changeRole changes the role of a member of ws_1.
func (b *bench) changeRole(userID string, role workspacev1.Role) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"),
		Message: &workspacev1.ChangeRole{UserId: userID, Role: role}})
}

func TestRoleOfSender(t *testing.T) {
	b := newBench(t, withScrolls, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	b.admitted("ws_1", "usr_2")
	role := func(kind string, p *wirev1.Principal) string {
		_, role := described(b.mustAsk(entity.Command{Kind: kind, Identity: "ws_1/a", Principal: p, Message: &sessionv1.DescribeSession{}}))
		return role
	}
	if got := role(scroll, person("usr_1")); got != "ROLE_OWNER" {
		t.Errorf("the creator is %s", got)
	}
	if got := role(scroll, person("usr_2")); got != "ROLE_EDITOR" {
		t.Errorf("the member is %s", got)
	}
	b.changeRole("usr_2", workspacev1.Role_ROLE_VIEWER)
	if got := role(scroll, person("usr_2")); got != "ROLE_VIEWER" {
		t.Errorf("after the change the member is %s", got)
	}
	if got := role(scroll, entity.Platform()); got != "ROLE_OWNER" {
		t.Errorf("the platform is %s", got)
	}
	if got := role(freeScroll, person("usr_1")); got != "ROLE_UNSPECIFIED" {
		t.Errorf("without an owner the sender is %s", got)
	}
	b.mustAsk(toNote("ws_1/a", person("usr_1"), &slugv1.ResolveSlug{}))
}

// TestOwnedEntityWithManyEvents verifies that an owned entity with many events is restored from snapshots and remembers commands
// by their ids.
func TestOwnedEntityWithManyEvents(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	first := toScroll("ws_1/a", person("usr_1"), rows(1))
	first.ID = "first"
	b.mustAsk(first)
	for range 6 {
		b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(100)))
	}
	b.restart()
	v, err := b.journal.View()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := v.Snapshot(b.router.Partition("ws_1"), scroll+"/ws_1/a")
	if err != nil || snapshot.Version < 512 {
		t.Errorf("the snapshot has version %d, %v", snapshot.Version, err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if n, _ := described(b.mustAsk(first)); n != 1 {
		t.Errorf("the repeated command is answered with %d rows", n)
	}
	if n, _ := described(b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.DescribeSession{}))); n != 601 {
		t.Errorf("%d rows", n)
	}
}
