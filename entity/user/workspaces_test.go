package user_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestWorkspaceLimit(t *testing.T) {
	at := func(passed time.Duration) entity.Call {
		call := entity.Call{Now: noon.Add(passed), Identity: "usr_alice", Principal: entity.Platform()}
		return call
	}
	s := created(t)
	reserve := func(passed time.Duration, id string, limit int32, want entity.Code) {
		t.Helper()
		next, _, err := execute(t, at(passed), s, &userv1.ReserveWorkspace{WorkspaceId: id, Limit: limit})
		if entitytest.Code(err) != want {
			t.Errorf("%s after %v: %v, want %q", id, passed, err, want)
		}
		if err == nil {
			s = next
		}
	}
	reserve(0, "ws_1", 2, "")
	reserve(0, "ws_1", 2, "") // the same one
	reserve(0, "ws_2", 2, "")
	reserve(0, "ws_3", 2, entity.LimitReached)
	s = must(t, at(0), s, &userv1.JoinWorkspace{WorkspaceId: "ws_1", Created: true})
	reserve(time.Minute, "ws_3", 2, entity.LimitReached)
	s = must(t, at(time.Minute), s, &userv1.ForgetWorkspace{WorkspaceId: "ws_2"}) // the slug was taken
	reserve(time.Minute, "ws_3", 2, "")
	reserve(10*time.Minute, "ws_4", 2, entity.LimitReached)
	reserve(11*time.Minute, "ws_4", 2, "") // the reservation of ws_3 has expired
	s = must(t, at(12*time.Minute), s, &userv1.JoinWorkspace{WorkspaceId: "ws_4", Created: true})
	s = must(t, at(12*time.Minute), s, &userv1.JoinWorkspace{WorkspaceId: "ws_5"}) // by invitation
	reserve(24*time.Hour, "ws_6", 2, entity.LimitReached)
	s = must(t, at(24*time.Hour), s, &userv1.ForgetWorkspace{WorkspaceId: "ws_4"}) // deleted
	reserve(24*time.Hour, "ws_6", 2, "")
	reserve(24*time.Hour, "ws_7", 0, "")
	reserve(24*time.Hour, "", 2, entity.InvalidRequest)

	reserve(366*24*time.Hour, "ws_8", 3, "")            // while the clock is ahead
	reserve(24*time.Hour+11*time.Minute, "ws_9", 2, "") // the clock is right again
}
