package node

import (
	"errors"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
)

// reactions returns the side effects of events. What follows from events as commands, the kinds declare.
func (n *Node) reactions() map[string]actors.Reaction {
	reactions := map[string]actors.Reaction{}
	n.followMembers(reactions)
	return reactions
}

// refused reports whether an entity refused a command for good.
func refused(err error) bool {
	var refusal *entity.Error
	return errors.As(err, &refusal) && refusal.Code != entity.Unavailable && refusal.Code != entity.Internal
}
