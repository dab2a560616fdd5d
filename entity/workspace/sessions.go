package workspace

import (
	"maps"
	"slices"
	"strconv"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxDescribedMembers is the greatest number of members that DescribeMembers returns.
const MaxDescribedMembers = 1000

var (
	errSessionID      = entity.Errorf(entity.InvalidRequest, "sessionId is not an id")
	errTooManyMembers = entity.Errorf(entity.InvalidRequest, "userIds must be at most %d", MaxDescribedMembers)
)

// setDefaultSession sets or removes the pointer of an owner to its default session. The session that was the default is not
// touched. Errors: not_found if the owner is neither RootOwner nor an agent, invalid_request.
func setDefaultSession(call entity.Call, s *workspacev1.Workspace, c *workspacev1.SetDefaultSession) ([]workspacev1.Event, error) {
	if err := checkOwner(s, c.GetOwner()); err != nil {
		return nil, err
	}
	id := c.GetSessionId()
	switch {
	case id != "" && !entity.IsID(id):
		return nil, errSessionID
	case s.GetDefaultSessions()[c.GetOwner()] == id:
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.DefaultSessionSet{Owner: c.GetOwner(), SessionId: id, At: call.At()}}, nil
}

// bindDefaultSession sets the pointer of an owner without a pointer, so that only one of several first messages to an
// owner creates its default session. Errors: as setDefaultSession.
func bindDefaultSession(call entity.Call, s *workspacev1.Workspace, c *workspacev1.BindDefaultSession) ([]workspacev1.Event, error) {
	if err := checkOwner(s, c.GetOwner()); err != nil {
		return nil, err
	}
	switch {
	case !entity.IsID(c.GetSessionId()):
		return nil, errSessionID
	case s.GetDefaultSessions()[c.GetOwner()] != "":
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.DefaultSessionSet{Owner: c.GetOwner(), SessionId: c.GetSessionId(), At: call.At()}}, nil
}

// awaitsDefaultSession reports whether the answer to a query must wait until its owner has another default session.
func awaitsDefaultSession(s *workspacev1.Workspace, c *workspacev1.ReadDefaultSessions) bool {
	if c.GetOwner() == "" {
		return false
	}
	id := s.GetDefaultSessions()[c.GetOwner()]
	return id == "" || id == c.GetSessionId()
}

// clearDefaultSession removes all pointers to a session that was deleted.
func clearDefaultSession(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ClearDefaultSession) []workspacev1.Event {
	var events []workspacev1.Event
	for _, owner := range slices.Sorted(maps.Keys(s.GetDefaultSessions())) {
		if s.GetDefaultSessions()[owner] == c.GetSessionId() {
			events = append(events, &workspacev1.DefaultSessionSet{Owner: owner, At: call.At()})
		}
	}
	return events
}

func applyDefaultSessionSet(next *workspacev1.Workspace, e *workspacev1.DefaultSessionSet) {
	if e.GetSessionId() == "" {
		next.DefaultSessions = entity.Without(next.GetDefaultSessions(), e.GetOwner())
		return
	}
	next.DefaultSessions = entity.With(next.GetDefaultSessions(), e.GetOwner(), e.GetSessionId())
}

// checkOwner returns not_found unless the owner is RootOwner or the id of an agent.
func checkOwner(s *workspacev1.Workspace, owner string) error {
	if owner != RootOwner && agentByID(s, owner) == nil {
		return errNoAgent
	}
	return nil
}

func replyDefaultSession(s *workspacev1.Workspace, owner string) *workspacev1.DefaultSession {
	return &workspacev1.DefaultSession{Owner: owner, SessionId: s.GetDefaultSessions()[owner]}
}

// checkDescribeMembers returns invalid_request if a query asks for too many members.
func checkDescribeMembers(c *workspacev1.DescribeMembers) error {
	if len(c.GetUserIds()) > MaxDescribedMembers {
		return errTooManyMembers
	}
	return nil
}

// replyMemberships returns the people that are members.
func replyMemberships(s *workspacev1.Workspace, c *workspacev1.DescribeMembers) *workspacev1.Memberships {
	found := &workspacev1.Memberships{}
	for _, id := range c.GetUserIds() {
		if member := s.GetMembers()[id]; member != nil {
			found.Members = append(found.Members, member)
		}
	}
	return found
}

// sessionStopID returns the id of the task that interrupts the running sessions after the event of a call.
func sessionStopID(call entity.Call) string { return "stop." + strconv.FormatUint(call.Version, 10) }

// requestSessionStop adds the interruption of the running sessions to the next state if taskID is set; otherwise it cancels a
// requested one if sessions may run in that state. at is the time of the request, in milliseconds since the Unix epoch.
func requestSessionStop(next *workspacev1.Workspace, taskID string, at int64, code entity.Code) {
	switch {
	case taskID != "":
		next.SessionStop = &workspacev1.SessionStop{TaskId: taskID, RequestedAt: at, Code: string(code)}
	case next.GetSuspension() == nil && !isClosedStatus(next.GetStatus()):
		next.SessionStop = nil
	}
}

// isClosedStatus reports whether an operator has closed a workspace with the status, so that nothing may run in it.
func isClosedStatus(status workspacev1.Status) bool {
	switch status {
	case workspacev1.Status_STATUS_ARCHIVED, workspacev1.Status_STATUS_RETIRED, workspacev1.Status_STATUS_DELETED:
		return true
	default:
		return false
	}
}

// reportSessionsStopped completes the task of the command. A report of another task has no effect.
func reportSessionsStopped(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportSessionsStopped) []workspacev1.Event {
	if s.GetSessionStop() == nil || s.GetSessionStop().GetTaskId() != c.GetTaskId() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.SessionsStopped{TaskId: c.GetTaskId(), At: call.At()}}
}
