package workspace_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const day = 24 * time.Hour

// world is a workspace with its lists, as the journal would store them.
type world struct {
	t      rapid.TB
	s      *workspacev1.Workspace
	now    time.Time
	events []workspacev1.Event
	// lists has the rows by the name of the list and the key.
	lists map[string]map[string]proto.Message
}

// newWorld returns a world before its workspace is created.
func newWorld(t rapid.TB) *world {
	return &world{t: t, s: workspace.Zero(acme), now: noon, lists: map[string]map[string]proto.Message{}}
}

// newReadyWorld returns a world with an active workspace that ann created.
func newReadyWorld(t rapid.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.must(entity.Platform(), &workspacev1.CreateWorkspace{
		Slug: "acme", Name: "Acme", CreatorId: "ann", CreatorEmail: address("ann"), CreatorName: "Ann",
	})
	w.must(entity.Platform(), &workspacev1.ReportReady{})
	return w
}

func address(id string) string { return id + "@example.com" }

func (w *world) call(p *wirev1.Principal) entity.Call {
	return entity.Call{Now: w.now, Identity: acme, Principal: p, Version: uint64(len(w.events)) + 1}
}

// send decides a command, applies its events and stores its rows, as an actor would. It fails the test if a law is broken.
func (w *world) send(p *wirev1.Principal, c workspacev1.Command) (proto.Message, []workspacev1.Event, error) {
	w.t.Helper()
	call := w.call(p)
	next, events, err := w.execute(call, c)
	rows := workspace.Rows(call, w.s, next, c, events)
	if len(events) == 0 && (len(rows) > 0 || !proto.Equal(w.s, next)) {
		w.t.Fatalf("%T without events: %d rows, %v", c, len(rows), next)
	}
	before := w.s
	w.s, w.events = next, append(w.events, events...)
	w.store(rows)
	w.check()
	if err != nil {
		return nil, nil, err
	}
	if entity.IsPlatform(p) && before.GetStatus() == workspacev1.Status_STATUS_DELETED && len(events) > 0 {
		w.t.Fatalf("%T changed a deleted workspace", c)
	}
	return workspace.Reply(call, next, c, events), events, nil
}

func (w *world) execute(call entity.Call, c workspacev1.Command) (*workspacev1.Workspace, []workspacev1.Event, error) {
	w.t.Helper()
	if !isNotRepeatable(call.Principal, c) {
		return rules.Execute(w.t, call, w.s, c)
	}
	events, err := workspace.Rules.AuthorizeAndDecide(call, w.s, c)
	next := w.s
	for _, e := range events {
		next = workspace.Evolve(next, e)
	}
	return next, events, err
}

// isNotRepeatable reports whether the repetition of a command may have another result: reservations are renewed, audit events and work are recorded
// again, and members who have given up their own role may no longer send the command.
func isNotRepeatable(p *wirev1.Principal, c workspacev1.Command) bool {
	switch c := c.(type) {
	case *workspacev1.ReserveAppPort, *workspacev1.RecordAudit, *workspacev1.RequestAnchorCheck, *workspacev1.AddAgentUsage:
		return true
	case *workspacev1.ChangeRole:
		return c.GetUserId() == p.GetUserId()
	case *workspacev1.RemoveMember:
		return c.GetUserId() == p.GetUserId()
	default:
		return false
	}
}

// must sends a command and fails the test if it is refused.
func (w *world) must(p *wirev1.Principal, c workspacev1.Command) (proto.Message, []workspacev1.Event) {
	w.t.Helper()
	reply, events, err := w.send(p, c)
	if err != nil {
		w.t.Fatalf("%T by %v: %v", c, p, err)
	}
	return reply, events
}

func (w *world) store(rows []entity.Row) {
	w.t.Helper()
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[row.List+row.Key] {
			w.t.Fatalf("two rows with the same key in %s", row.List)
		}
		seen[row.List+row.Key] = true
		list := w.lists[row.List]
		if list == nil {
			list = map[string]proto.Message{}
			w.lists[row.List] = list
		}
		_, exists := list[row.Key]
		switch {
		case row.Message == nil && !exists:
			w.t.Fatalf("a row that does not exist is removed from %s", row.List)
		case row.Message == nil:
			delete(list, row.Key)
		case row.List == audit.List && exists:
			w.t.Fatal("an audit row is overwritten")
		default:
			list[row.Key] = row.Message
		}
	}
}

// check compares the lists with the state and the audit log with the events, and checks the invariants of the state.
func (w *world) check() {
	w.t.Helper()
	want := map[string]map[string]proto.Message{"members": {}, "invitations": {}, "anchors": {}, "anchors.broken": {}, "agents": {}}
	for _, m := range w.s.GetMembers() {
		want["members"][entity.AscendingKey(m.GetPosition())] = m
	}
	for _, i := range w.s.GetInvitations() {
		want["invitations"][entity.DescendingKey(i.GetPosition())] = i
	}
	for _, a := range w.s.GetAnchors() {
		want["anchors"][entity.AscendingKey(a.GetPosition())] = a
		if a.GetState() == workspacev1.AnchorState_ANCHOR_STATE_BROKEN {
			want["anchors.broken"][a.GetId()] = a
		}
		if a.GetAgent() != nil {
			want["agents"][entity.AscendingKey(a.GetPosition())] = a
		}
	}
	for name, rows := range want {
		same := func(a, b proto.Message) bool { return proto.Equal(a, b) }
		if !maps.EqualFunc(rows, w.lists[name], same) {
			w.t.Fatalf("list %s is %v, want %v", name, w.lists[name], rows)
		}
	}
	changes, apps := 0, map[string]bool{}
	for _, e := range w.events {
		if created, is := e.(*workspacev1.AnchorCreated); is {
			apps[created.GetAnchor().GetId()] = created.GetRegistration() != nil
		}
		if gone, is := e.(*workspacev1.AnchorRemoved); is && apps[gone.GetAnchorId()] {
			continue // the app itself logs its removal
		}
		switch e.(type) {
		case *workspacev1.MemberUpdated, *workspacev1.MemberDisabledSet, *workspacev1.LocksRemoved, *workspacev1.AnchorCheckRequested, *workspacev1.AnchorsChecked,
			*workspacev1.AgentUpdated, *workspacev1.DefaultSessionSet, *workspacev1.AgentUsageAdded, *workspacev1.AgentUsageAllowed,
			*workspacev1.SessionsStopped, *workspacev1.AppPortsChanged, *workspacev1.InvitationMailed:
		default:
			changes++
		}
	}
	if len(w.lists[audit.List]) != changes {
		w.t.Fatalf("%d changes, %d audit rows", changes, len(w.lists[audit.List]))
	}
	if err := checkInvariants(w.s); err != nil {
		w.t.Fatal(err)
	}
}

