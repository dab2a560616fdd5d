package actors

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/persistence"
)

// TestIsSmall verifies that a decision is small only if the command is an accepted command and the events are small.
func TestIsSmall(t *testing.T) {
	disables := func(c entity.Command) bool { _, is := c.Message.(*userv1.Disable); return is }
	for name, test := range map[string]struct {
		essential func(entity.Command) bool
		command   entity.Command
		payload   int
		want      bool
	}{
		"essential":        {disables, entity.Command{Message: &userv1.Disable{}}, 100, true},
		"too_large":        {disables, entity.Command{Message: &userv1.Disable{}}, maxEssential + 1, false},
		"ordinary":         {disables, entity.Command{Message: &userv1.ChangeProfile{}}, 100, false},
		"none_is_declared": {nil, entity.Command{Message: &userv1.Disable{}}, 100, false},
	} {
		next := &pending{
			request:  &request{command: test.command},
			decision: decision{events: []persistence.Event{{Payload: make([]byte, test.payload)}}},
		}
		if got := isSmall(next, test.essential); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
