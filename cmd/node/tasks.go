package node

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// executors returns the executors of all kinds of tasks.
func (n *Node) executors(o Options) map[string]actors.Executor {
	all := map[string]actors.Executor{}
	maps.Copy(all, n.computerExecutors())
	maps.Copy(all, n.driveExecutors())
	maps.Copy(all, n.mailExecutors())
	maps.Copy(all, n.sessionExecutors(o))
	for kind, executor := range joined(n.appExecutors(o), n.domainExecutors()) {
		if o.HoldApps {
			executor.Run = hold
		}
		all[kind] = executor
	}
	return all
}

// joined returns the executors of two maps.
func joined(a, b map[string]actors.Executor) map[string]actors.Executor {
	maps.Copy(a, b)
	return a
}

// hold is the Run of an executor that leaves its tasks open.
func hold(ctx context.Context, _ actors.Task) (proto.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (n *Node) computerExecutors() map[string]actors.Executor {
	run := actors.RunTyped(func(ctx context.Context, t actors.Task, work *computerv1.Work) (proto.Message, error) {
		return n.Computers.Run(ctx, t.Identity, work, t.Attempt)
	})
	all := map[string]actors.Executor{}
	for kind, bounds := range computer.Kinds() {
		all[kind] = actors.Executor{Limit: bounds.Limit, Timeout: bounds.Timeout, Run: run}
	}
	return all
}

func (n *Node) driveExecutors() map[string]actors.Executor {
	removeLocks := func(ctx context.Context, t actors.Task, m *workspacev1.LockRemoval) (proto.Message, error) {
		return &workspacev1.ReportLocksRemoved{UserId: m.GetUserId(), TaskId: t.ID}, n.Drives.DropLocks(ctx, t.Identity, m.GetUserId())
	}
	checkAnchors := func(ctx context.Context, t actors.Task, m *workspacev1.AnchorCheck) (proto.Message, error) {
		return n.anchors.Check(ctx, t.Identity, m)
	}
	return map[string]actors.Executor{
		workspace.LockTask: {Limit: 8, FirstPause: 100 * time.Millisecond, Run: actors.RunTyped(removeLocks)},
		workspace.AnchorCheckTask: {
			Limit: 4, Timeout: 5 * time.Minute, FirstPause: time.Second, LongestPause: 10 * time.Minute, Run: actors.RunTyped(checkAnchors),
		},
	}
}

// mailExecutors returns the executors that send mail. Until the server is made, which knows the links, they wait.
func (n *Node) mailExecutors() map[string]actors.Executor {
	mailLink := func(ctx context.Context, t actors.Task, m *userv1.LinkMail) (proto.Message, error) {
		if err := n.awaitServer(ctx); err != nil {
			return nil, err
		}
		return n.Server.Passwords.MailLink(ctx, n.Server.Background(ctx, t.ID), t.Identity, t.ID, m)
	}
	mailInvitation := func(ctx context.Context, t actors.Task, m *workspacev1.InvitationMail) (proto.Message, error) {
		if err := n.awaitServer(ctx); err != nil {
			return nil, err
		}
		return n.Server.Invitations.Mail(ctx, n.Server.Background(ctx, t.ID), t.Identity, t.ID, m)
	}
	executor := actors.Executor{Limit: 4, Timeout: 30 * time.Second, FirstPause: time.Second, LongestPause: 5 * time.Minute}
	links, invitations := executor, executor
	links.Run, invitations.Run = actors.RunTyped(mailLink), actors.RunTyped(mailInvitation)
	return map[string]actors.Executor{user.MailTask: links, workspace.MailTask: invitations}
}

// awaitServer waits until n.Server is set. It returns ctx's error.
func (n *Node) awaitServer(ctx context.Context) error {
	select {
	case <-n.serverReady:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trail returns the reactions to the activity of workspaces that have anchors.
func (n *Node) trail() actors.Trail {
	return actors.Trail{
		List: workspace.AnchorsList, Kind: entity.KindWorkspace, Begins: entity.MessageName(&workspacev1.AnchorCreated{}),
		React: n.anchors.React,
	}
}

// followTerm runs the work that a process does as long as it owns a partition. It returns when ctx is canceled at the end of
// the term.
func (n *Node) followTerm(ctx context.Context, p actors.OwnedPartition) {
	recovered := make(chan struct{})
	go func() {
		defer close(recovered)
		n.Drives.RecoverAll(ctx, func(after string, limit int) ([]string, error) {
			return p.IndexOwners(activity.OpenIntents, after, limit)
		})
		n.anchors.ConvertMissed(ctx, p)
		n.Drives.MoveImages(ctx, p)
	}()
	n.Computers.Follow(ctx, computer.NewShare(p))
	<-recovered
}
