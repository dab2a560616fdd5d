package computer_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/entitytest"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"computer lost":  {"ws_1", &computerv1.ComputerLost{}, []entity.Reaction{entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.ReportUnhealthy{})}},
		"computer found": {"ws_1", &computerv1.ComputerFound{}, []entity.Reaction{entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.ReportReady{})}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, computer.Kind.React(test.identity, test.event), test.want)
		})
	}
}
