package user

import (
	"maps"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// reservationTime is how long a place is kept for a workspace whose creation has not been heard of since: far longer than a
// creation takes.
const reservationTime = 10 * time.Minute

// reserveWorkspace decides whether the person may create one more workspace. All creations pass here, one after another,
// before anything of the workspace exists, so that two at the same moment do not exceed the limit.
// Errors: limit_reached.
func reserveWorkspace(call entity.Call, s *userv1.User, c *userv1.ReserveWorkspace) ([]userv1.Event, error) {
	if c.GetWorkspaceId() == "" {
		return nil, errNoWorkspace
	}
	places := placesTaken(s, call.At())
	if _, taken := places[c.GetWorkspaceId()]; taken {
		return nil, nil
	}
	if limit := int(c.GetLimit()); limit > 0 && len(places) >= limit {
		return nil, entity.Errorf(entity.LimitReached,
			"a person can have created at most %d workspaces; delete one that is no longer needed", limit)
	}
	return []userv1.Event{&userv1.WorkspaceReserved{
		WorkspaceId: c.GetWorkspaceId(), At: call.At(), ExpiresAt: call.At() + reservationTime.Milliseconds(),
	}}, nil
}

func forgetWorkspace(call entity.Call, s *userv1.User, c *userv1.ForgetWorkspace) ([]userv1.Event, error) {
	if _, known := s.GetCreatedWorkspaces()[c.GetWorkspaceId()]; !known {
		return nil, nil
	}
	return []userv1.Event{&userv1.WorkspaceForgotten{WorkspaceId: c.GetWorkspaceId(), At: call.At()}}, nil
}

// placesTaken are the workspaces that count: those created, and those for which a place is reserved at a time.
func placesTaken(s *userv1.User, at int64) map[string]int64 {
	taken := maps.Clone(s.GetCreatedWorkspaces())
	maps.DeleteFunc(taken, func(_ string, until int64) bool { return until != 0 && until <= at })
	return taken
}
