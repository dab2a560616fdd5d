package computer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// A world is the entity of one computer, a driver, an archive and a share, for tests of Fleet. Tasks run one at a time,
// when run is called.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	state   *computerv1.Computer
	present *computerv1.Present
	// schedule is the row of the schedule; policy is the policy of the node.
	schedule *computerv1.ScheduleRow
	// seq is the sequence of the drive, damage the failure of verifications.
	seq    uint64
	damage string
	// events has the names of the entity's events since the last call of since.
	events []string
	fleet  *computer.Fleet
	host   *fakeHost
	// running is set if the workspace is in use.
	running bool
	// ahead is by how much the clock of the entity is ahead.
	ahead time.Duration

	// fail is called before each action of the driver or the archive, and returns the action's error.
	fail func(action string) error
	// refuse returns the error of a command to the entity.
	refuse func(entity.Command) error
	// actions has the actions since the last call of since. An exclamation mark follows an action that failed.
	actions []string
	// recorded counts the samples that were sent to the entity. putSamples counts the samples that were written as rows.
	recorded, putSamples int
}

func (w *world) put(_ context.Context, id string, row entity.Row) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "ws_1" || row.List != entitycomputer.Telemetry {
		return errors.New("not a row of a sample")
	}
	w.putSamples++
	return nil
}

// expectSamples compares the numbers of samples since the beginning.
func (w *world) expectSamples(recorded, put int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recorded != recorded || w.putSamples != put {
		w.t.Errorf("%d samples sent to the entity and %d written as rows, want %d and %d", w.recorded, w.putSamples, recorded, put)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, state: entitycomputer.Zero("ws_1"), fail: func(string) error { return nil },
		refuse: func(entity.Command) error { return nil }}
	w.host = newFakeHost(w)
	w.fleet = computer.New(computer.Options{Driver: w, Host: w.host, Observer: w.host, Archive: w, Asker: w, Log: slog.New(slog.DiscardHandler), Put: w.put})
	return w
}

func (w *world) Schedules(after string, _ int) ([]*computerv1.ScheduleRow, error) {
	row, err := w.Schedule("ws_1")
	if row == nil || after != "" {
		return nil, err
	}
	return []*computerv1.ScheduleRow{row}, nil
}

func (w *world) Schedule(string) (*computerv1.ScheduleRow, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.schedule, nil
}

// Running, Present and Find implement computer.Share, as Schedules and Schedule do.
func (w *world) Running() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil
	}
	return []string{"ws_1", "ws_without"}
}

func (w *world) Present(after string, _ int) ([]*computerv1.Present, error) {
	found, err := w.Find("ws_1")
	if found == nil || after != "" {
		return nil, err
	}
	return []*computerv1.Present{found}, nil
}

func (w *world) Find(id string) (*computerv1.Present, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "ws_1" {
		return nil, nil
	}
	return w.present, nil
}

// Ask applies a command by the rules of entity/computer.
func (w *world) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := entity.Call{Now: time.Now().Add(w.ahead), Identity: c.Identity, Principal: c.Principal, Version: uint64(len(w.events) + 1)}
	command := c.Message.(computerv1.Command)
	if _, is := command.(*computerv1.RecordSample); is {
		w.recorded++
	}
	if err := w.refuse(c); err != nil {
		return nil, err
	}
	before := w.state
	events, err := entitycomputer.Decide(call, before, command)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		w.state = entitycomputer.Evolve(w.state, e)
		w.events = append(w.events, string(e.ProtoReflect().Descriptor().Name()))
	}
	for _, row := range entitycomputer.Rows(call, before, w.state, command, events) {
		if row.List == entitycomputer.PresentList {
			w.present, _ = row.Message.(*computerv1.Present)
		}
		if row.List == entitycomputer.ScheduleList {
			w.schedule, _ = row.Message.(*computerv1.ScheduleRow)
		}
	}
	return entitycomputer.Reply(call, w.state, command, events), nil
}

// run runs the open tasks and reports their outcomes until no task is open or one has to be retried. It returns the
// errors of the tasks to retry.
func (w *world) run(attempt int) (retries []error) {
	for {
		w.mu.Lock()
		open := entitycomputer.Tasks(w.state)
		w.mu.Unlock()
		if len(open) == 0 {
			return retries
		}
		for _, task := range open {
			report, err := w.fleet.Run(w.t.Context(), "ws_1", task.Message.(*computerv1.Work), attempt)
			if err != nil {
				retries = append(retries, fmt.Errorf("%s: %w", task.Kind, err))
				continue
			}
			w.ask(report.(computerv1.Command))
		}
		if len(retries) > 0 {
			return retries
		}
	}
}

