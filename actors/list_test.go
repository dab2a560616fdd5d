package actors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// hall is a workspace kind with lists that owns computers.
const hall = "hall"

// workspaceAccess returns the access to a workspace's command.
func workspaceAccess(c workspacev1.Command) entity.Access {
	access, _ := workspace.Kind.Access(c)
	return access
}

func withHall(b *bench) {
	owner := entity.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
		Name: hall, Zero: workspace.Zero, Access: workspaceAccess, Check: workspace.Check, Decide: workspace.Decide, Evolve: workspace.Evolve,
		Reply: workspace.Reply,
		Rows: func(_ entity.Call, before, after *workspacev1.Workspace, c workspacev1.Command, _ []workspacev1.Event) []entity.Row {
			var rows []entity.Row
			for id, m := range after.GetMembers() {
				if before.GetMembers()[id] == nil {
					rows = append(rows, entity.Row{List: "people", Key: id, Message: m})
				}
			}
			return rows
		},
		Lists: map[string]entity.List{"people": {Match: func(row []byte, search string) bool {
			var m workspacev1.Membership
			return proto.Unmarshal(row, &m) == nil && strings.Contains(m.GetUserId(), search)
		}}},
	}
	owned := computer.Kind
	owned.Owner = hall
	b.extra = append(b.extra, owner.Kind(), owned)
}

func (b *bench) createHall(id string) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: hall, Identity: id, Principal: entity.Platform(), Message: &workspacev1.CreateWorkspace{
		Slug: "acme", Name: "Acme", CreatorId: "usr_1",
	}})
}

func (b *bench) list(kind, id, who string, l *wirev1.List) (*wirev1.Page, error) {
	m, err := b.ask(entity.Command{Kind: kind, Identity: id, Principal: person(who), Message: l})
	if err != nil {
		return nil, err
	}
	return m.(*wirev1.Page), nil
}

// ids reads a list page by page and returns the user ids of its rows.
func (b *bench) ids(id, search string, limit int32) []string {
	b.t.Helper()
	var all []string
	var after []byte
	for range 100 {
		page, err := b.list(hall, id, "usr_1", &wirev1.List{Name: "people", Limit: limit, After: after, Search: search})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(page.GetRows()) > int(limit) {
			b.t.Fatalf("%d rows of %d", len(page.GetRows()), limit)
		}
		for _, row := range page.GetRows() {
			var m workspacev1.Membership
			if err := proto.Unmarshal(row, &m); err != nil {
				b.t.Fatal(err)
			}
			all = append(all, m.GetUserId())
		}
		if after = page.GetNext(); len(after) == 0 {
			return all
		}
	}
	b.t.Fatal("the pages do not end")
	return nil
}

// join makes a user a member, as an accepted invitation does.
func (b *bench) join(id, user string) {
	b.t.Helper()
	email := user + "@example.com"
	b.mustAsk(entity.Command{Kind: hall, Identity: id, Principal: person("usr_1"), Message: &workspacev1.Invite{
		InvitationId: "inv_" + user, Email: email, Role: workspacev1.Role_ROLE_VIEWER, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: "usr_1", Email: "usr_1@example.com"},
	}})
	b.mustAsk(entity.Command{Kind: hall, Identity: id, Principal: person(user), Message: &workspacev1.AcceptInvitation{
		InvitationId: "inv_" + user, Person: &workspacev1.Person{UserId: user, Email: email},
	}})
}

func TestListPages(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	b.createHall("ws_10") // its id begins with the id of ws_1
	want := []string{"usr_1"}
	for i := range 12 {
		user := fmt.Sprintf("usr_%02d", i)
		b.join("ws_1", user)
		want = append(want, user)
	}
	slices.Sort(want)
	for _, restarted := range []bool{false, true} {
		if restarted {
			b.restart()
		}
		for _, limit := range []int32{1, 5, 13, 100} {
			if got := b.ids("ws_1", "", limit); !slices.Equal(got, want) {
				t.Errorf("limit %d: %v", limit, got)
			}
		}
		if got := b.ids("ws_1", "_1", 2); !slices.Equal(got, []string{"usr_1", "usr_10", "usr_11"}) {
			t.Errorf("searched: %v", got)
		}
		if got := b.ids("ws_10", "", 5); !slices.Equal(got, []string{"usr_1"}) {
			t.Errorf("another workspace: %v", got)
		}
	}
	if all, err := b.router.Owners(b.t.Context(), "people", "", 10); err != nil || len(all) != 2 {
		t.Errorf("listed %v, %v", all, err)
	}
}

