package node

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
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
		Identities: func(list string) ([]string, error) { return n.System.Listed(list) },
		Put: func(ctx context.Context, workspaceID string, row entity.Row) error {
			return n.Router.Put(ctx, workspaceID, row)
		},
	}), nil
}

// followComputers adds what the fleet does after events of computers to the reactions. It waits for nothing that a driver does.
func (n *Node) followComputers(reactions map[string]actors.Reaction) {
	after := func(event proto.Message, act func(workspaceID string, event proto.Message)) {
		name := entity.MessageName(event)
		before := reactions[name]
		reactions[name] = func(ctx context.Context, identity string, event proto.Message) ([]entity.Reaction, error) {
			act(identity, event)
			if before == nil {
				return nil, nil
			}
			return before(ctx, identity, event)
		}
	}
	after(&workspacev1.WorkspaceCreated{}, func(id string, _ proto.Message) { n.births.expect(id) })
	after(&computerv1.TaskRequested{}, func(id string, _ proto.Message) { n.Computers.Begin(id) })
	after(&computerv1.ComputerProvisioned{}, func(id string, _ proto.Message) {
		n.births.forget(id)
		n.Computers.Present(id, true)
	})
	after(&computerv1.ComputerRetired{}, func(id string, _ proto.Message) { n.Computers.Present(id, false) })
	after(&computerv1.BackupTaken{}, func(id string, e proto.Message) {
		n.Computers.Forget(id, e.(*computerv1.BackupTaken).GetDropped())
	})
}

// births are the workspaces that were just made and have no computer yet.
type births struct {
	mu  sync.Mutex
	all map[string]struct{}
}

func (b *births) expect(workspaceID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]struct{}{}
	}
	b.all[workspaceID] = struct{}{}
}

func (b *births) forget(workspaceID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, workspaceID)
}

func (b *births) expects(workspaceID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.all[workspaceID]
	return is
}

// settler is the router, with patience for what follows from the making of a workspace outside of the actors.
type settler struct {
	*cluster.Router
	node *Node
}

// Settle is of http.Asker.
func (s settler) Settle(ctx context.Context, kind, identity string) error {
	err := s.Router.Settle(ctx, kind, identity)
	if err != nil || kind != entity.KindWorkspace || !s.node.births.expects(identity) {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, s.node.birthPatience)
	defer cancel()
	// The request for the computer, its provision, and what its end is told to are one after the other. Whatever keeps
	// them from ending within the patience keeps nobody from an answer.
	for range 3 {
		if s.Router.Settle(waiting, entity.KindComputer, identity) != nil || s.node.Computers.Wait(waiting, identity) != nil ||
			s.Router.Settle(waiting, kind, identity) != nil {
			break
		}
	}
	if waiting.Err() != nil {
		s.node.births.forget(identity) // one patience is enough: what is asked of the workspace later waits for nothing
	}
	return ctx.Err()
}
