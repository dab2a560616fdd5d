package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// backupVerifyCommand is atelier admin backup verify.
type backupVerifyCommand struct {
	dataFlag
	slugFlag
	waitFlag
	Backup string `required:"" placeholder:"ID" help:"Backup to verify."`
}

// Run requests a verification, waits for its task and prints the backup. It fails with the reason if the backup is not usable.
func (c *backupVerifyCommand) Run(ctx context.Context, out console) error {
	o := newOperator(c.Data)
	var task backupTask
	// As in create, an interrupt does not cancel the request.
	in := map[string]string{"backupId": c.Backup}
	if err := o.call(context.WithoutCancel(ctx), http.MethodPost, c.path("/verifications"), in, &task); err != nil {
		return err
	}
	w := taskWaiter{operator: o, data: c.Data, workspace: c.slugFlag, task: task.TaskID, description: "verification of " + task.BackupID}
	if err := w.await(ctx, out, c.Wait); err != nil {
		return err
	}
	found, err := o.printBackup(ctx, out, c.slugFlag, c.Backup)
	if err == nil && found == nil {
		err = fmt.Errorf("backup %s was removed meanwhile", c.Backup)
	}
	return err
}

// backupCancelCommand is atelier admin backup cancel.
type backupCancelCommand struct {
	dataFlag
	slugFlag
	Task string `placeholder:"ID" help:"Task to cancel. Default: the task in progress."`
}

// Run cancels the task and prints its id. It prints a message if no such task is in progress.
func (c *backupCancelCommand) Run(ctx context.Context, out console) error {
	var answer json.RawMessage
	err := newOperator(c.Data).call(ctx, http.MethodPost, c.path("/cancellations"), map[string]string{"taskId": c.Task}, &answer)
	if err != nil {
		return err
	}
	var cancelled backupTask
	if err := json.Unmarshal(answer, &cancelled); err != nil {
		return err
	}
	if cancelled.TaskID == "" {
		fmt.Fprintln(out.errors, "No such task is in progress.")
		return nil
	}
	return line(out, answer)
}

// backupScheduleCommand is atelier admin backup schedule.
type backupScheduleCommand struct {
	dataFlag
	slugFlag
	Every   time.Duration `placeholder:"DURATION" help:"Time between two backups, at least a minute."`
	Keep    *int32        `placeholder:"7" help:"Number of scheduled backups that are stored; the oldest are removed. Only with --every. Default: 7."`
	Off     bool          `help:"Schedule no backups of this workspace."`
	Inherit bool          `help:"Apply the settings backup-every and backup-keep of the node."`
}

// Validate is called by the parser when every flag has its value.
func (c *backupScheduleCommand) Validate() error {
	switch {
	case c.Keep != nil && c.Every == 0:
		return errors.New("keep: it is set together with every")
	case c.Every%time.Second != 0:
		return errors.New("every: it must be a number of whole seconds")
	}
	return nil
}

// defaultKeep is the number of scheduled backups that are stored if --keep does not say it.
const defaultKeep = 7

// Run changes the policy of the workspace, if a flag names one, and prints the schedule.
func (c *backupScheduleCommand) Run(ctx context.Context, out console) error {
	chosen := 0
	for _, is := range []bool{c.Every != 0, c.Off, c.Inherit} {
		if is {
			chosen++
		}
	}
	switch chosen {
	case 0:
		found, err := newOperator(c.Data).backups(ctx, c.slugFlag)
		if err != nil {
			return err
		}
		return line(out, found.Schedule)
	case 1:
	default:
		return coded{errors.New("name one of --every, --off and --inherit"), exitConfig}
	}
	in := map[string]any{"inherit": c.Inherit}
	if c.Every != 0 {
		in["everySeconds"], in["keep"] = int64(c.Every/time.Second), defaultKeep
	}
	if c.Keep != nil {
		in["keep"] = *c.Keep
	}
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPut, c.path("/backup-schedule"), in)
}
