package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/http/server"
)

// BackUpNode backs the whole node up to a bucket at a file:// or s3:// address. It calls report from one goroutine. Errors:
// *entity.Error, and the errors of the disk and of the bucket.
type BackUpNode func(ctx context.Context, to string, report func(NodeProgress)) (NodeBackup, error)

// NodeProgress is the progress of a backup of the node.
type NodeProgress struct {
	Step       string `json:"step"`
	Drives     int    `json:"drives"`
	DrivesDone int    `json:"drivesDone"`
	DoneBytes  int64  `json:"doneBytes"`
	TotalBytes int64  `json:"totalBytes"`
}

// NodeBackup is a complete backup of the node.
type NodeBackup struct {
	BackupID  string `json:"backupId"`
	CreatedAt int64  `json:"createdAt"`
	Drives    int    `json:"drives"`
	SizeBytes int64  `json:"sizeBytes"`
	// ChangedFiles is the number of files that were changed during each attempt to copy them.
	ChangedFiles int64 `json:"changedFiles"`
	// UnreadableFiles is the number of files and folders that the node may not read. The manifest names the first ones of each drive.
	UnreadableFiles int64 `json:"unreadableFiles,omitzero"`
	// Failed lists the workspaces with drives that are not in the backup.
	Failed []FailedDrive `json:"failed,omitempty"`
}

// FailedDrive is a drive that could not be backed up.
type FailedDrive struct {
	WorkspaceID string `json:"workspaceId"`
	Reason      string `json:"reason"`
}

// nodeBackups backs up the node.
type nodeBackups struct{ backUp BackUpNode }

func (n nodeBackups) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: "/admin/node/backups", Scope: server.ScopeOperator, Summary: "Back the whole node up",
			Handler: n.create, Timing: server.Transfer},
	}
}

type nodeBackupRequest struct {
	// To is the address of the bucket.
	To string `json:"to"`
}

// nodeBackupLine is a line of the answer. The last line has Backup or Error.
type nodeBackupLine struct {
	Progress *NodeProgress `json:"progress,omitzero"`
	Backup   *NodeBackup   `json:"backup,omitzero"`
	Error    string        `json:"error,omitzero"`
}

// progressInterval is the least time between two lines of progress.
const progressInterval = 200 * time.Millisecond

// create backs the node up, and writes its progress as lines of JSON. The backup is cancelled when the client closes the
// connection.
func (n nodeBackups) create(c *server.Call) error {
	in, err := server.Body[nodeBackupRequest](c)
	if err != nil {
		return err
	}
	if in.To == "" {
		return server.Invalid("to is required")
	}
	ctx, cancel := beginLines(c)
	defer cancel()
	var written time.Time
	report := func(p NodeProgress) {
		if time.Since(written) < progressInterval {
			return
		}
		written = time.Now()
		if err := writeLine(c, nodeBackupLine{Progress: &p}); err != nil {
			cancel()
		}
	}
	backup, err := n.backUp(ctx, in.To, report)
	if err != nil {
		return writeLine(c, nodeBackupLine{Error: err.Error()})
	}
	return writeLine(c, nodeBackupLine{Backup: &backup})
}

// beginLines begins an answer of lines of JSON, which may take long. The context that it returns ends with the request.
func beginLines(c *server.Call) (context.Context, context.CancelFunc) {
	c.ExtendWrites()
	c.Response.Header().Set("Content-Type", "application/x-ndjson")
	c.Response.Flush()
	return context.WithCancel(c.Context)
}

// writeLine writes a line of an answer and flushes it.
func writeLine(c *server.Call, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := c.Response.Write(append(text, '\n')); err != nil {
		return err
	}
	c.Response.Flush()
	return nil
}
