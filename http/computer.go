package http

import (
	"fmt"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

type backupPending struct {
	Status      string `json:"status"`
	WorkspaceID string `json:"workspaceId"`
	BackupID    string `json:"backupId"`
}

type reprovisioning struct {
	Status      string `json:"status"`
	WorkspaceID string `json:"workspaceId"`
	Scheduled   bool   `json:"scheduled"`
	OldVMName   string `json:"oldVmName,omitzero"`
	ImageRef    string `json:"imageRef,omitzero"`
}

type reprovisionDeferred struct {
	Status              string `json:"status"`
	Reason              string `json:"reason"`
	ActiveAgentSessions uint32 `json:"activeAgentSessions"`
	ActiveTrainJobs     uint32 `json:"activeTrainJobs"`
}

// reprovision asks for another computer; whether its drive can be backed up first only a look at it tells.
func (s *Server) reprovision(c *call, _ none) (any, error) {
	if err := c.authorize(); err != nil {
		return nil, err
	}
	_, unreadable := s.options.Drive.Exists(c.ctx, c.workspace.id, "")
	answer, err := ask[*computerv1.Reprovisioned](c, entity.Command{
		Kind: entity.KindComputer, Identity: c.workspace.id, ID: s.options.NewID("cmd_"),
		Message: &computerv1.Reprovision{
			TaskId: s.options.NewID("tsk_"), BackupId: s.options.NewID("bkp_"), DriveReadable: unreadable == nil,
		},
	})
	if err != nil {
		return nil, err
	}
	switch answer.GetStatus() {
	case computer.BackupPending:
		return backupPending{answer.GetStatus(), c.workspace.id, answer.GetBackupId()}, nil
	case computer.Provisioning:
		return reprovisioning{
			answer.GetStatus(), c.workspace.id, answer.GetScheduled(), answer.GetOldVmName(), answer.GetImageRef(),
		}, nil
	case computer.Deferred:
		return reprovisionDeferred{
			answer.GetStatus(), "active_workspace_work", answer.GetActiveSessions(), answer.GetActiveJobs(),
		}, nil
	}
	return nil, fmt.Errorf("reprovision was answered %q", answer.GetStatus())
}
