package actors

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/persistence"
)

// TestUrgencyOf verifies that a proposal has the urgency of its command only if the events are small.
func TestUrgencyOf(t *testing.T) {
	declared := func(c entity.Command) persistence.Urgency {
		switch c.Message.(type) {
		case *userv1.Disable:
			return persistence.Essential
		case *userv1.StartBrowserSession:
			return persistence.Rationed
		}
		return persistence.Ordinary
	}
	for name, test := range map[string]struct {
		declared func(entity.Command) persistence.Urgency
		command  entity.Command
		payload  int
		want     persistence.Urgency
	}{
		"essential":        {declared, entity.Command{Message: &userv1.Disable{}}, maxUrgent, persistence.Essential},
		"rationed":         {declared, entity.Command{Message: &userv1.StartBrowserSession{}}, 100, persistence.Rationed},
		"too_large":        {declared, entity.Command{Message: &userv1.Disable{}}, maxUrgent + 1, persistence.Ordinary},
		"ordinary":         {declared, entity.Command{Message: &userv1.ChangeProfile{}}, 100, persistence.Ordinary},
		"none_is_declared": {nil, entity.Command{Message: &userv1.Disable{}}, 100, persistence.Ordinary},
	} {
		next := &pending{
			request:  &request{command: test.command},
			decision: decision{events: []persistence.Event{{Payload: make([]byte, test.payload)}}},
		}
		if got := (&System{urgency: test.declared}).urgencyOf(next); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
