package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Delete executes a task of the kind session.DeletionTask: it ends the agent of the session, makes the workspace forget the session
// as a default session, deletes the children that the session has admitted, removes the rows of its lists and the files of its images, and
// returns the command that completes the task. Each step can be repeated. The task, and not a reaction, makes the workspace forget the
// session, because with reactions the runtime would read each event of each session once more.
func (r *Runner) Delete(ctx context.Context, identity string, _ *sessionv1.DeletionTask) (proto.Message, error) {
	workspace, id := session.SplitIdentity(identity)
	r.pool.discard(sessionID{workspace, id})
	forget := &workspacev1.ClearDefaultSession{SessionId: id}
	_, err := entity.AskAsPlatform[proto.Message](ctx, r.o.Asker, entity.KindWorkspace, workspace, forget)
	if err != nil && !entity.IsRefusal(err) {
		return nil, err
	}
	if err := r.deleteChildren(ctx, workspace, id); err != nil {
		return nil, err
	}
	for _, list := range session.ErasedLists {
		if err := r.erase(ctx, workspace, id, list); err != nil {
			return nil, err
		}
	}
	// After the rows: a concurrent request that is refused removes the file of its image only if the image has no row.
	if err := r.o.Images.RemoveImages(ctx, workspace, id); err != nil {
		return nil, err
	}
	return &sessionv1.ReportErased{}, nil
}

// deleteChildren deletes the children of a session. A child that was admitted and never created is deleted, too, so that it cannot
// be created later.
func (r *Runner) deleteChildren(ctx context.Context, workspace, id string) error {
	return r.eachPage(ctx, workspace, &wirev1.List{Name: session.ChildList, Prefix: []byte(session.Key(id, "")), Limit: pageRows}, func(rows [][]byte) error {
		for _, encoded := range rows {
			var child sessionv1.ChildRow
			if err := proto.Unmarshal(encoded, &child); err != nil {
				return err
			}
			identity := session.Identity(workspace, child.GetChildId())
			switch s, err := r.describe(ctx, identity); {
			case err != nil && !entity.IsRefusal(err):
				return err
			case err == nil && s.GetParentId() != id:
				// The request that admitted the child failed, and a later request with the id of the child has started the session elsewhere.
				continue
			}
			err := tell(ctx, r.o.Asker, identity, &sessionv1.DeleteSession{})
			if err != nil && !entity.IsRefusal(err) {
				return err
			}
		}
		return nil
	})
}

// eachPage calls f with the rows of each page of a list.
func (r *Runner) eachPage(ctx context.Context, workspace string, l *wirev1.List, f func(rows [][]byte) error) error {
	for {
		page, err := r.list(ctx, workspace, l)
		if err != nil {
			return err
		}
		if err := f(page.GetRows()); err != nil {
			return err
		}
		if len(page.GetNext()) == 0 {
			return nil
		}
		l = proto.CloneOf(l)
		l.After = page.GetNext()
	}
}

// erase removes the rows of a session in a list.
func (r *Runner) erase(ctx context.Context, workspace, id, list string) error {
	asked := &wirev1.List{Name: list, Prefix: []byte(session.Key(id, "")), Limit: pageRows}
	return r.eachPage(ctx, workspace, asked, func(rows [][]byte) error {
		erase := &sessionv1.EraseRows{}
		for _, encoded := range rows {
			rest, owner, err := keyOf(list, encoded)
			if err != nil {
				return fmt.Errorf("runner: a row of %s: %w", list, err)
			}
			erase.Rows = append(erase.Rows, &sessionv1.RowKey{List: list, Key: session.Key(id, rest)})
			if owner != "" {
				erase.Rows = append(erase.Rows, &sessionv1.RowKey{List: list, Key: owner})
			}
		}
		if len(erase.GetRows()) == 0 {
			return nil
		}
		return tell(ctx, r.o.Asker, session.Identity(workspace, id), erase)
	})
}

// keyOf returns the key of a row in a list of a session, without the session's id. owner is the key of the row of the same input below the owner
// of a default session; "" if there is no such row.
func keyOf(list string, encoded []byte) (rest, owner string, err error) {
	switch list {
	case session.ChildList:
		var child sessionv1.ChildRow
		err := proto.Unmarshal(encoded, &child)
		return child.GetChildId(), "", err
	case session.TerminalList:
		var terminal sessionv1.TerminalRow
		err := proto.Unmarshal(encoded, &terminal)
		return entity.AscendingKey(terminal.GetTerminal().GetInputSeq()), "", err
	case session.RequestList:
		var request sessionv1.RequestRow
		err := proto.Unmarshal(encoded, &request)
		return request.GetClientRequestId(), request.GetOwnerKey(), err
	case session.ImageList:
		var image sessionv1.StoredImage
		err := proto.Unmarshal(encoded, &image)
		digest := image.GetSha256()
		if len(digest) == 0 { // the row has the content
			sum := sha256.Sum256(image.GetContent())
			digest = sum[:]
		}
		return hex.EncodeToString(digest), "", err
	}
	return "", "", fmt.Errorf("no key is known for the list %s", list)
}

// Suspend executes the workspace's task of the kind workspace.SuspendTask: it interrupts all running sessions, ends the idle agents, and
// returns the command that completes the task. The agents of the interrupted turns end with their turns. Turns that no run has taken
// wait until the workspace runs again.
func (r *Runner) Suspend(ctx context.Context, workspaceID string, m *workspacev1.SessionStop) (proto.Message, error) {
	for _, archived := range []bool{false, true} {
		prefix := session.RangePrefix(session.ScopeAll, session.BucketRunning, archived)
		err := r.eachPage(ctx, workspaceID, &wirev1.List{Name: session.SessionList, Prefix: []byte(prefix), Limit: pageRows}, func(rows [][]byte) error {
			for _, encoded := range rows {
				var summary sessionv1.SummaryRow
				if err := proto.Unmarshal(encoded, &summary); err != nil {
					return err
				}
				err := tell(ctx, r.o.Asker, session.Identity(workspaceID, summary.GetSession().GetId()), &sessionv1.Interrupt{
					Reason: &sessionv1.Failure{Code: m.GetCode(), Message: requested(m.GetCode())},
				})
				if err != nil && !entity.IsRefusal(err) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	r.pool.discardIdle(workspaceID)
	return &workspacev1.ReportSessionsStopped{TaskId: m.GetTaskId()}, nil
}
