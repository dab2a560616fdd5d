package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

type backupCommands struct {
	Create  backupCreateCommand  `cmd:"" help:"Back a workspace's drive up, wait until that is done, and print the backup as JSON."`
	List    backupListCommand    `cmd:"" help:"Print a workspace's backups, newest first, one JSON object a line."`
	Restore backupRestoreCommand `cmd:"" help:"Put a backup in the place of what is on a workspace's drive, and wait until that is done."`
}

// waitFlag bounds how long a command waits. What it waits for goes on.
type waitFlag struct {
	Wait time.Duration `default:"1h" help:"Longest time to wait; what was begun goes on."`
}

type backupListCommand struct {
	dataFlag
	slugFlag
}

func (c *backupListCommand) Run(ctx context.Context, out console) error {
	kept, err := newOperator(c.Data).backups(ctx, c.slugFlag)
	if err != nil {
		return err
	}
	for _, item := range kept {
		if err := line(out, item); err != nil {
			return err
		}
	}
	return nil
}

// backups are all of a workspace's; there are never many.
func (o operator) backups(ctx context.Context, of slugFlag) ([]json.RawMessage, error) {
	var kept struct{ Items []json.RawMessage }
	err := o.call(ctx, http.MethodGet, of.path("/backups"), nil, &kept)
	return kept.Items, err
}

type backupCreateCommand struct {
	dataFlag
	slugFlag
	waitFlag
}

func (c *backupCreateCommand) Run(ctx context.Context, out console) error {
	o := newOperator(c.Data)
	var task backupTask
	if err := o.call(ctx, http.MethodPost, c.path("/backups"), nil, &task); err != nil {
		return err
	}
	if err := o.finish(ctx, c.slugFlag, task, c.Wait); err != nil {
		return err
	}
	kept, err := o.backups(ctx, c.slugFlag)
	if err != nil {
		return err
	}
	for _, item := range kept {
		var b backupTask
		if json.Unmarshal(item, &b) == nil && b.BackupID == task.BackupID {
			return line(out, item)
		}
	}
	return errors.New("the backup was given up for something else")
}

type backupRestoreCommand struct {
	dataFlag
	slugFlag
	waitFlag
	Backup string `required:"" placeholder:"ID" help:"Backup to restore."`
}

func (c *backupRestoreCommand) Run(ctx context.Context, out console) error {
	o := newOperator(c.Data)
	var answer json.RawMessage
	if err := o.call(ctx, http.MethodPost, c.path("/restores"), map[string]string{"backupId": c.Backup}, &answer); err != nil {
		return err
	}
	var task backupTask
	if err := json.Unmarshal(answer, &task); err != nil {
		return err
	}
	if err := o.finish(ctx, c.slugFlag, task, c.Wait); err != nil {
		return err
	}
	return line(out, answer)
}

// backupTask is what a workspace's computer was asked to do.
type backupTask struct{ TaskID, BackupID string }

// longestLook is the longest pause between two looks at a task.
const longestLook = 2 * time.Second

// finish waits until a task is over, and tells why it failed.
func (o operator) finish(ctx context.Context, of slugFlag, task backupTask, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("it is not done after %s, and goes on", wait))
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, longestLook) {
		var w struct {
			Computer struct {
				Task   *struct{ ID string }
				Failed *struct{ ID, Reason string }
			}
		}
		err := o.call(ctx, http.MethodGet, of.path(""), nil, &w)
		open, failed := w.Computer.Task, w.Computer.Failed
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case failed != nil && failed.ID == task.TaskID:
			return errors.New(failed.Reason)
		case open == nil || open.ID != task.TaskID:
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