// checkInvariants returns an error if a state violates an invariant.
func checkInvariants(s *workspacev1.Workspace) error {
	if s.GetStatus() == workspacev1.Status_STATUS_UNSPECIFIED {
		return nil
	}
	positions := map[uint64]bool{}
	for id, m := range s.GetMembers() {
		if m.GetUserId() != id || m.GetBilling() != (id == s.GetBillingUserId()) || positions[m.GetPosition()] {
			return fmt.Errorf("member %s is %v", id, m)
		}
		positions[m.GetPosition()] = true
	}
	if payer := s.GetMembers()[s.GetBillingUserId()]; payer.GetRole() != workspacev1.Role_ROLE_OWNER {
		return fmt.Errorf("the payer is %v", payer)
	}
	taken := map[string]string{}
	appSlugs, ports := map[string]bool{}, map[uint32]bool{}
	slugs, owners := map[string]bool{"root": true}, map[string]bool{"root": true}
	for id, a := range s.GetAnchors() {
		if agent := a.GetAgent(); agent != nil {
			if slugs[agent.GetSlug()] {
				return fmt.Errorf("two agents have the slug %s", agent.GetSlug())
			}
			slugs[agent.GetSlug()], owners[agent.GetId()] = true, true
		}
		if app := a.GetApp(); app != nil {
			if appSlugs[app.GetSlug()] || len(app.GetPorts()) == 0 {
				return fmt.Errorf("the slug or the ports of %v", app)
			}
			appSlugs[app.GetSlug()] = true
			for _, p := range app.GetPorts() {
				if ports[p.GetPort()] {
					return fmt.Errorf("two apps have the port %d", p.GetPort())
				}
				ports[p.GetPort()] = true
			}
		}
		place := a.GetKind().String() + a.GetPath()
		alone := a.GetKind() <= workspacev1.AnchorKind_ANCHOR_KIND_AGENT && a.GetState() == workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
		if alone && taken[place] != "" {
			return fmt.Errorf("%s and %s are both at %s", id, taken[place], a.GetPath())
		} else if alone {
			taken[place] = id
		}
	}
	for owner, session := range s.GetDefaultSessions() {
		if !owners[owner] || session == "" {
			return fmt.Errorf("%q has the default session %q", owner, session)
		}
	}
	return nil
}

// lastAudit returns the newest row of the audit log.
func (w *world) lastAudit() *auditv1.Event {
	first := ""
	for key := range w.lists[audit.List] {
		if first == "" || key < first {
			first = key
		}
	}
	return w.lists[audit.List][first].(*auditv1.Event)
}

// join makes a person a member by invitation.
func (w *world) join(id string, role workspacev1.Role) {
	w.t.Helper()
	inv := "inv_" + id
	w.must(person("ann"), &workspacev1.Invite{
		InvitationId: inv, Email: address(id), Role: workspacev1.Role_ROLE_EDITOR, SecretSha256: secret(inv),
	})
	w.must(person(id), &workspacev1.AcceptInvitation{InvitationId: inv, Person: somebody(id)})
	w.must(person("ann"), &workspacev1.ChangeRole{UserId: id, Role: role})
}

func somebody(id string) *workspacev1.Person {
	return &workspacev1.Person{UserId: id, Email: address(id), Name: "Name of " + id}
}

// secret returns 32 bytes that depend on a text.
func secret(of string) []byte { return []byte(fmt.Sprintf("%-32.32s", of)) }

// mustRefuse fails the test unless the command is refused with the code.
func (w *world) mustRefuse(p *wirev1.Principal, c workspacev1.Command, code entity.Code) {
	w.t.Helper()
	if _, _, err := w.send(p, c); entitytest.Code(err) != code {
		w.t.Errorf("%T %v by %v: %v, want %s", c, c, p.GetUserId(), err, code)
	}
}

// mustNotChange fails the test unless the command succeeds without events.
func (w *world) mustNotChange(p *wirev1.Principal, c workspacev1.Command) proto.Message {
	w.t.Helper()
	reply, events := w.must(p, c)
	if len(events) > 0 {
		w.t.Errorf("%T: %v", c, events)
	}
	return reply
}

func TestAuditRowsOfOneTime(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), &workspacev1.Suspend{})
	w.must(person("ann"), &workspacev1.Resume{})
	if got := w.lastAudit().GetEvent(); got != "workspace.resumed" {
		t.Errorf("the newest is %s", got)
	}
}
