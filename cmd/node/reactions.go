package node

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// reactions are the chain's steps, and the drive of a new workspace.
func (n *Node) reactions() map[string]actors.Reaction {
	reactions := map[string]actors.Reaction{}
	for _, event := range chain.Events() {
		reactions[entity.MessageName(event)] = n.follow
	}
	created := entity.MessageName(&workspacev1.WorkspaceCreated{})
	reactions[created] = func(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error) {
		if err := n.Drives.Provision(ctx, identity); err != nil {
			return nil, fmt.Errorf("the drive of %s: %w", identity, err)
		}
		return append(chain.Next(identity, event), entity.Command{
			Kind: entity.KindWorkspace, Identity: identity, Message: &workspacev1.ReportReady{},
		}), nil
	}
	return reactions
}

// follow is the chain's step. What was claimed for somebody who refuses it is given up again.
func (n *Node) follow(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error) {
	claim, claimed := chain.Claimed(identity, event)
	if !claimed {
		return chain.Next(identity, event), nil
	}
	_, err := n.Router.Ask(ctx, claim.Then)
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
