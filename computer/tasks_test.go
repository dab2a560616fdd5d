package computer_test

import (
	"context"
	"errors"
	"testing"

	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// runIn runs the first open task. The action of the task fails with the error of a context that has ended.
func (w *world) runIn(ended context.Context, attempt int) error {
	w.t.Helper()
	w.setFail(func(string) error { return ended.Err() })
	defer w.setFail(func(string) error { return nil })
	report, err := w.fleet.Run(ended, "ws_1", entitycomputer.Tasks(w.state)[0].Message.(*computerv1.Work), attempt)
	if err == nil {
		w.ask(report.(computerv1.Command))
	}
	return err
}

// TestEndOfAnAttempt ends attempts by their timeout and by an interruption.
func TestEndOfAnAttempt(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()

	w := newWorld(t)
	w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
	if err := w.runIn(late, 1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a provisioning that was too slow is not retried: %v", err)
	}
	w.runAll(1001)
	w.since()
	w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
	if err := w.runIn(interrupted, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("a backup that was interrupted is not retried: %v", err)
	}
	if err := w.runIn(late, 1); err != nil {
		t.Errorf("a backup that was too slow is retried, and would take as long: %v", err)
	}
	w.expect("save ws_1!, save ws_1!", "TaskRequested, TaskFailed, BackupDropped")
}
