package node

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
)

// reactions are the chain's steps.
func (n *Node) reactions() map[string]actors.Reaction {
	reactions := map[string]actors.Reaction{}
	for _, event := range chain.Events() {
		reactions[entity.MessageName(event)] = follow
	}
	return reactions
}

// follow returns the chain's step.
func follow(_ context.Context, identity string, event proto.Message) ([]entity.Reaction, error) {
	return chain.React(identity, event), nil
}
