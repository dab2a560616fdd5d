package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// proc is where the machine tells of itself.
const proc = "/proc"

func (n *Node) fleet(o Options, archive computer.Archive) (*computer.Fleet, error) {
	driver, err := local.New(n.Drives, proc)
	if err != nil {
		return nil, err
	}
	return computer.New(computer.Options{
		Driver: driver, Archive: archive, Asker: n.Router, Clock: o.Clock, SampleEvery: o.SampleEvery, Log: o.Log,
		Put: func(ctx context.Context, workspaceID string, row entity.Row) error {
			return n.Router.Put(ctx, workspaceID, row)
		},
	}), nil
}

// computerExecutors run the tasks of computers.
func (n *Node) computerExecutors(executors map[string]actors.Executor) {
	for kind, bounds := range computer.Kinds() {
		executors[kind] = actors.Executor{
			Limit: bounds.Limit, Timeout: bounds.Timeout,
			Run: func(ctx context.Context, t actors.Task) (proto.Message, error) {
				work, ok := t.Message.(*computerv1.Work)
				if !ok {
					return nil, fmt.Errorf("unexpected message %T of task %s", t.Message, t.Kind)
				}
				return n.Computers.Run(ctx, t.Identity, work, t.Attempt)
			},
		}
	}
}

// share is the computers of one partition.
type share struct {
	system    *actors.System
	partition persistence.Partition
}

// Running is of computer.Share.
func (s share) Running() []string {
	return s.system.Active(s.partition, entity.KindWorkspace)
}

// Present is of computer.Share.
func (s share) Present(after string, limit int) ([]*computerv1.Present, error) {
	ids, err := s.system.Owners(s.partition, entitycomputer.PresentList, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]*computerv1.Present, 0, len(ids))
	for _, id := range ids {
		found, err := s.Find(id)
		if err != nil {
			return nil, err
		}
		if found == nil { // it was given up meanwhile
			found = &computerv1.Present{WorkspaceId: id}
		}
		all = append(all, found)
	}
	return all, nil
}

// Find is of computer.Share.
func (s share) Find(workspaceID string) (*computerv1.Present, error) {
	page, err := s.system.Rows(s.partition, workspaceID, &wirev1.List{Name: entitycomputer.PresentList, Limit: 1})
	if err != nil || len(page.GetRows()) == 0 {
		return nil, err
	}
	var found computerv1.Present
	return &found, proto.Unmarshal(page.GetRows()[0], &found)
}

// settler is the router, with patience for what follows from the making of a workspace outside of the actors.
type settler struct {
	*cluster.Router
	node *Node
}

const (
	firstLook   = time.Millisecond
	longestLook = 50 * time.Millisecond
)

// Settle is of http.Asker. For a workspace whose computer is being provisioned it also waits, for the rest of
// BirthPatience since the workspace was created, until the workspace can be used. For one from which locks are to be removed
// it waits likewise, since the person lost the right to change files, until the locks are gone.
func (s settler) Settle(ctx context.Context, kind, identity string) error {
	err := s.Router.Settle(ctx, kind, identity)
	if err != nil || kind != entity.KindWorkspace {
		return err
	}
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		reply, err := s.Ask(ctx, entity.Command{
			Kind: kind, Identity: identity, Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
		})
		if err != nil {
			return ctx.Err() // the caller is told by what it asks next
		}
		described, _ := reply.(*workspacev1.Description)
		if !s.node.settling(described.GetWorkspace()) {
			return nil
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// settling reports whether work outside of the actors that a request waits for is under way, and has not been for too long.
func (n *Node) settling(w *workspacev1.Workspace) bool {
	recent := func(at int64) bool { return n.clock().Sub(time.UnixMilli(at)) < n.birthPatience }
	if w.GetStatus() == workspacev1.Status_STATUS_PROVISIONING && recent(w.GetCreatedAt()) {
		return true
	}
	for _, removal := range w.GetLockRemovals() {
		if recent(removal.GetRequestedAt()) {
			return true
		}
	}
	return false
}