// do records an action and returns its error.
func (w *world) do(action string) error {
	w.mu.Lock()
	fail := w.fail
	w.mu.Unlock()
	err := fail(action)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		action += "!"
	}
	w.actions = append(w.actions, action)
	return err
}

func (w *world) Provision(_ context.Context, id, vmName string) (computer.Machine, error) {
	return computer.Machine{VMName: vmName, ImageRef: "fake"}, w.do("provision " + id)
}

func (w *world) Release(_ context.Context, id string) error { return w.do("release " + id) }

func (w *world) Recover(context.Context) ([]computer.Leftover, error) { return nil, w.do("recover") }

func (w *world) Sample(_ context.Context, id string) (*computerv1.Sample, error) {
	return &computerv1.Sample{CpuPct: 1}, w.do("sample " + id)
}

func (w *world) Save(_ context.Context, id, backupID string, _ func(done, total int64)) (*computerv1.Backup, error) {
	return &computerv1.Backup{Id: backupID, Seq: proto.Uint64(w.seq)}, w.do("save " + id)
}

func (w *world) Sequence(context.Context, string) (uint64, error) { return w.seq, nil }

func (w *world) Verify(_ context.Context, b *computerv1.Backup, _ func(done, total int64)) (string, error) {
	return w.damage, w.do("verify " + b.GetId())
}

func (w *world) Load(_ context.Context, id, _ string, b *computerv1.Backup, _ func(done, total int64)) error {
	return w.do("load " + id + " " + b.GetId())
}

func (w *world) Remove(_ context.Context, id string, b *computerv1.Backup) error {
	return w.do("remove " + id + " " + b.GetId())
}

