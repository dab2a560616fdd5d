package workspace

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var errWork = entity.Errorf(entity.InvalidRequest, "work must have numbers from 0 to %d", int64(entity.MaxTime))

// addAgentUsage adds the work of a session to the work of the day. Errors: invalid_request.
func addAgentUsage(call entity.Call, s *workspacev1.Workspace, c *workspacev1.AddAgentUsage) ([]workspacev1.Event, error) {
	w := c.GetWork()
	switch {
	case !entity.IsID(c.GetSessionId()):
		return nil, errSessionID
	case w.GetInputTokens() > entity.MaxTime, w.GetOutputTokens() > entity.MaxTime, w.GetRunningMs() < 0, w.GetRunningMs() > entity.MaxTime:
		return nil, errWork
	case w.GetInputTokens() == 0 && w.GetOutputTokens() == 0 && w.GetRunningMs() == 0:
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.AgentUsageAdded{
		Day: dayOf(call, s), SessionId: c.GetSessionId(), Work: w, At: call.At(),
	}}, nil
}

// allowAgentUsage lets the sessions go on beyond the budget of the day: the budget counts from the present usage.
func allowAgentUsage(call entity.Call, s *workspacev1.Workspace) []workspacev1.Event {
	today := usageOf(call, s)
	if today.GetUsed() == nil || proto.Equal(today.GetUsed(), today.GetAllowed()) {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AgentUsageAllowed{Day: today.GetDay(), Allowed: today.GetUsed(), At: call.At()}}
}

// applyAgentUsageAdded adds work to the state. The work of an earlier day is forgotten.
func applyAgentUsageAdded(next *workspacev1.Workspace, e *workspacev1.AgentUsageAdded) {
	usage := &workspacev1.AgentUsage{Day: e.GetDay()}
	if before := next.GetAgentUsage(); before.GetDay() == e.GetDay() {
		usage.Used, usage.Allowed = before.GetUsed(), before.GetAllowed()
	}
	usage.Used = &workspacev1.AgentWork{
		InputTokens:  min(usage.GetUsed().GetInputTokens()+e.GetWork().GetInputTokens(), entity.MaxTime),
		OutputTokens: min(usage.GetUsed().GetOutputTokens()+e.GetWork().GetOutputTokens(), entity.MaxTime),
		RunningMs:    min(usage.GetUsed().GetRunningMs()+e.GetWork().GetRunningMs(), entity.MaxTime),
	}
	next.AgentUsage = usage
}

func applyAgentUsageAllowed(next *workspacev1.Workspace, e *workspacev1.AgentUsageAllowed) {
	usage := entity.ShallowCopy(next.GetAgentUsage())
	usage.Allowed = e.GetAllowed()
	next.AgentUsage = usage
}

// usageOf returns the usage of the day of a call.
func usageOf(call entity.Call, s *workspacev1.Workspace) *workspacev1.AgentUsage {
	if day := dayOf(call, s); day != s.GetAgentUsage().GetDay() || s.GetAgentUsage() == nil {
		return &workspacev1.AgentUsage{Day: day}
	}
	return s.GetAgentUsage()
}

// dayOf returns the day of a call in UTC, as the number of days since the Unix epoch. It is not the day before the day of the state, so
// that a clock that is set back a little does not renew a budget. An even later day of the state is of a clock that was ahead.
func dayOf(call entity.Call, s *workspacev1.Workspace) int64 {
	const day = 24 * time.Hour
	if last := s.GetAgentUsage().GetDay(); !entity.HasPassed(last*day.Milliseconds(), call.At(), day) {
		return last
	}
	return call.At() / day.Milliseconds()
}