func TestListAccess(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	b.join("ws_1", "usr_2")
	for _, test := range []struct {
		kind, id, who string
		list          *wirev1.List
		want          entity.Code
	}{
		{hall, "ws_1", "usr_2", &wirev1.List{Name: "people"}, ""},
		{hall, "ws_1", "usr_3", &wirev1.List{Name: "people"}, entity.NotFound},
		{hall, "ws_none", "usr_1", &wirev1.List{Name: "people"}, entity.NotFound},
		{hall, "ws_1", "usr_1", &wirev1.List{Name: "none"}, entity.InvalidRequest},
		{hall, "ws_1", "usr_1", &wirev1.List{Name: computer.TaskList}, entity.InvalidRequest},
		{entity.KindComputer, "ws_1", "usr_1", &wirev1.List{Name: computer.TaskList}, ""},
		{entity.KindComputer, "ws_1", "usr_1", &wirev1.List{Name: computer.TaskList, Search: "x"}, entity.InvalidRequest},
		{entity.KindComputer, "ws_1", "usr_2", &wirev1.List{Name: computer.TaskList}, entity.Forbidden},
		{entity.KindComputer, "ws_1", "usr_3", &wirev1.List{Name: computer.Telemetry}, entity.NotFound},
	} {
		if _, err := b.list(test.kind, test.id, test.who, test.list); code(err) != test.want {
			t.Errorf("%s of %s for %s: %v, want %q", test.list, test.id, test.who, err, test.want)
		}
	}
}

// TestOwnedEntityLists verifies that an owned entity has its own stream, lists and needs, and its owner's members.
func TestOwnedEntityLists(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	b.join("ws_1", "usr_2")
	ask := func(who *wirev1.Principal, m proto.Message) (proto.Message, error) {
		return b.ask(entity.Command{Kind: entity.KindComputer, Identity: "ws_1", Principal: who, Message: m})
	}
	request := &computerv1.RequestComputer{TaskId: "tsk_1"}
	if _, err := ask(person("usr_1"), request); code(err) != entity.Forbidden {
		t.Errorf("a person does the platform's work: %v", err)
	}
	if _, err := ask(entity.Platform(), request); err != nil {
		t.Fatal(err)
	}
	if open, err := b.router.Owners(b.t.Context(), computer.TaskList, "", 10); err != nil || !slices.Equal(open, []string{"ws_1"}) {
		t.Errorf("open tasks of %v, %v", open, err)
	}
	b.restart()
	if _, err := ask(entity.Platform(), &computerv1.ReportProvisioned{TaskId: "tsk_1", VmName: "vm-1"}); err != nil {
		t.Fatal(err)
	}
	reprovision := &computerv1.Reprovision{TaskId: "tsk_2"}
	for who, want := range map[string]entity.Code{"usr_2": entity.Forbidden, "usr_3": entity.NotFound, "usr_1": ""} {
		if _, err := ask(person(who), reprovision); code(err) != want {
			t.Errorf("%s: %v, want %q", who, err, want)
		}
	}
	page, err := b.list(entity.KindComputer, "ws_1", "usr_1", &wirev1.List{Name: computer.TaskList})
	var task computerv1.Task
	if err != nil || len(page.GetRows()) != 1 || proto.Unmarshal(page.GetRows()[0], &task) != nil || task.GetId() != "tsk_2" {
		t.Errorf("tasks %v, %v", page, err)
	}
}

// TestLongPages verifies that a list may allow longer pages than the default.
func TestLongPages(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	ask := func(m proto.Message) entity.Command {
		return entity.Command{Kind: entity.KindComputer, Identity: "ws_1", Principal: entity.Platform(), Message: m}
	}
	b.mustAsk(ask(&computerv1.RequestComputer{TaskId: "tsk_1"}))
	b.mustAsk(ask(&computerv1.ReportProvisioned{TaskId: "tsk_1"}))
	const samples = 150
	for i := range int64(samples) {
		b.mustAsk(ask(&computerv1.RecordSample{Sample: &computerv1.Sample{At: i * 15_000}}))
	}
	page, err := b.list(entity.KindComputer, "ws_1", "usr_1", &wirev1.List{Name: computer.Telemetry, Limit: 5760})
	if err != nil || len(page.GetRows()) != samples || len(page.GetNext()) > 0 {
		t.Errorf("%d rows, %v", len(page.GetRows()), err)
	}
}

// TestPut verifies that rows of Put are in the list of the entity, which is not activated.
func TestPut(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	b.restart()
	before := b.metric("atelier_actor_activations_total", hall)
	for at := range int64(3) {
		sample := &computerv1.Sample{At: at * 15_000, CpuPct: 1}
		if err := b.system.Put(t.Context(), b.router.Partition("ws_1"), "ws_1", computer.SampleRow(sample)); err != nil {
			t.Fatal(err)
		}
	}
	if after := b.metric("atelier_actor_activations_total", hall); after != before {
		t.Errorf("%v activations for rows", after-before)
	}
	b.restart()
	page, err := b.list(entity.KindComputer, "ws_1", "usr_1", &wirev1.List{Name: computer.Telemetry, Limit: 5760})
	if err != nil || len(page.GetRows()) != 3 {
		t.Errorf("%d rows, %v", len(page.GetRows()), err)
	}
}
