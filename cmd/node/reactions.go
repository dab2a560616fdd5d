package node

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// reactions are the chain's steps.
func (n *Node) reactions() map[string]actors.Reaction {
	reactions := map[string]actors.Reaction{}
	for _, event := range chain.Events() {
		reactions[entity.MessageName(event)] = n.follow
	}
	reactions[entity.MessageName(&workspacev1.StatusChanged{})] = n.followStatus
	return reactions
}

// followStatus is the chain's step, and tells a workspace that is opened again what it was not told while it was closed:
// that its computer is lost. That it is found is told behind this, in the order of the feed.
func (n *Node) followStatus(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error) {
	commands := chain.Next(identity, event)
	if changed, ok := event.(*workspacev1.StatusChanged); !ok || changed.GetStatus() != workspacev1.Status_STATUS_ACTIVE {
		return commands, nil
	}
	reply, err := n.Router.Ask(ctx, entity.Command{
		Kind: entity.KindComputer, Identity: identity, Principal: entity.Platform(), Message: &computerv1.DescribeComputer{},
	})
	if err != nil && !refused(err) {
		return nil, err
	}
	if c, _ := reply.(*computerv1.Computer); c.GetStatus() == computerv1.Status_STATUS_LOST {
		commands = append(commands, entity.Command{
			Kind: entity.KindWorkspace, Identity: identity, Message: &workspacev1.ReportUnhealthy{},
		})
	}
	return commands, nil
}

// follow is the chain's step. What was claimed for somebody who refuses it is given up again.
func (n *Node) follow(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error) {
	claim, claimed := chain.Claimed(identity, event)
	if !claimed {
		return chain.Next(identity, event), nil
	}
	claim.Held.Principal = entity.Platform()
	held, err := n.Router.Ask(ctx, claim.Held)
	if err != nil || !claim.By(held) {
		return nil, err
	}
	_, err = n.Router.Ask(ctx, claim.Then)
	switch {
	case err == nil:
		return nil, nil
	case refused(err):
		return []entity.Command{claim.Otherwise}, nil
	default:
		return nil, err
	}
}

// refused tells whether an entity refused a command for good.
func refused(err error) bool {
	var refusal *entity.Error
	return errors.As(err, &refusal) && refusal.Code != entity.Unavailable && refusal.Code != entity.Internal
}
