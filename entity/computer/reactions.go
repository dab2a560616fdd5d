package computer

import (
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// React returns the commands that follow from an event: the workspace learns whether its computer is present. The
// computer's identity is the workspace's.
func React(identity string, event computerv1.Event) []entity.Reaction {
	switch event.(type) {
	case *computerv1.ComputerProvisioned, *computerv1.ComputerFound:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, identity, &workspacev1.ReportReady{})}
	case *computerv1.ComputerLost:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, identity, &workspacev1.ReportUnhealthy{})}
	default:
		return nil
	}
}
