package http

import (
	"cmp"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

type backupRecord struct {
	BackupID  string `json:"backupId"`
	CreatedAt int64  `json:"createdAt"`
	SizeBytes int64  `json:"sizeBytes"`
	Entries   int64  `json:"entries"`
	SHA256    string `json:"sha256"`
}

// backupTask is something that a workspace's computer has been asked to do.
type backupTask struct {
	TaskID   string `json:"taskId"`
	BackupID string `json:"backupId"`
}

type restoreRequest struct {
	BackupID string `json:"backupId"`
}

// listBackups answers with all, newest first; a workspace keeps a hundred.
func (s *Server) listBackups(c *call, _ none) (roster[backupRecord], error) {
	w, err := c.tenant()
	if err != nil {
		return roster[backupRecord]{}, err
	}
	computer, err := c.describeComputer(w.id)
	if err != nil {
		return roster[backupRecord]{}, err
	}
	found := roster[backupRecord]{Items: []backupRecord{}}
	for id, b := range computer.GetBackups() {
		found.Items = append(found.Items, backupRecord{
			id, b.GetCreatedAt(), b.GetSizeBytes(), b.GetEntries(), hex.EncodeToString(b.GetSha256()),
		})
	}
	slices.SortFunc(found.Items, func(a, b backupRecord) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(b.BackupID, a.BackupID))
	})
	return found, nil
}

func (s *Server) createBackup(c *call, _ none) (backupTask, error) {
	task := backupTask{s.options.NewID("tsk_"), s.options.NewID("bkp_")}
	return task, c.askComputer(&computerv1.BackUp{TaskId: task.TaskID, BackupId: task.BackupID})
}

func (s *Server) createRestore(c *call, in restoreRequest) (backupTask, error) {
	if in.BackupID == "" {
		return backupTask{}, invalid("backupId is required")
	}
	task := backupTask{s.options.NewID("tsk_"), in.BackupID}
	return task, c.askComputer(&computerv1.Restore{TaskId: task.TaskID, BackupId: task.BackupID})
}

// askComputer answers when the task is durable. It is carried out after that; see describeTenant.
func (c *call) askComputer(m proto.Message) error {
	w, err := c.tenant()
	if err != nil {
		return err
	}
	_, err = ask[proto.Message](c, c.asPlatform(entity.KindComputer, w.id, m))
	return err
}
