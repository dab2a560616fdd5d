package node

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
)

// reactions are the chain's steps, and what the fleet of computers does.
func (n *Node) reactions() map[string]actors.Reaction {
	reactions := map[string]actors.Reaction{}
	for _, event := range chain.Events() {
		reactions[entity.MessageName(event)] = n.follow
	}
	n.followComputers(reactions)
	return reactions
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
