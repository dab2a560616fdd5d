package node

import (
	"context"
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
		reactions[entity.MessageName(event)] = func(_ context.Context, identity string, event proto.Message) ([]entity.Command, error) {
			return chain.Next(identity, event), nil
		}
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
