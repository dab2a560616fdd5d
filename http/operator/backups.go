package operator

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// backups serves the backups of workspaces.
type backups struct{}

func (b backups) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: adminWorkspace + "/backups", Scope: server.ScopeOperator, Summary: "List a workspace's backups",
			Handler: server.Answer(http.StatusOK, server.Nothing, b.list)},
		{Method: http.MethodPost, Path: adminWorkspace + "/backups", Scope: server.ScopeOperator, Summary: "Back a workspace's drive up",
			Handler: server.Answer(http.StatusCreated, server.Nothing, b.create)},
		{Method: http.MethodPost, Path: adminWorkspace + "/restores", Scope: server.ScopeOperator, Summary: "Restore a workspace's drive from a backup",
			Handler: server.Answer(http.StatusCreated, server.Body[restoreRequest], b.restore)},
	}
}

type backupRecord struct {
	BackupID  string `json:"backupId"`
	CreatedAt int64  `json:"createdAt"`
	SizeBytes int64  `json:"sizeBytes"`
	Entries   int64  `json:"entries"`
	SHA256    string `json:"sha256"`
}

// backupTask is a task that a workspace's computer has accepted.
type backupTask struct {
	TaskID   string `json:"taskId"`
	BackupID string `json:"backupId"`
}

type restoreRequest struct {
	BackupID string `json:"backupId"`
}

// list returns all backups, newest first; a workspace has at most a hundred.
func (b backups) list(c *server.Call, _ server.None) (operatorPage[backupRecord], error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return operatorPage[backupRecord]{}, err
	}
	computer, err := describeComputer(c, w.ID)
	if err != nil {
		return operatorPage[backupRecord]{}, err
	}
	found := operatorPage[backupRecord]{Items: []backupRecord{}}
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

func (b backups) create(c *server.Call, _ server.None) (backupTask, error) {
	task := backupTask{c.NewID("tsk_"), c.NewID("bkp_")}
	return task, commandComputer(c, &computerv1.BackUp{TaskId: task.TaskID, BackupId: task.BackupID})
}

func (b backups) restore(c *server.Call, in restoreRequest) (backupTask, error) {
	if in.BackupID == "" {
		return backupTask{}, server.Invalid("backupId is required")
	}
	task := backupTask{c.NewID("tsk_"), in.BackupID}
	return task, commandComputer(c, &computerv1.Restore{TaskId: task.TaskID, BackupId: task.BackupID})
}

// commandComputer sends a command to the computer of the workspace in the path. When it returns, the task is durable but not
// done; workspaces.describe shows its progress.
func commandComputer(c *server.Call, m proto.Message) error {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return err
	}
	_, err = server.Ask[proto.Message](c, api.PlatformCommand(c, entity.KindComputer, w.ID, m))
	return err
}
