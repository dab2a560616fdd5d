package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/cmd/node/nodebackup"
)

// bucketAddress returns the address of a bucket for a folder or an address.
func bucketAddress(text string) (string, error) {
	switch {
	case text == "":
		return "", coded{errors.New("the folder or bucket of the backup is empty: name one, or . for the current directory"), exitConfig}
	case strings.Contains(text, "://"):
		return text, nil
	}
	dir, err := filepath.Abs(text)
	return (&url.URL{Scheme: "file", Path: dir}).String(), err
}

// backupNodeCommand is atelier admin backup node.
type backupNodeCommand struct {
	dataFlag
	To string `required:"" placeholder:"DIR|URL" help:"Where to store the backup: a folder, or a bucket as for backup-url (s3://BUCKET?region=REGION)."`
}

// nodeBackupLine is a line of the node's answer to the request of a backup of the node.
type nodeBackupLine struct {
	Progress *nodebackup.Progress
	Backup   json.RawMessage
	Error    string
}

// Run backs the node up, shows the progress and prints the backup. An interrupt cancels the backup, and so does the end of the
// node.
func (c *backupNodeCommand) Run(ctx context.Context, out console) error {
	to, err := bucketAddress(c.To)
	if err != nil {
		return err
	}
	response, err := newOperator(c.Data).send(ctx, http.MethodPost, "/admin/node/backups", map[string]string{"to": to})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	meter := newMeter(out.errors, "backup of the node")
	defer meter.end()
	return readLines(ctx, response.Body, "backup", func(answer nodeBackupLine) (done bool, err error) {
		switch {
		case answer.Error != "":
			return true, fmt.Errorf("the backup of the node failed: %s", answer.Error)
		case answer.Backup != nil:
			return true, printNodeBackup(out, answer.Backup)
		case answer.Progress != nil:
			meter.showSteps(time.Now(), *answer.Progress)
		}
		return false, nil
	})
}

// printNodeBackup prints a backup of the node. It fails with the exit code exitIncomplete if the backup lacks what the node could not
// read.
func printNodeBackup(out console, text json.RawMessage) error {
	var b struct {
		UnreadableFiles int64
		Failed          []nodebackup.FailedDrive
	}
	if err := errors.Join(json.Unmarshal(text, &b), line(out, text)); err != nil {
		return err
	}
	var lacks []error
	for _, f := range b.Failed {
		lacks = append(lacks, fmt.Errorf("the backup lacks the drive of %s: %s", f.WorkspaceID, f.Reason))
	}
	if b.UnreadableFiles > 0 {
		lacks = append(lacks, fmt.Errorf("the backup lacks %d files and folders that the node may not read; its manifest.json names the first ones of each drive",
			b.UnreadableFiles))
	}
	if len(lacks) == 0 {
		return nil
	}
	return coded{errors.Join(lacks...), exitIncomplete}
}

// restoreCommand is atelier restore.
type restoreCommand struct {
	From   string `required:"" placeholder:"DIR|URL" help:"Where the backup is: the folder or the bucket of admin backup node."`
	Data   string `required:"" type:"path" placeholder:"DIR" help:"Data directory to make. It must be empty or not exist, or have an unfinished restore of the same backup."`
	Backup string `placeholder:"ID" help:"Backup to restore. Default: the latest one."`
}

// Run restores the backup and prints the result.
func (c *restoreCommand) Run(ctx context.Context, out console) error {
	from, err := bucketAddress(c.From)
	if err != nil {
		return err
	}
	log, err := newLog(out.errors, "warn", "text")
	if err != nil {
		return err
	}
	meter := newMeter(out.errors, "restore of the node")
	defer meter.end()
	restored, err := node.Restore(ctx, node.RestoreOptions{
		Dir: c.Data, From: from, BackupID: c.Backup, Log: log,
		Report: func(p nodebackup.Progress) { meter.showSteps(time.Now(), p) },
	})
	if err != nil && ctx.Err() != nil {
		return coded{fmt.Errorf("interrupted: run the same command again to continue: %w", err), exitUnfinished}
	}
	if err != nil {
		return fmt.Errorf("the restore has failed: %w", err)
	}
	text, err := json.Marshal(restored)
	if err != nil {
		return err
	}
	if err := line(out, text); err != nil || len(restored.Missing) == 0 {
		return err
	}
	var missing []error
	for _, f := range restored.Missing {
		missing = append(missing, fmt.Errorf("the backup lacks the drive of %s: %s", f.WorkspaceID, f.Reason))
	}
	return coded{errors.Join(missing...), exitIncomplete}
}
