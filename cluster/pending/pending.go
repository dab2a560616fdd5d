// Package pending delays the answer to a request until the tasks that the request opened are done, or a limit is reached.
//
// A router's Settle waits for the reactions to an entity's events. A workspace also opens tasks, which run outside the
// actors: the provisioning of its computer after it was created, and the removal of the WebDAV locks of a person without the
// right to change files. A Router waits for both, so that a client can use a workspace as soon as its creation is answered.
package pending

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/retry"
)

// looking has the pauses between two queries of a workspace's state.
var looking = retry.Policy{First: time.Millisecond, Longest: 50 * time.Millisecond}

// A Router is a cluster.Router with a Settle that also waits for the tasks of a workspace.
type Router struct {
	*cluster.Router
	// Clock is the clock of the rules, by which a workspace's state has its times.
	Clock func() time.Time
	// Limit is the time after the opening of a task until which Settle waits for it.
	Limit time.Duration
}

// Settle waits until every reaction to the events of an entity is done; see cluster.Router.Settle. For a workspace it then
// waits until its computer is provisioned and no locks are to be removed, but for no task longer than Limit after the task
// was opened: the task goes on, and Settle returns nil. If the workspace does not answer, Settle returns the error of ctx, or
// nil. Other errors are those of cluster.Router.Settle.
func (r Router) Settle(ctx context.Context, kind, identity string) error {
	err := r.Router.Settle(ctx, kind, identity)
	if err != nil || kind != entity.KindWorkspace {
		return err
	}
	for range looking.Attempts(ctx) {
		described, err := entity.AskAsPlatform[*workspacev1.Description](ctx, r, kind, identity, &workspacev1.DescribeWorkspace{})
		if err != nil {
			return ctx.Err() // the caller's next command gets the error
		}
		if !hasPendingTask(described.GetWorkspace(), r.Clock().Add(-r.Limit)) {
			return nil
		}
	}
	return ctx.Err()
}

// hasPendingTask reports whether a workspace has an open task, provisioning or the removal of locks, that was opened after a
// time.
func hasPendingTask(w *workspacev1.Workspace, after time.Time) bool {
	isRecent := func(at int64) bool { return time.UnixMilli(at).After(after) }
	if w.GetStatus() == workspacev1.Status_STATUS_PROVISIONING && isRecent(w.GetCreatedAt()) {
		return true
	}
	for _, removal := range w.GetLockRemovals() {
		if isRecent(removal.GetRequestedAt()) {
			return true
		}
	}
	return false
}
