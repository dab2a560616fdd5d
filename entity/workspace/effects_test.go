package workspace_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// tasks returns the ids of the open tasks of a kind.
func (w *world) tasks(kind string) []string {
	var ids []string
	for _, t := range workspace.Tasks(w.s) {
		if t.Kind == kind {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

func TestLocksAreRemovedByATask(t *testing.T) {
	const editor, viewer = workspacev1.Role_ROLE_EDITOR, workspacev1.Role_ROLE_VIEWER
	w := newReadyWorld(t)
	w.join("bob", editor)
	expect := func(what string, n int) string {
		t.Helper()
		open := w.tasks(workspace.LockTask)
		if len(open) != n {
			t.Fatalf("%s: %v are open, want %d", what, open, n)
		}
		if n == 0 {
			return ""
		}
		return open[0]
	}
	demote := func() {
		t.Helper()
		w.must(entity.Platform(), &workspacev1.ChangeRole{UserId: "bob", Role: viewer})
	}
	expect("an editor", 0)
	demote()
	first := expect("demoted", 1)
	w.must(entity.Platform(), &workspacev1.RemoveMember{UserId: "bob"})
	if second := expect("a viewer removed", 1); second != first {
		t.Errorf("the task %s is replaced by %s", first, second)
	}
	w.must(entity.Platform(), &workspacev1.ReportLocksRemoved{UserId: "bob", TaskId: "another"})
	expect("another task reported", 1)
	w.must(entity.Platform(), &workspacev1.ReportLocksRemoved{UserId: "bob", TaskId: first})
	expect("reported", 0)

	w.join("cat", editor)
	w.must(entity.Platform(), &workspacev1.ChangeRole{UserId: "cat", Role: viewer})
	earlier := expect("demoted", 1)
	w.must(entity.Platform(), &workspacev1.ChangeRole{UserId: "cat", Role: editor})
	expect("an editor again", 0)
	w.must(entity.Platform(), &workspacev1.RemoveMember{UserId: "cat"})
	if later := expect("removed", 1); later == earlier {
		t.Error("two removals are one task")
	}
	w.must(entity.Platform(), &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_DELETED})
	expect("deleted", 0)
}

func TestOnlyThePlatformSeesLockRemovals(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", workspacev1.Role_ROLE_EDITOR)
	w.must(entity.Platform(), &workspacev1.RemoveMember{UserId: "bob"})
	w.must(entity.Platform(), &workspacev1.RequestAnchorCheck{})
	reply, _ := w.must(person("ann"), &workspacev1.DescribeWorkspace{})
	shown := reply.(*workspacev1.Description).GetWorkspace()
	if len(shown.GetLockRemovals()) != 0 || shown.GetAnchorCheck() != 0 {
		t.Errorf("an owner sees %v", shown)
	}
}

// TestAnchorCheck checks that a check that is requested while another check runs stays open.
func TestAnchorCheck(t *testing.T) {
	w := newReadyWorld(t)
	if open := w.tasks(workspace.AnchorCheckTask); len(open) != 0 {
		t.Fatalf("%v are open", open)
	}
	request := func() uint64 {
		t.Helper()
		w.must(entity.Platform(), &workspacev1.RequestAnchorCheck{})
		return w.s.GetAnchorCheck()
	}
	first := request()
	second := request()
	w.must(entity.Platform(), &workspacev1.ReportAnchorsChecked{Check: first})
	if open := w.tasks(workspace.AnchorCheckTask); len(open) != 1 || w.s.GetAnchorCheck() != second {
		t.Errorf("%v are open, check %d", open, w.s.GetAnchorCheck())
	}
	w.must(entity.Platform(), &workspacev1.ReportAnchorsChecked{Check: second})
	if open := w.tasks(workspace.AnchorCheckTask); len(open) != 0 {
		t.Errorf("%v are open", open)
	}
}

// TestOrphanTimer checks that the timer is due when the first broken anchor is orphaned, and then for the next one.
func TestOrphanTimer(t *testing.T) {
	w := newReadyWorld(t)
	for _, path := range []string{"a", "b"} {
		w.must(entity.Platform(), &workspacev1.CreateAnchor{
			AnchorId: "anc_" + path, Path: path, Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH,
		})
	}
	due := func() time.Time {
		t.Helper()
		timers := workspace.Timers(w.s)
		if len(timers) != 1 {
			t.Fatalf("timers %v", timers)
		}
		return time.UnixMilli(timers[0].At)
	}
	if timers := workspace.Timers(w.s); len(timers) != 0 {
		t.Errorf("timers %v", timers)
	}
	w.must(entity.Platform(), &workspacev1.BreakAnchor{AnchorId: "anc_a", Path: "a"})
	first := due()
	w.now = w.now.Add(day)
	w.must(entity.Platform(), &workspacev1.BreakAnchor{AnchorId: "anc_b", Path: "b"})
	if due() != first {
		t.Errorf("due at %v, want %v", due(), first)
	}
	w.now = first
	w.must(entity.Platform(), &workspacev1.OrphanAnchors{})
	if due() != first.Add(day) {
		t.Errorf("due at %v, want a day later than %v", due(), first)
	}
	w.now = first.Add(day)
	w.must(entity.Platform(), &workspacev1.OrphanAnchors{})
	if timers := workspace.Timers(w.s); len(timers) != 0 {
		t.Errorf("timers %v", timers)
	}
}

// TestDescribeWorkspaceWaitsForTasks has a query that waits for recent tasks.
func TestDescribeWorkspaceWaitsForTasks(t *testing.T) {
	const limit = 2 * time.Second
	now := time.UnixMilli(1_800_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	provisioning := func(at int64) *workspacev1.Workspace {
		return &workspacev1.Workspace{Status: workspacev1.Status_STATUS_PROVISIONING, CreatedAt: at}
	}
	removal := func(at int64) *workspacev1.Workspace {
		return &workspacev1.Workspace{LockRemovals: map[string]*workspacev1.LockRemoval{"usr_1": {RequestedAt: at}}}
	}
	for name, test := range map[string]struct {
		workspace *workspacev1.Workspace
		limit     time.Duration
		want      bool
	}{
		"no workspace":                    {nil, limit, false},
		"being provisioned":               {provisioning(ago(time.Second)), limit, true},
		"provisioning takes too long":     {provisioning(ago(limit)), limit, false},
		"provisioned":                     {&workspacev1.Workspace{Status: workspacev1.Status_STATUS_ACTIVE, CreatedAt: ago(time.Second)}, limit, false},
		"locks are to be removed":         {removal(ago(time.Second)), limit, true},
		"removal of locks takes too long": {removal(ago(limit)), limit, false},
		"opened by a clock that is ahead": {removal(ago(-time.Second)), limit, true},
		"opened by a clock a year ahead":  {removal(ago(-365 * 24 * time.Hour)), limit, false},
		"a query that does not wait":      {removal(ago(-time.Second)), 0, false},
	} {
		query := &workspacev1.DescribeWorkspace{AwaitTasksMs: test.limit.Milliseconds()}
		if got := workspace.Waits(entity.Call{Now: now, Principal: entity.Platform()}, test.workspace, query); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
