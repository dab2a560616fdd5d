package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// backupCommands is atelier admin backup.
type backupCommands struct {
	Create  backupCreateCommand  `cmd:"" help:"Back up a workspace's drive, wait until the backup is complete, and print it as JSON."`
	List    backupListCommand    `cmd:"" help:"Print a workspace's backups, newest first, one JSON object a line."`
	Restore backupRestoreCommand `cmd:"" help:"Replace the content of a workspace's drive by a backup, and wait until the restore is complete."`

	Verify   backupVerifyCommand   `cmd:"" help:"Read a backup whole, check that it is what was saved, and print it. The drive is not touched."`
	Cancel   backupCancelCommand   `cmd:"" help:"Cancel a backup, restore or verification in progress. The drive stays as it is."`
	Schedule backupScheduleCommand `cmd:"" help:"Print the schedule of a workspace's backups, after changing it if a flag says so."`
	Wait     backupWaitCommand     `cmd:"" help:"Wait until a backup, restore or verification in progress is complete."`
	Node     backupNodeCommand     `cmd:"" help:"Back up the whole node while it runs: the journal, and every drive."`
}

// waitFlag limits the time that a command waits for a task. It does not limit the task, which the node continues.
type waitFlag struct {
	Wait time.Duration `default:"1h" help:"Longest time to wait. After it, the command ends and the node continues the task."`
}

// backupListCommand is atelier admin backup list.
type backupListCommand struct {
	dataFlag
	slugFlag
}

// Run prints the backups. If the last task of the computer failed, it prints the reason to the errors.
func (c *backupListCommand) Run(ctx context.Context, out console) error {
	found, err := newOperator(c.Data).backups(ctx, c.slugFlag)
	if err != nil {
		return err
	}
	for _, item := range found.Items {
		if err := line(out, item); err != nil {
			return err
		}
	}
	if f := found.Failed; f != nil {
		fmt.Fprintf(out.errors, "The last task %s (%s) failed at %s: %s\n", f.ID, f.Kind, time.UnixMilli(f.At).UTC().Format(time.RFC3339), f.Reason)
	}
	return nil
}

// backupList is the node's answer to the request of the backups.
type backupList struct {
	Items  []json.RawMessage
	Failed *struct {
		ID, Kind, Reason string
		At               int64
	}
	Schedule json.RawMessage
}

// backups returns all backups of a workspace, newest first. The node limits their number, so the list has one page.
func (o operator) backups(ctx context.Context, workspace slugFlag) (found backupList, err error) {
	return found, o.call(ctx, http.MethodGet, workspace.path("/backups"), nil, &found)
}

// backupRecord is a backup in the node's answer.
type backupRecord struct {
	BackupID        string
	UnreadableFiles int64
	UnreadablePaths []string
}

// printBackup prints a backup of a workspace, and returns it; nil if there is no backup with the id.
func (o operator) printBackup(ctx context.Context, out console, workspace slugFlag, id string) (*backupRecord, error) {
	all, err := o.backups(ctx, workspace)
	if err != nil {
		return nil, err
	}
	for _, item := range all.Items {
		var b backupRecord
		if json.Unmarshal(item, &b) == nil && b.BackupID == id {
			return &b, line(out, item)
		}
	}
	return nil, nil
}

// backupCreateCommand is atelier admin backup create.
type backupCreateCommand struct {
	dataFlag
	slugFlag
	waitFlag
}

// Run requests a backup, waits for its task and prints the backup. It fails if the task fails, and if the workspace's computer
// began another task instead. It fails with the exit code exitIncomplete if the backup lacks files that the node may not read.
func (c *backupCreateCommand) Run(ctx context.Context, out console) error {
	o := newOperator(c.Data)
	var task backupTask
	// An interrupt does not cancel this call: the error of await needs the id of the task.
	if err := o.call(context.WithoutCancel(ctx), http.MethodPost, c.path("/backups"), nil, &task); err != nil {
		return err
	}
	w := taskWaiter{operator: o, data: c.Data, workspace: c.slugFlag, task: task.TaskID, description: "backup " + task.BackupID}
	if err := w.await(ctx, out, c.Wait); err != nil {
		return err
	}
	made, err := o.printBackup(ctx, out, c.slugFlag, task.BackupID)
	switch {
	case err != nil:
		return err
	case made != nil && made.UnreadableFiles > 0:
		return coded{fmt.Errorf("the backup %s lacks %d files and folders that the node may not read, such as %s",
			made.BackupID, made.UnreadableFiles, strings.Join(made.UnreadablePaths, " ")), exitIncomplete}
	case made != nil:
		return nil
	}
	return fmt.Errorf("backup %s was not made: another task of the workspace's computer replaced it; run the command again", task.BackupID)
}

