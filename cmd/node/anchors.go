package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/anchor"
	"github.com/atelier-run/atelier/entity/workspace"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// orphanEvery is the pause between two looks for anchors that have been broken for too long.
const orphanEvery = time.Hour

// anchors follow the drives: the workspace's rows of activity are reacted to in their order.
type anchors struct {
	node *Node
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// misses counts drives that could not be asked; see missedList.
	misses uint64
}

// missedList has the workspaces whose drives could not be asked. Their anchors are looked at later, by the next process if
// need be.
const missedList = "anchors.missed"

func missed(is bool) entity.Row {
	row := entity.Row{List: missedList, Key: "drive"}
	if is {
		row.Message = &wirev1.Done{}
	}
	return row
}

func (a *anchors) trail() actors.Trail {
	return actors.Trail{
		List: workspace.AnchorsList, Begins: entity.MessageName(&workspacev1.AnchorCreated{}), React: a.react,
	}
}

// start looks for what is to be given up from now on.
func (a *anchors) start() {
	ctx, cancel := context.WithCancel(context.Background())
	a.end = cancel
	a.work.Go(func() {
		ticker := time.NewTicker(orphanEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				a.Sweep(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// close ends it before the drives are closed: what it has not followed by then the next process does.
func (a *anchors) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	if a.end != nil {
		a.end()
	}
	a.work.Wait()
}

var errClosing = errors.New("the node is stopping")

// react follows a row. A drive that cannot be asked keeps the partition from nothing: its anchors wait for the next sweep.
func (a *anchors) react(ctx context.Context, workspaceID string, stored []byte) error {
	if !anchor.Moves(activity.Stored(stored).Kind()) {
		return nil
	}
	row, err := anchor.Parse(stored)
	if err != nil {
		a.node.log.Error("a row cannot be followed", slog.String("workspace", workspaceID), slog.Any("error", err))
		return nil
	}
	err = a.follow(ctx, workspaceID, row)
	var unasked *driveError
	if !errors.As(err, &unasked) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errClosing
	}
	a.node.log.Warn("anchors wait for their drive", slog.String("workspace", workspaceID), slog.Any("error", err))
	a.misses++
	return a.put(workspaceID, true)
}

func (a *anchors) put(workspaceID string, is bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
	defer cancel()
	return a.node.Router.Put(ctx, workspaceID, missed(is))
}

const putTimeout = 5 * time.Second

// driveError says that a drive did not tell what is on it.
type driveError struct{ error }

func (e *driveError) Unwrap() error { return e.error }

func (a *anchors) follow(ctx context.Context, workspaceID string, row anchor.Row) error {
	reply, err := a.ask(ctx, workspaceID, "", &workspacev1.ListAnchors{})
	if err != nil {
		return err
	}
	all, ok := reply.(*workspacev1.Anchors)
	if !ok {
		return fmt.Errorf("unexpected reply %T", reply)
	}
	steps, err := anchor.Follow(row, all.GetAnchors(), func(path string) (bool, error) {
		there, err := a.node.Drives.Exists(ctx, workspaceID, path)
		if err != nil {
			return false, &driveError{err}
		}
		return there, nil
	})
	if err != nil {
		return err
	}
	for _, s := range steps {
		// A row may be passed on twice; what came of it may have been undone by a person since.
		id := ""
		if row.Seq > 0 {
			id = "trail:" + workspaceID + ":" + strconv.FormatUint(row.Seq, 10) + ":" + s.AnchorID
		}
		if _, err := a.ask(ctx, workspaceID, id, s.Command); err != nil && !refused(err) {
			return err
		} else if err != nil {
			a.node.log.Warn("an anchor does not follow", slog.String("workspace", workspaceID), slog.String("anchor", s.AnchorID), slog.Any("error", err))
		}
	}
	return nil
}

func (a *anchors) ask(ctx context.Context, workspaceID, id string, m proto.Message) (proto.Message, error) {
	return a.node.Router.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(), ID: id, Message: m,
	})
}

// Sweep gives up the anchors that have been broken for too long, and looks again where a drive could not be asked.
func (a *anchors) Sweep(ctx context.Context) {
	broken, err := a.node.listed(workspace.BrokenAnchorsList)
	if err != nil {
		a.node.log.Error("broken anchors cannot be listed", slog.Any("error", err))
	}
	for _, id := range broken {
		if _, err := a.ask(ctx, id, "", &workspacev1.OrphanAnchors{}); err != nil && ctx.Err() == nil {
			a.node.log.Error("broken anchors cannot be given up", slog.String("workspace", id), slog.Any("error", err))
		}
	}
	waiting, err := a.node.listed(missedList)
	if err != nil {
		a.node.log.Error("anchors that wait for their drives cannot be listed", slog.Any("error", err))
	}
	for _, id := range waiting {
		if err := a.lookAgain(ctx, id); err != nil && ctx.Err() == nil {
			a.node.log.Warn("anchors still wait for their drive", slog.String("workspace", id), slog.Any("error", err))
		}
	}
}

// lookAgain looks at all anchors of a workspace, as after a restore. What is missed meanwhile stays for the next time.
func (a *anchors) lookAgain(ctx context.Context, workspaceID string) error {
	a.mu.Lock()
	before := a.misses
	a.mu.Unlock()
	if err := a.follow(ctx, workspaceID, anchor.Row{Kind: activityv1.Kind_KIND_RESTORE}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.misses != before {
		return nil
	}
	return a.put(workspaceID, false)
}
