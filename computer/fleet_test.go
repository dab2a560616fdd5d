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

// world is a computer's entity, a driver and an archive, which outlive fleets. Its tasks run one at a time, when run is
// called.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	state   *computerv1.Computer
	present *computerv1.Present
	told    []string
	fleet   *computer.Fleet
	// running tells that the workspace is in use.
	running bool

	// fail is asked before each thing that the driver or the archive does.
	fail func(what string) error
	did  []string
	// asked counts the samples that entities were asked to record, past those that were put.
	asked, past int
}

func (w *world) put(_ context.Context, id string, row entity.Row) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "ws_1" || row.List != entitycomputer.Telemetry {
		return errors.New("no row of a sample")
	}
	w.past++
	return nil
}

func (w *world) samples(asked, past int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked != asked || w.past != past {
		w.t.Errorf("%d samples asked of the entity and %d past it, want %d and %d", w.asked, w.past, asked, past)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, state: entitycomputer.Zero("ws_1"), fail: func(string) error { return nil }}
	w.fleet = computer.New(computer.Options{Driver: w, Archive: w, Asker: w, Log: slog.New(slog.DiscardHandler), Put: w.put})
	return w
}

// Running, Present and Find are of computer.Share.
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

// Ask carries a command out by the rules.
func (w *world) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := entity.Call{Now: time.Now(), Identity: c.Identity, Principal: c.Principal, Version: uint64(len(w.told) + 1)}
	command := c.Message.(computerv1.Command)
	if _, is := command.(*computerv1.RecordSample); is {
		w.asked++
	}
	before := w.state
	events, err := entitycomputer.Decide(call, before, command)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		w.state = entitycomputer.Evolve(w.state, e)
		w.told = append(w.told, string(e.ProtoReflect().Descriptor().Name()))
	}
	for _, row := range entitycomputer.Rows(call, before, w.state, command, events) {
		if row.List == entitycomputer.PresentList {
			w.present, _ = row.Message.(*computerv1.Present)
		}
	}
	return entitycomputer.Reply(call, w.state, command, events), nil
}

// run runs the open tasks once each and reports what came of them, until none is open; it returns those that are to be
// tried again.
func (w *world) run(attempt int) (again []error) {
	for {
		w.mu.Lock()
		open := entitycomputer.Tasks(w.state)
		w.mu.Unlock()
		if len(open) == 0 {
			return again
		}
		for _, task := range open {
			report, err := w.fleet.Run(w.t.Context(), "ws_1", task.Message.(*computerv1.Work), attempt)
			if err != nil {
				again = append(again, fmt.Errorf("%s: %w", task.Kind, err))
				continue
			}
			w.ask(report.(computerv1.Command))
		}
		if len(again) > 0 {
			return again
		}
	}
}

func (w *world) do(what string) error {
	w.mu.Lock()
	fail := w.fail
	w.mu.Unlock()
	err := fail(what)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		what += "!"
	}
	w.did = append(w.did, what)
	return err
}

func (w *world) Provision(_ context.Context, id, vmName string) (computer.Machine, error) {
	return computer.Machine{VMName: vmName, ImageRef: "fake"}, w.do("provision " + id)
}

func (w *world) Release(_ context.Context, id string) error { return w.do("release " + id) }

func (w *world) Sample(_ context.Context, id string) (*computerv1.Sample, error) {
	return &computerv1.Sample{CpuPct: 1}, w.do("sample " + id)
}

func (w *world) Save(_ context.Context, id, backupID string) (*computerv1.Backup, error) {
	return &computerv1.Backup{Id: backupID}, w.do("save " + id)
}

func (w *world) Load(_ context.Context, id, _ string, b *computerv1.Backup) error {
	return w.do("load " + id + " " + b.GetId())
}

func (w *world) Remove(_ context.Context, id string, b *computerv1.Backup) error {
	return w.do("remove " + id + " " + b.GetId())
}

func (w *world) failing(fail func(what string) error) {
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

// since is what was done and told since the last look.
func (w *world) since() (did, told string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	did, told = strings.Join(w.did, ", "), strings.Join(w.told, ", ")
	w.did, w.told = nil, nil
	return did, told
}

func (w *world) expect(did, told string) {
	w.t.Helper()
	if d, e := w.since(); d != did || e != told {
		w.t.Errorf("did %q and told %q, want %q and %q", d, e, did, told)
	}
}

func (w *world) status() computerv1.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.GetStatus()
}

// settled is a world with one computer.
func settled(t *testing.T) *world {
	w := newWorld(t)
	w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
	w.done(1)
	w.expect("provision ws_1", "TaskRequested, ComputerProvisioned")
	return w
}

// done runs the open tasks, all of which end.
func (w *world) done(attempt int) {
	w.t.Helper()
	if again := w.run(attempt); len(again) > 0 {
		w.t.Errorf("to be tried again: %v", again)
	}
}

var errLater = errors.New("not now")

