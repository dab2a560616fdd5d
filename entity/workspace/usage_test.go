package workspace_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func work(in, out uint64, ms int64) *workspacev1.AgentWork {
	return &workspacev1.AgentWork{InputTokens: in, OutputTokens: out, RunningMs: ms}
}

func (w *world) add(work *workspacev1.AgentWork) {
	w.t.Helper()
	w.must(entity.Platform(), &workspacev1.AddAgentUsage{SessionId: "ses_1", Work: work})
}

func (w *world) checkUsage(used, allowed *workspacev1.AgentWork) {
	w.t.Helper()
	got := w.mustNotChange(person("ann"), &workspacev1.ReadAgentUsage{})
	want := &workspacev1.AgentUsage{Day: w.now.UnixMilli() / day.Milliseconds(), Used: used, Allowed: allowed}
	if !proto.Equal(got, want) {
		w.t.Errorf("%v, want %v", got, want)
	}
}

func TestAgentUsage(t *testing.T) {
	w := newReadyWorld(t)
	w.checkUsage(nil, nil)
	w.mustNotChange(person("ann"), &workspacev1.AllowAgentUsage{})
	w.add(work(1, 2, 3))
	w.add(work(10, 0, 0))
	w.mustNotChange(entity.Platform(), &workspacev1.AddAgentUsage{SessionId: "ses_1"})
	w.checkUsage(work(11, 2, 3), nil)
	w.must(person("ann"), &workspacev1.AllowAgentUsage{})
	w.add(work(0, 0, 4))
	w.checkUsage(work(11, 2, 7), work(11, 2, 3))

	// The next day begins without usage, and the day before is forgotten with the first work.
	w.now = w.now.Add(day)
	w.checkUsage(nil, nil)
	w.mustNotChange(person("ann"), &workspacev1.AllowAgentUsage{})
	w.add(work(1, 0, 0))
	w.checkUsage(work(1, 0, 0), nil)

	// A clock that is set back a little does not renew the budget.
	later := w.now
	w.now = w.now.Add(-day)
	w.add(work(1, 0, 0))
	w.now = later
	w.checkUsage(work(2, 0, 0), nil)

	w.add(work(entity.MaxTime, entity.MaxTime, entity.MaxTime))
	w.checkUsage(work(entity.MaxTime, entity.MaxTime, entity.MaxTime), nil)
	for _, c := range []*workspacev1.AddAgentUsage{
		{SessionId: "ses_1", Work: work(0, 0, -1)}, {SessionId: "ses_1", Work: work(entity.MaxTime+1, 0, 0)}, {Work: work(1, 0, 0)},
	} {
		w.mustRefuse(entity.Platform(), c, entity.InvalidRequest)
	}
}

// TestAgentUsageAfterTheClockWasAhead checks that each day has its own budget again, when the clock is right after it was ahead.
func TestAgentUsageAfterTheClockWasAhead(t *testing.T) {
	w := newReadyWorld(t)
	w.now = w.now.Add(365 * day)
	w.add(work(11, 2, 3))
	w.now = w.now.Add(-365 * day)
	w.checkUsage(nil, nil)
	w.add(work(1, 0, 0))
	w.checkUsage(work(1, 0, 0), nil)
	w.now = w.now.Add(day)
	w.checkUsage(nil, nil)
}

// stop returns the task that interrupts the sessions, or nil.
func (w *world) stop() *workspacev1.SessionStop {
	w.t.Helper()
	var found *workspacev1.SessionStop
	for _, task := range workspace.Tasks(w.s) {
		if task.Kind == workspace.SuspendTask {
			if found != nil || task.ID != task.Message.(*workspacev1.SessionStop).GetTaskId() {
				w.t.Errorf("%v after %v", task, found)
			}
			found = task.Message.(*workspacev1.SessionStop)
		}
	}
	return found
}

func TestSuspensionStopsSessions(t *testing.T) {
	w, ann := newReadyWorld(t), person("ann")
	change := func(status workspacev1.Status) *workspacev1.ChangeStatus {
		return &workspacev1.ChangeStatus{Status: status}
	}
	if w.stop() != nil {
		t.Errorf("%v is open", w.stop())
	}
	w.must(ann, &workspacev1.Suspend{})
	first := w.stop()
	if first.GetCode() != string(entity.WorkspaceSuspended) || first.GetRequestedAt() != noon.UnixMilli() {
		t.Errorf("%v", first)
	}
	w.now = w.now.Add(time.Hour)
	w.must(ann, &workspacev1.Suspend{Reason: "rent"})
	if !proto.Equal(w.stop(), first) {
		t.Errorf("another reason: %v, want %v", w.stop(), first)
	}
	w.must(ann, &workspacev1.Resume{})
	if w.stop() != nil {
		t.Errorf("resumed: %v", w.stop())
	}
	w.must(ann, &workspacev1.Suspend{})
	second := w.stop()
	w.mustNotChange(entity.Platform(), &workspacev1.ReportSessionsStopped{TaskId: first.GetTaskId()})
	w.must(entity.Platform(), &workspacev1.ReportSessionsStopped{TaskId: second.GetTaskId()})
	if w.stop() != nil || first.GetTaskId() == second.GetTaskId() {
		t.Errorf("stopped: %v after %v", w.stop(), first)
	}
	w.must(ann, &workspacev1.Resume{})

	w.must(entity.Platform(), change(workspacev1.Status_STATUS_ARCHIVED))
	if w.stop().GetCode() != string(entity.WorkspaceClosed) || w.stop().GetRequestedAt() != w.now.UnixMilli() {
		t.Errorf("archived: %v", w.stop())
	}
	w.must(ann, &workspacev1.Suspend{})
	w.must(ann, &workspacev1.Resume{})
	if w.stop() == nil {
		t.Error("an archived workspace was resumed, and its sessions are not stopped")
	}
	w.must(entity.Platform(), change(workspacev1.Status_STATUS_ACTIVE))
	if w.stop() != nil {
		t.Errorf("active: %v", w.stop())
	}
	w.must(entity.Platform(), change(workspacev1.Status_STATUS_DELETED))
	if len(workspace.Tasks(w.s)) != 1 || w.stop() == nil {
		t.Errorf("deleted: %v", workspace.Tasks(w.s))
	}
	last := w.stop()
	call := w.call(entity.Platform())
	events, err := workspace.Decide(call, w.s, &workspacev1.ReportSessionsStopped{TaskId: last.GetTaskId()})
	if err != nil || len(events) != 1 || workspace.Evolve(w.s, events[0]).GetSessionStop() != nil {
		t.Errorf("stopped after the deletion: %v, %v", events, err)
	}
}

// TestStoredSuspension checks that a suspension of an earlier version opens no task when it is replayed.
func TestStoredSuspension(t *testing.T) {
	s := workspace.Evolve(peopled(), &workspacev1.WorkspaceSuspended{Suspension: &workspacev1.Suspension{At: 5}})
	s = workspace.Evolve(s, &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_ARCHIVED, At: 6})
	if s.GetSessionStop() != nil {
		t.Errorf("%v", s.GetSessionStop())
	}
}
