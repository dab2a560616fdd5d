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
	Wait    backupWaitCommand    `cmd:"" help:"Wait until a backup or a restore that was begun is done."`
}

// waitFlag bounds how long a command waits. The node continues what the command waits for.
type waitFlag struct {
	Wait time.Duration `default:"1h" help:"Longest time to wait; the node continues what was begun."`
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
	// An interrupt does not cut this call off: what was begun is then known.
	if err := o.call(context.WithoutCancel(ctx), http.MethodPost, c.path("/backups"), nil, &task); err != nil {
		return err
	}
	w := waiting{o, c.Data, c.slugFlag, task.TaskID, "backup " + task.BackupID}
	if err := w.await(ctx, out, c.Wait); err != nil {
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
	return fmt.Errorf("backup %s was given up: another task of the workspace's computer took its place", task.BackupID)
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
	in := map[string]string{"backupId": c.Backup}
	if err := o.call(context.WithoutCancel(ctx), http.MethodPost, c.path("/restores"), in, &answer); err != nil {
		return err
	}
	var task backupTask
	if err := json.Unmarshal(answer, &task); err != nil {
		return err
	}
	w := waiting{o, c.Data, c.slugFlag, task.TaskID, "restore of " + task.BackupID}
	if err := w.await(ctx, out, c.Wait); err != nil {
		return err
	}
	return line(out, answer)
}

type backupWaitCommand struct {
	dataFlag
	slugFlag
	waitFlag
	Task string `placeholder:"ID" help:"Task that create or restore has named. Without this: the one that is under way."`
}

func (c *backupWaitCommand) Run(ctx context.Context, out console) error {
	w := waiting{newOperator(c.Data), c.Data, c.slugFlag, c.Task, "task " + c.Task}
	if c.Task == "" {
		state, err := w.look(ctx)
		if err != nil {
			return err
		}
		if state.Task == nil {
			fmt.Fprintln(out.errors, "Nothing is under way.")
			return nil
		}
		w.task, w.what = state.Task.ID, "task "+state.Task.ID
	}
	return w.await(ctx, out, c.Wait)
}

// backupTask is a task that a workspace's computer was given.
type backupTask struct{ TaskID, BackupID string }

// waiting is a command that waits for a task.
type waiting struct {
	operator
	data string
	of   slugFlag
	task string
	// what names the task for people.
	what string
}

// computerState is what a node answers about a workspace's computer.
type computerState struct {
	Task *struct {
		ID                    string
		DoneBytes, TotalBytes int64
	}
	Failed *struct{ ID, Reason string }
}

func (w waiting) look(ctx context.Context) (computerState, error) {
	var answer struct{ Computer computerState }
	err := w.call(ctx, http.MethodGet, w.of.path(""), nil, &answer)
	return answer.Computer, err
}

// longestLook is the longest pause between two looks at a task.
const longestLook = time.Second

// await waits until the task is over, and shows its progress. It returns the reason when the task has failed. When the
// command is interrupted, or has waited for long enough, the error says that the task continues and how to wait for it; its
// exit code is exitUnfinished.
func (w waiting) await(ctx context.Context, out console, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("not done after %s", wait))
	defer cancel()
	meter := newMeter(out.errors, w.what)
	defer meter.end()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, longestLook) {
		state, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return w.unfinished(ctx)
		case err != nil:
			return fmt.Errorf("%w; a node that is started again continues the %s", err, w.what)
		case state.Failed != nil && state.Failed.ID == w.task:
			return fmt.Errorf("the %s has failed: %s", w.what, state.Failed.Reason)
		case state.Task == nil || state.Task.ID != w.task:
			return nil
		}
		meter.show(time.Now(), state.Task.DoneBytes, state.Task.TotalBytes)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return w.unfinished(ctx)
		}
	}
}

// unfinished is the error of a command that ends before its task.
func (w waiting) unfinished(ctx context.Context) error {
	why := context.Cause(ctx)
	if errors.Is(why, context.Canceled) {
		why = errors.New("interrupted")
	}
	return coded{fmt.Errorf("%w: the %s continues on the node; to wait for it, run\n  atelier admin backup wait --data=%s --slug=%s --task=%s",
		why, w.what, w.data, w.of.Slug, w.task), exitUnfinished}
}
