package computer_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
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

// world is computers' entities, a driver and an archive, which outlive fleets.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	state map[string]*computerv1.Computer
	rows  map[string]map[string]bool
	told  []string
	fleet *computer.Fleet

	// away has commands go unanswered.
	away error
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
	return &world{
		t: t, state: map[string]*computerv1.Computer{}, rows: map[string]map[string]bool{},
		fail: func(string) error { return nil },
	}
}

func (w *world) start() {
	w.fleet = computer.New(computer.Options{
		Driver: w, Archive: w, Asker: w, Log: slog.New(slog.DiscardHandler), Put: w.put,
		Identities: func(list string) ([]string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Sorted(maps.Keys(w.rows[list])), nil
		},
	})
	if err := w.fleet.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// Ask carries a command out by the rules, and does what the reactions of a node do.
func (w *world) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away != nil {
		return nil, w.away
	}
	before := w.state[c.Identity]
	if before == nil {
		before = entitycomputer.Zero(c.Identity)
	}
	call := entity.Call{Now: time.Now(), Identity: c.Identity, Principal: c.Principal, Version: uint64(len(w.told) + 1)}
	command := c.Message.(computerv1.Command)
	if _, is := command.(*computerv1.RecordSample); is {
		w.asked++
	}
	events, err := entitycomputer.Decide(call, before, command)
	if err != nil {
		return nil, err
	}
	after := before
	for _, e := range events {
		after = entitycomputer.Evolve(after, e)
		w.told = append(w.told, string(e.ProtoReflect().Descriptor().Name()))
		switch e.(type) {
		case *computerv1.TaskRequested:
			w.fleet.Begin(c.Identity)
		case *computerv1.ComputerProvisioned:
			w.fleet.Present(c.Identity, true)
		case *computerv1.ComputerRetired:
			w.fleet.Present(c.Identity, false)
		}
	}
	for _, row := range entitycomputer.Rows(call, before, after, command, events) {
		if w.rows[row.List] == nil {
			w.rows[row.List] = map[string]bool{}
		}
		if row.Message != nil {
			w.rows[row.List][c.Identity] = true
		} else {
			delete(w.rows[row.List], c.Identity)
		}
	}
	w.state[c.Identity] = after
	return entitycomputer.Reply(call, after, command, events), nil
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
	return w.state["ws_1"].GetStatus()
}

// settled is a world with one computer.
func settled(t *testing.T) *world {
	w := newWorld(t)
	w.start()
	w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
	synctest.Wait()
	w.expect("provision ws_1", "TaskRequested, ComputerProvisioned")
	return w
}

var errLater = errors.New("not now")

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.fleet.Close()
		w.failing(func(string) error { return errLater })
		w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		did, told := w.since()
		if tries := strings.Count(did, "provision ws_1!"); tries < 8 || tries > 40 || told != "TaskRequested" {
			t.Errorf("did %q, told %q", did, told)
		}
		w.failing(func(string) error { return nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if did, told := w.since(); !strings.HasPrefix(did, "provision ws_1") || told != "ComputerProvisioned" || w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("did %q, told %q, %v", did, told, w.status())
		}
	})
}

func TestWhatCannotSucceedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		w.failing(func(string) error { return entity.Errorf("insufficient_storage", "no space is left") })
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		synctest.Wait()
		w.expect("save ws_1!", "TaskRequested, TaskFailed")
		w.failing(func(what string) error {
			if strings.HasPrefix(what, "save") {
				return errLater
			}
			return nil
		})
		w.ask(&computerv1.BackUp{TaskId: "tsk_3", BackupId: "bkp_1"})
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if _, told := w.since(); told != "TaskRequested, TaskFailed" {
			t.Errorf("a backup is tried for ever: %q", told)
		}
	})
}

func TestBackupThenReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		w.ask(&computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bkp_1", DriveReadable: true})
		synctest.Wait()
		w.expect("save ws_1, provision ws_1", "TaskRequested, BackupTaken, TaskRequested, ComputerProvisioned")
		w.ask(&computerv1.Restore{TaskId: "tsk_3", BackupId: "bkp_1"})
		synctest.Wait()
		w.expect("load ws_1 bkp_1", "TaskRequested, BackupRestored")
	})
}

// A computer that is given up while it is backed up has no use for the backup.
func TestRetireDuringBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		saved := make(chan struct{})
		w.failing(func(what string) error {
			if strings.HasPrefix(what, "save") {
				<-saved
			}
			return nil
		})
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		synctest.Wait()
		w.ask(&computerv1.RetireComputer{TaskId: "tsk_3"})
		close(saved)
		synctest.Wait()
		w.expect("save ws_1, remove ws_1 bkp_1, release ws_1", "TaskRequested, TaskRequested, ComputerRetired")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expect("", "") // and it is checked no more
	})
}

// A bucket that is away for a while keeps nothing that is to be forgotten.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		w.failing(func(what string) error {
			if strings.HasPrefix(what, "remove") {
				return errLater
			}
			return nil
		})
		w.fleet.Forget("ws_1", []*computerv1.Backup{{Id: "bkp_1"}})
		synctest.Wait()
		w.expect("remove ws_1 bkp_1!", "")
		w.failing(func(string) error { return nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.expect("remove ws_1 bkp_1", "")
	})
}

func TestLostAndFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		tick := func(did, told string) {
			t.Helper()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			w.expect(did, told)
		}
		tick("sample ws_1", "")
		w.failing(func(string) error { return errLater })
		tick("sample ws_1!", "ComputerMissed")
		tick("sample ws_1!", "ComputerLost")
		tick("sample ws_1!", "")
		w.failing(func(string) error { return nil })
		tick("sample ws_1", "ComputerFound")
		w.samples(2, 0)
		tick("sample ws_1", "")
		tick("sample ws_1", "")
		w.samples(2, 2)
		w.failing(func(string) error { return errLater })
		tick("sample ws_1!", "ComputerMissed")
		w.failing(func(string) error { return nil })
		tick("sample ws_1", "ComputerFound")
		w.samples(3, 2)
	})
}

// A computer that could not be looked at, since the process had no file descriptor left, is not missing.
func TestNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		defer w.fleet.Close()
		w.failing(func(string) error { return entity.Errorf(entity.Unavailable, "too many files are open") })
		for range 3 {
			time.Sleep(15 * time.Second)
			synctest.Wait()
			w.expect("sample ws_1!", "")
		}
		if w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("it is %v", w.status())
		}
	})
}

// What a process left open the next one takes up, and checks what there was to check.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settled(t)
		w.failing(func(what string) error {
			if strings.HasPrefix(what, "save") {
				return errLater
			}
			return nil
		})
		w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
		synctest.Wait()
		w.fleet.Close()
		w.since()
		w.failing(func(string) error { return nil })
		w.start()
		defer w.fleet.Close()
		synctest.Wait()
		w.expect("save ws_1", "BackupTaken")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		w.expect("sample ws_1", "")
	})
}

// A report that is lost is made again, and a driver that is slow keeps nobody waiting.
func TestUnansweredReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.fleet.Close()
		w.failing(func(string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.away = errLater
			return nil
		})
		w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.fleet.Wait(waiting, "ws_1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited for what is not done: %v", err)
		}
		w.failing(func(string) error { return nil })
		w.mu.Lock()
		w.away = nil
		w.mu.Unlock()
		if err := w.fleet.Wait(t.Context(), "ws_1"); err != nil || w.status() != computerv1.Status_STATUS_ACTIVE {
			t.Errorf("%v, %v", err, w.status())
		}
	})
}