func TestRun(t *testing.T) {
	failing := func(w *world, prefix string, err error) {
		w.failing(func(what string) error {
			if strings.HasPrefix(what, prefix) {
				return err
			}
			return nil
		})
	}
	t.Run("what may succeed later is tried again", func(t *testing.T) {
		w := newWorld(t)
		failing(w, "provision", errLater)
		w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
		if again := w.run(1000); len(again) != 1 || !errors.Is(again[0], errLater) {
			t.Errorf("to be tried again: %v", again)
		}
		failing(w, "provision", nil)
		w.done(1001)
		w.expect("provision ws_1!, provision ws_1", "TaskRequested, ComputerProvisioned")
		if w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("the computer is %v", w.status())
		}
	})
	t.Run("what cannot succeed is reported as failed", func(t *testing.T) {
		w := settled(t)
		failing(w, "save", entity.Errorf("insufficient_storage", "no space is left"))
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		w.done(1)
		w.expect("save ws_1!", "TaskRequested, TaskFailed")
	})
	t.Run("a backup is given up after many attempts", func(t *testing.T) {
		w := settled(t)
		failing(w, "save", errLater)
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		if again := w.run(19); len(again) != 1 {
			t.Errorf("to be tried again: %v", again)
		}
		w.done(20)
		w.expect("save ws_1!, save ws_1!", "TaskRequested, TaskFailed")
	})
	t.Run("a replacement follows its backup, which can be restored", func(t *testing.T) {
		w := settled(t)
		w.ask(&computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bkp_1", DriveReadable: true})
		w.done(1)
		w.expect("save ws_1, provision ws_1", "TaskRequested, BackupTaken, TaskRequested, ComputerProvisioned")
		w.ask(&computerv1.Restore{TaskId: "tsk_3", BackupId: "bkp_1"})
		w.done(1)
		w.expect("load ws_1 bkp_1", "TaskRequested, BackupRestored")
	})
	t.Run("a backup that comes too late is deleted", func(t *testing.T) {
		w := settled(t)
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		late := entitycomputer.Tasks(w.state)[0].Message.(*computerv1.Work)
		report, err := w.fleet.Run(t.Context(), "ws_1", late, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.ask(&computerv1.RetireComputer{TaskId: "tsk_3"})
		w.ask(report.(computerv1.Command))
		failing(w, "remove", errLater)
		if again := w.run(1); len(again) != 1 || !errors.Is(again[0], errLater) {
			t.Errorf("to be tried again: %v", again)
		}
		failing(w, "remove", nil)
		w.done(2)
		w.expect("save ws_1, release ws_1, remove ws_1 bkp_1!, remove ws_1 bkp_1",
			"TaskRequested, TaskRequested, BackupDropped, ComputerRetired, BackupRemoved")
	})
	t.Run("the oldest backups are deleted, also by a process that did not drop them", func(t *testing.T) {
		w := settled(t)
		for i := range entitycomputer.MaxBackups + 2 {
			w.ask(&computerv1.BackUp{TaskId: fmt.Sprint("tsk_b", i), BackupId: fmt.Sprintf("bkp_%03d", i)})
			w.ask(&computerv1.ReportBackedUp{TaskId: fmt.Sprint("tsk_b", i), Backup: &computerv1.Backup{CreatedAt: int64(i + 1)}})
		}
		w.since()
		if open := len(entitycomputer.Tasks(w.state)); open != 2 {
			t.Fatalf("%d backups are to be deleted", open)
		}
		failing(w, "remove ws_1 bkp_000", entity.Errorf(entity.Forbidden, "the bucket retains it"))
		w.done(1)
		w.expect("remove ws_1 bkp_000!, remove ws_1 bkp_001", "BackupRemoved, BackupRemoved")
	})
}

func TestLostAndFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		w.running = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(14 * time.Second)
		synctest.Wait()
		w.since() // the first turn samples running computers, the first idle turn all
		w.samples(0, 1)
		tick := func(did, told string) {
			t.Helper()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			w.expect(did, told)
		}
		tick("sample ws_1", "")
		w.samples(0, 2)
		w.failing(func(string) error { return errLater })
		tick("sample ws_1!", "ComputerMissed")
		tick("sample ws_1!", "ComputerLost")
		tick("sample ws_1!", "")
		w.failing(func(string) error { return nil })
		tick("sample ws_1", "ComputerFound")
		w.samples(1, 2)
		tick("sample ws_1", "")
		w.samples(1, 3)
	})
}

// A computer that could not be looked at, since the process had no file descriptor left, is not missing.
func TestNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		w.failing(func(string) error { return entity.Errorf(entity.Unavailable, "too many files are open") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if did, told := w.since(); !strings.Contains(did, "sample") || told != "" {
			t.Errorf("did %q, told %q", did, told)
		}
		if w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("it is %v", w.status())
		}
	})
}

// Nothing is written for a computer that nobody uses, and it is checked seldom; what changed its entity is told.
func TestIdleComputers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.fleet.Follow(ctx, w)
		time.Sleep(time.Hour)
		synctest.Wait()
		did, told := w.since()
		if checks := strings.Count(did, "sample"); checks < 5 || checks > 7 || told != "" {
			t.Errorf("%d checks in an hour; told %q", checks, told)
		}
		w.samples(0, 0)
		w.failing(func(string) error { return errLater })
		time.Sleep(21 * time.Minute)
		synctest.Wait()
		if _, told := w.since(); told != "ComputerMissed, ComputerLost" {
			t.Errorf("told %q", told)
		}
		w.failing(func(string) error { return nil })
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if _, told := w.since(); told != "ComputerFound" {
			t.Errorf("told %q", told)
		}
	})
}