// setFail replaces fail.
func (w *world) setFail(fail func(action string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

func (w *world) ask(c computerv1.Command) {
	w.t.Helper()
	if _, err := w.Ask(context.Background(), entity.Command{Identity: "ws_1", Principal: entity.Platform(), Message: c}); err != nil {
		w.t.Fatal(err)
	}
}

// since returns the actions and the events since its last call.
func (w *world) since() (actions, events string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	actions, events = strings.Join(w.actions, ", "), strings.Join(w.events, ", ")
	w.actions, w.events = nil, nil
	return actions, events
}

// expect compares the actions and the events since the last call of since.
func (w *world) expect(actions, events string) {
	w.t.Helper()
	if a, e := w.since(); a != actions || e != events {
		w.t.Errorf("actions %q and events %q, want %q and %q", a, e, actions, events)
	}
}

func (w *world) status() computerv1.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.GetStatus()
}

// newProvisionedWorld returns a world with a provisioned computer.
func newProvisionedWorld(t *testing.T) *world {
	w := newWorld(t)
	w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
	w.runAll(1)
	w.expect("provision ws_1", "TaskRequested, ComputerProvisioned")
	return w
}

// runAll runs the open tasks and fails if one has to be retried.
func (w *world) runAll(attempt int) {
	w.t.Helper()
	if retries := w.run(attempt); len(retries) > 0 {
		w.t.Errorf("tasks to retry: %v", retries)
	}
}

var errLater = errors.New("temporary failure")

func TestRun(t *testing.T) {
	failing := func(w *world, prefix string, err error) {
		w.setFail(func(action string) error {
			if strings.HasPrefix(action, prefix) {
				return err
			}
			return nil
		})
	}
	t.Run("temporary failure is retried", func(t *testing.T) {
		w := newWorld(t)
		failing(w, "provision", errLater)
		w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
		if retries := w.run(1000); len(retries) != 1 || !errors.Is(retries[0], errLater) {
			t.Errorf("to be tried retries: %v", retries)
		}
		failing(w, "provision", nil)
		w.runAll(1001)
		w.expect("provision ws_1!, provision ws_1", "TaskRequested, ComputerProvisioned")
		if w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("the computer is %v", w.status())
		}
	})
	t.Run("refusal is reported as failed", func(t *testing.T) {
		w := newProvisionedWorld(t)
		failing(w, "save", entity.Errorf("insufficient_storage", "no space is left"))
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		w.runAll(1)
		w.expect("save ws_1!, remove ws_1 bkp_1", "TaskRequested, TaskFailed, BackupDropped, BackupRemoved")
	})
	t.Run("backup fails after the last attempt", func(t *testing.T) {
		w := newProvisionedWorld(t)
		failing(w, "save", errLater)
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		if retries := w.run(19); len(retries) != 1 {
			t.Errorf("to be tried retries: %v", retries)
		}
		w.runAll(20)
		// An attempt may have stored the backup and lost the answer.
		w.expect("save ws_1!, save ws_1!, remove ws_1 bkp_1", "TaskRequested, TaskFailed, BackupDropped, BackupRemoved")
	})
	t.Run("replacement follows its backup, which can be restored", func(t *testing.T) {
		w := newProvisionedWorld(t)
		w.ask(&computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bkp_1", DriveReadable: true})
		w.runAll(1)
		w.expect("save ws_1, provision ws_1", "TaskRequested, BackupTaken, TaskRequested, ComputerProvisioned")
		w.ask(&computerv1.Restore{TaskId: "tsk_3", BackupId: "bkp_1"})
		w.runAll(1)
		w.expect("load ws_1 bkp_1", "TaskRequested, BackupRestored")
	})
	t.Run("backup of an ended task is deleted", func(t *testing.T) {
		w := newProvisionedWorld(t)
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		late := entitycomputer.Tasks(w.state)[0].Message.(*computerv1.Work)
		report, err := w.fleet.Run(t.Context(), "ws_1", late, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.ask(&computerv1.RetireComputer{TaskId: "tsk_3"})
		w.ask(report.(computerv1.Command))
		failing(w, "remove", errLater)
		if retries := w.run(1); len(retries) != 1 || !errors.Is(retries[0], errLater) {
			t.Errorf("to be tried retries: %v", retries)
		}
		failing(w, "remove", nil)
		w.runAll(2)
		w.expect("save ws_1, release ws_1, remove ws_1 bkp_1!, remove ws_1 bkp_1",
			"TaskRequested, TaskRequested, BackupDropped, ComputerRetired, BackupRemoved")
	})
	t.Run("oldest backups are deleted", func(t *testing.T) {
		w := newProvisionedWorld(t)
		for i := range entitycomputer.MaxBackups + 2 {
			w.ask(&computerv1.BackUp{TaskId: fmt.Sprint("tsk_b", i), BackupId: fmt.Sprintf("bkp_%03d", i)})
			w.ask(&computerv1.ReportBackedUp{TaskId: fmt.Sprint("tsk_b", i), Backup: &computerv1.Backup{CreatedAt: int64(i + 1)}})
		}
		w.since()
		if open := len(entitycomputer.Tasks(w.state)); open != 2 {
			t.Fatalf("%d backups to delete, want 2", open)
		}
		failing(w, "remove ws_1 bkp_000", entity.Errorf(entity.Forbidden, "the bucket retains it"))
		w.runAll(1)
		w.expect("remove ws_1 bkp_000!, remove ws_1 bkp_001", "BackupRemoved, BackupRemoved")
	})
}

func TestFollowReportsLostAndFoundComputer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProvisionedWorld(t)
		w.running = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(15 * time.Second) // every running computer has had its turn
		synctest.Wait()
		w.since() // the first turn samples the running computers and checks all
		w.expectSamples(0, 1)
		tick := func(actions, events string) {
			t.Helper()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			w.expect(actions, events)
		}
		tick("sample ws_1", "")
		w.expectSamples(0, 2)
		w.setFail(func(string) error { return errLater })
		tick("sample ws_1!", "ComputerMissed")
		tick("sample ws_1!", "ComputerLost")
		tick("sample ws_1!", "")
		w.setFail(func(string) error { return nil })
		tick("sample ws_1", "ComputerFound")
		w.expectSamples(1, 2)
		tick("sample ws_1", "")
		w.expectSamples(1, 3)
	})
}

// TestUnavailableSampleIsNotMissing verifies that a computer that cannot be measured, for lack of file descriptors, is not
// reported as missing.
func TestUnavailableSampleIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProvisionedWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		w.setFail(func(string) error { return entity.Errorf(entity.Unavailable, "too many files are open") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if actions, events := w.since(); !strings.Contains(actions, "sample") || events != "" {
			t.Errorf("actions %q, events %q, want samples and no event", actions, events)
		}
		if w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("the computer is %v, want active", w.status())
		}
	})
}

// TestIdleComputers verifies that an idle computer is checked every ten minutes, without rows, and that changes are reported.
func TestIdleComputers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProvisionedWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(time.Hour)
		synctest.Wait()
		actions, events := w.since()
		if checks := strings.Count(actions, "sample"); checks < 5 || checks > 7 || events != "" {
			t.Errorf("%d checks in an hour, want 5 to 7; events %q, want none", checks, events)
		}
		w.expectSamples(0, 0)
		w.setFail(func(string) error { return errLater })
		time.Sleep(21 * time.Minute)
		synctest.Wait()
		if _, events := w.since(); events != "ComputerMissed, ComputerLost" {
			t.Errorf("events %q, want ComputerMissed, ComputerLost", events)
		}
		w.setFail(func(string) error { return nil })
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if _, events := w.since(); events != "ComputerFound" {
			t.Errorf("events %q, want ComputerFound", events)
		}
	})
}
