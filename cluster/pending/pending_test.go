package pending

import (
	"testing"
	"time"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestHasPendingTask(t *testing.T) {
	const limit = 2 * time.Second
	now := time.UnixMilli(1_800_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	removal := func(at int64) map[string]*workspacev1.LockRemoval {
		return map[string]*workspacev1.LockRemoval{"usr_1": {RequestedAt: at}}
	}
	for name, test := range map[string]struct {
		workspace *workspacev1.Workspace
		want      bool
	}{
		"no workspace":                     {nil, false},
		"being provisioned":                {&workspacev1.Workspace{Status: workspacev1.Status_STATUS_PROVISIONING, CreatedAt: ago(time.Second)}, true},
		"provisioning takes too long":      {&workspacev1.Workspace{Status: workspacev1.Status_STATUS_PROVISIONING, CreatedAt: ago(limit)}, false},
		"provisioned":                      {&workspacev1.Workspace{Status: workspacev1.Status_STATUS_ACTIVE, CreatedAt: ago(time.Second)}, false},
		"locks are to be removed":          {&workspacev1.Workspace{LockRemovals: removal(ago(time.Second))}, true},
		"removal of locks takes too long":  {&workspacev1.Workspace{LockRemovals: removal(ago(limit))}, false},
		"clock of the rules is a bit late": {&workspacev1.Workspace{LockRemovals: removal(ago(-time.Second))}, true},
	} {
		if got := hasPendingTask(test.workspace, now.Add(-limit)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
