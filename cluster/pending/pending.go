// Package pending delays the answer to a request until the tasks that the request opened are done, or a limit is reached.
//
// A router's Settle waits for the reactions to an entity's events. A workspace also opens tasks, which run outside the
// actors: the provisioning of its computer after it was created, and the removal of the WebDAV locks of a person without the
// right to change files. A Router waits for both, so that a client can use a workspace as soon as its creation is answered. The actor of
// the workspace holds the query of the Router until the tasks are done (entity/workspace, Waits).
package pending

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A Router is a cluster.Router with a Settle that also waits for the tasks of a workspace.
type Router struct {
	*cluster.Router
	// Limit is how long Settle waits for tasks. Settle does not wait for a task that is older than Limit.
	Limit time.Duration
}

// Settle waits until every reaction to the events of an entity is done; see cluster.Router.Settle. For a workspace it then
// waits until its computer is provisioned and no locks are to be removed, but no longer than Limit: the tasks go on, and Settle returns nil.
// If the workspace does not answer, Settle returns the error of ctx, or nil. Other errors are the errors of cluster.Router.Settle.
func (r Router) Settle(ctx context.Context, kind, identity string) error {
	err := r.Router.Settle(ctx, kind, identity)
	if err != nil || kind != entity.KindWorkspace {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	query := &workspacev1.DescribeWorkspace{AwaitTasksMs: r.Limit.Milliseconds()}
	if _, err := entity.AskAsPlatform[*workspacev1.Description](waiting, r, kind, identity, query); err != nil {
		return ctx.Err() // the caller's next command gets the error
	}
	return nil
}
