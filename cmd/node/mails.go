package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/workspace"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// mailExecutors send the mails that entities open tasks for.
func (n *Node) mailExecutors(executors map[string]actors.Executor) {
	executor := actors.Executor{
		Limit: 4, Timeout: 30 * time.Second, FirstPause: time.Second, LongestPause: 5 * time.Minute, Run: n.mail,
	}
	executors[user.MailTask], executors[workspace.MailTask] = executor, executor
}

func (n *Node) mail(ctx context.Context, t actors.Task) (proto.Message, error) {
	if err := n.awaitReady(ctx); err != nil {
		return nil, err
	}
	switch m := t.Message.(type) {
	case *workspacev1.InvitationMail:
		return n.Server.Links.MailInvitation(ctx, t.Identity, t.ID, m)
	case *userv1.LinkMail:
		return n.Server.Links.MailLink(ctx, t.Identity, t.ID, m)
	}
	return nil, fmt.Errorf("unexpected message %T of task %s", t.Message, t.Kind)
}

func (n *Node) awaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
