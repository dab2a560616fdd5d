package computer_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/computer"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// daily is a policy of a backup a day.
var daily = &computerv1.BackupPolicy{EveryMs: (24 * time.Hour).Milliseconds(), Keep: 3}

// metricOf returns the values of a fleet's metric by its last label, summed over the other labels.
func metricOf(t *testing.T, f *computer.Fleet, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = l.GetValue()
			}
			if family.GetName() == name {
				values[label] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// TestFollowAppliesPolicyAndCountsOverdueBackups follows a computer that never gets a backup.
func TestFollowAppliesPolicyAndCountsOverdueBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProvisionedWorld(t)
		follow := func(policy *computerv1.BackupPolicy) (*computer.Fleet, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			f := computer.New(computer.Options{Driver: w, Archive: w, Asker: w, Log: slog.New(slog.DiscardHandler), Put: w.put, Policy: policy})
			go f.Follow(ctx, w)
			synctest.Wait()
			return f, cancel
		}
		f, stop := follow(daily)
		w.expect("", "BackupPolicyChanged")
		time.Sleep(47 * time.Hour)
		if n := metricOf(t, f, "atelier_backups_overdue")[""]; n != 0 {
			t.Errorf("after 47 hours: %v overdue", n)
		}
		time.Sleep(2 * time.Hour)
		if n := metricOf(t, f, "atelier_backups_overdue")[""]; n != 1 {
			t.Errorf("after 49 hours: %v overdue", n)
		}
		stop()
		synctest.Wait()
		if n := metricOf(t, f, "atelier_backups_overdue")[""]; n != 0 {
			t.Errorf("of a share that is not followed any more: %v overdue", n)
		}
		w.since()
		_, stop = follow(daily)
		stop()
		w.expect("", "")
		_, stop = follow(nil)
		stop()
		w.expect("", "BackupPolicyChanged")
		if timers := entitycomputer.Timers(w.state); len(timers) > 0 {
			t.Errorf("without a policy: %v", timers)
		}
	})
}

// newWorldThatWasAhead returns a world with a right clock, and a scheduled backup from the time when the clock was a year ahead.
func newWorldThatWasAhead(t *testing.T) *world {
	w := newProvisionedWorld(t)
	w.ahead = 365 * 24 * time.Hour
	w.ask(&computerv1.SetBackupPolicy{Policy: daily})
	w.ask(entitycomputer.Timers(w.state)[0].Message.(computerv1.Command))
	w.runAll(1)
	w.ahead = 0
	return w
}

// TestScheduleSurvivesClockThatWasAhead takes a scheduled backup while the clock is a year ahead, and sets the clock right.
func TestScheduleSurvivesClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldThatWasAhead(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if due := time.UnixMilli(entitycomputer.Timers(w.state)[0].At); time.Until(due) > 24*time.Hour {
			t.Errorf("the next backup is due in %v", time.Until(due))
		}
	})
}

// TestBackupOfFutureIsOverdue has a scheduled backup of a clock that was a year ahead. No backup can be taken after it.
func TestBackupOfFutureIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldThatWasAhead(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(47 * time.Hour)
		if n := metricOf(t, w.fleet, "atelier_backups_overdue")[""]; n != 0 {
			t.Errorf("after 47 hours: %v overdue", n)
		}
		time.Sleep(2 * time.Hour)
		if n := metricOf(t, w.fleet, "atelier_backups_overdue")[""]; n != 1 {
			t.Errorf("after 49 hours: %v overdue", n)
		}
	})
}

// TestScheduledBackupIsTakenAfterChanges runs the tasks of a schedule.
func TestScheduledBackupIsTakenAfterChanges(t *testing.T) {
	w := newProvisionedWorld(t)
	w.ask(&computerv1.SetBackupPolicy{Policy: daily})
	due := func() {
		t.Helper()
		w.ask(entitycomputer.Timers(w.state)[0].Message.(computerv1.Command))
		w.runAll(1)
	}
	w.since()
	w.seq = 7
	due()
	w.expect("save ws_1", "TaskRequested, BackupPostponed, BackupTaken")
	due()
	w.expect("", "TaskRequested, BackupPostponed, BackupCovered")
	w.seq = 8
	due()
	w.expect("save ws_1", "TaskRequested, BackupPostponed, BackupTaken")
	if got := metricOf(t, w.fleet, "atelier_backups_total"); got["taken"] != 2 || got["covered"] != 1 || got["failed"] != 0 {
		t.Errorf("metrics %v", got)
	}
}

func TestRunVerification(t *testing.T) {
	w := newProvisionedWorld(t)
	w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
	w.runAll(1)
	w.since()
	w.ask(&computerv1.VerifyBackup{TaskId: "tsk_3", BackupId: "bkp_1"})
	w.runAll(1)
	w.expect("verify bkp_1", "TaskRequested, BackupVerified")
	w.damage = "the hash differs"
	w.ask(&computerv1.VerifyBackup{TaskId: "tsk_4", BackupId: "bkp_1"})
	w.runAll(1)
	w.expect("verify bkp_1", "TaskRequested, BackupVerified, TaskFailed")
	if reason := w.state.GetBackups()["bkp_1"].GetVerification().GetFailure(); reason != w.damage {
		t.Errorf("the failure is %q", reason)
	}
}