// backupRestoreCommand is atelier admin backup restore.
type backupRestoreCommand struct {
	dataFlag
	slugFlag
	waitFlag
	Backup string `required:"" placeholder:"ID" help:"Backup to restore."`
}

// Run requests a restore, waits for its task and prints the node's answer to the request.
func (c *backupRestoreCommand) Run(ctx context.Context, out console) error {
	o := newOperator(c.Data)
	var answer json.RawMessage
	// As in create, an interrupt does not cancel the request.
	in := map[string]string{"backupId": c.Backup}
	if err := o.call(context.WithoutCancel(ctx), http.MethodPost, c.path("/restores"), in, &answer); err != nil {
		return err
	}
	var task backupTask
	if err := json.Unmarshal(answer, &task); err != nil {
		return err
	}
	w := taskWaiter{operator: o, data: c.Data, workspace: c.slugFlag, task: task.TaskID, description: "restore of " + task.BackupID}
	if err := w.await(ctx, out, c.Wait); err != nil {
		return err
	}
	return line(out, answer)
}

// backupWaitCommand is atelier admin backup wait.
type backupWaitCommand struct {
	dataFlag
	slugFlag
	waitFlag
	Task string `placeholder:"ID" help:"Task to wait for, as named by an interrupted command. Default: the task in progress."`
}

// Run waits for the task, or for the task in progress if the command line names none.
func (c *backupWaitCommand) Run(ctx context.Context, out console) error {
	w := taskWaiter{operator: newOperator(c.Data), data: c.Data, workspace: c.slugFlag, task: c.Task, description: "task " + c.Task}
	if c.Task == "" {
		state, err := w.computer(ctx)
		if err != nil {
			return err
		}
		if state.Task == nil {
			fmt.Fprintln(out.errors, "No task is in progress.")
			return nil
		}
		w.task, w.description = state.Task.ID, "task "+state.Task.ID
	}
	return w.await(ctx, out, c.Wait)
}

// backupTask is the node's answer to the request of a backup or a restore: the id of the task and of the backup.
type backupTask struct{ TaskID, BackupID string }

// taskWaiter waits for a task of a workspace's computer.
type taskWaiter struct {
	operator
	// data is the data directory of the node.
	data      string
	workspace slugFlag
	// task is the id of the task.
	task string
	// description names the task in messages, such as "backup bkp_1".
	description string
}

// computerState is the part of the node's answer that describes a workspace's computer: the task in progress and the task that
// failed last, each nil if there is none.
type computerState struct {
	Task *struct {
		ID                    string
		DoneBytes, TotalBytes int64
	}
	Failed *struct{ ID, Reason string }
}

// computer returns the current state of the workspace's computer.
func (w taskWaiter) computer(ctx context.Context) (computerState, error) {
	var answer struct{ Computer computerState }
	err := w.call(ctx, http.MethodGet, w.workspace.path(""), nil, &answer)
	return answer.Computer, err
}

// polling has the pauses between two requests for the state of a task.
var polling = retry.Policy{First: 20 * time.Millisecond, Longest: time.Second}

// await waits until the task has ended, and shows its progress. It returns an error with the reason if the task failed. If ctx
// ends, or after the duration wait, it returns an error with the exit code exitUnfinished, which says that the task continues
// and how to wait for it.
func (w taskWaiter) await(ctx context.Context, out console, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("not complete after %s", wait))
	defer cancel()
	meter := newMeter(out.errors, w.description)
	defer meter.end()
	for range polling.Attempts(ctx) {
		state, err := w.computer(ctx)
		switch {
		case ctx.Err() != nil:
			return w.unfinished(ctx)
		case err != nil:
			return fmt.Errorf("cannot read the state of the %s: %w; if the node has stopped, start it again: it continues the task", w.description, err)
		case state.Failed != nil && state.Failed.ID == w.task:
			return fmt.Errorf("the %s failed: %s", w.description, state.Failed.Reason)
		case state.Task == nil || state.Task.ID != w.task:
			return nil
		}
		meter.show(time.Now(), state.Task.DoneBytes, state.Task.TotalBytes)
	}
	return w.unfinished(ctx)
}

// unfinished returns the error of a command that ends before its task. ctx has ended; its cause says why.
func (w taskWaiter) unfinished(ctx context.Context) error {
	reason := context.Cause(ctx)
	if errors.Is(reason, context.Canceled) {
		reason = errors.New("interrupted")
	}
	return coded{fmt.Errorf("%w: the %s continues on the node; to wait for it, run\n  atelier admin backup wait --data=%s --slug=%s --task=%s",
		reason, w.description, w.data, w.workspace.Slug, w.task), exitUnfinished}
}
