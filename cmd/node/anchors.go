package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// trail has the anchors of workspaces follow their drives.
func (n *Node) trail() actors.Trail {
	return actors.Trail{
		List: workspace.AnchorsList, Begins: entity.MessageName(&workspacev1.AnchorCreated{}), React: n.anchors.React,
	}
}

// driveExecutors run the tasks that workspaces open for their drives.
func (n *Node) driveExecutors(executors map[string]actors.Executor) {
	executors[workspace.LockTask] = actors.Executor{
		Limit: 8, FirstPause: 100 * time.Millisecond, Run: n.removeLocks,
	}
	executors[workspace.AnchorCheckTask] = actors.Executor{
		Limit: 4, Timeout: 5 * time.Minute, FirstPause: time.Second, LongestPause: 10 * time.Minute, Run: n.checkAnchors,
	}
}

func (n *Node) removeLocks(ctx context.Context, t actors.Task) (proto.Message, error) {
	removal, ok := t.Message.(*workspacev1.LockRemoval)
	if !ok {
		return nil, fmt.Errorf("unexpected message %T of task %s", t.Message, t.Kind)
	}
	if err := n.files.DropLocks(ctx, t.Identity, removal.GetUserId()); err != nil {
		return nil, err
	}
	return &workspacev1.ReportLocksRemoved{UserId: removal.GetUserId(), TaskId: t.ID}, nil
}

func (n *Node) checkAnchors(ctx context.Context, t actors.Task) (proto.Message, error) {
	check, ok := t.Message.(*workspacev1.AnchorCheck)
	if !ok {
		return nil, fmt.Errorf("unexpected message %T of task %s", t.Message, t.Kind)
	}
	return n.anchors.Check(ctx, t.Identity, check)
}

const (
	// missedList has a row for each workspace whose anchors waited for their drive when the process stopped, as versions
	// before AnchorCheckTask wrote it.
	missedList  = "anchors.missed"
	missedKey   = "drive"
	missedPage  = 64
	missedLimit = 10 * time.Second
)

// takeOverMissed makes tasks of the rows that earlier versions wrote in a partition.
func (n *Node) takeOverMissed(ctx context.Context, p persistence.Partition) {
	for after := ""; ; {
		page, err := n.System.Owners(p, missedList, after, missedPage)
		if err != nil && !errors.Is(err, persistence.ErrClosed) {
			n.log.Error("anchors that wait for their drives cannot be listed", slog.Any("error", err))
		}
		if err != nil || len(page) == 0 {
			return
		}
		for _, id := range page {
			if err := n.takeOver(ctx, id); err != nil && ctx.Err() == nil {
				n.log.Error("anchors wait for their drive until the partition's next term", slog.String("workspace", id), slog.Any("error", err))
			}
		}
		after = page[len(page)-1]
	}
}

func (n *Node) takeOver(ctx context.Context, workspaceID string) error {
	ctx, cancel := context.WithTimeout(ctx, missedLimit)
	defer cancel()
	_, err := n.Router.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(), Message: &workspacev1.RequestAnchorCheck{},
	})
	if err != nil {
		return err
	}
	return n.Router.Put(ctx, workspaceID, entity.Row{List: missedList, Key: missedKey})
}
