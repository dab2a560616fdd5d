package workspace

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxReasonLength is the longest reason of a suspension, in characters.
const MaxReasonLength = 1000

var (
	errReason   = entity.Errorf(entity.InvalidRequest, "reason must be UTF-8 of at most %d characters", MaxReasonLength)
	errOperator = entity.Errorf(entity.Forbidden, "an operator has suspended the workspace, and alone resumes it")
)

// suspend is an owner's or an operator's. An operator takes an owner's suspension over, never the other way round.
func suspend(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Suspend) ([]workspacev1.Event, error) {
	if !utf8.ValidString(c.GetReason()) || utf8.RuneCountInString(c.GetReason()) > MaxReasonLength {
		return nil, errReason
	}
	before := s.GetSuspension()
	next := &workspacev1.Suspension{At: call.At(), Reason: c.GetReason(), ByOperator: entity.IsPlatform(call.Principal)}
	if before != nil {
		next.At = before.GetAt()
	}
	switch {
	case before.GetByOperator() && !next.GetByOperator():
		return nil, errOperator
	case proto.Equal(before, next):
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.WorkspaceSuspended{Suspension: next}}, nil
}

func resume(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	switch {
	case s.GetSuspension() == nil:
		return nil, nil
	case s.GetSuspension().GetByOperator() && !entity.IsPlatform(call.Principal):
		return nil, errOperator
	}
	return []workspacev1.Event{&workspacev1.WorkspaceResumed{At: call.At()}}, nil
}
