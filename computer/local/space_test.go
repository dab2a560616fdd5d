package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

func (d *drives) setCheck(check func(suspend func(bool)) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.check = check
}

func (d *drives) setFull(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

// TestFullDriveEndsProcesses verifies that processes end with a reason when the drive is full, also suspended ones, and that
// none is started until there is space again.
func TestFullDriveEndsProcesses(t *testing.T) {
	d, files := openHost(t, nil)
	c := provision(t, d, files, "ws_1")
	first := c.start(t, "echo ready; exec sleep 1000")
	second := c.start(t, "trap '' TERM; setsid sleep 1000 & echo ready; wait")
	first.expect(t, "ready")
	second.expect(t, "ready")
	files.setFull(entity.Errorf(entity.InsufficientStorage, "the drive is full"))
	for _, p := range []*attack{first, second} {
		if exit := p.wait(t); exit.Reason != computer.EndedDiskFull || exit.Status != 137 {
			t.Errorf("got %+v", exit)
		}
	}
	_, err := d.Start(t.Context(), "ws_1", c.spec("true"))
	if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.LimitReached {
		t.Errorf("Start on a full drive: %v", err)
	}
	files.setFull(errors.New("the disk does not answer"))
	_, err = d.Start(t.Context(), "ws_1", c.spec("true"))
	if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.Unavailable {
		t.Errorf("Start on a drive that cannot be measured: %v", err)
	}
	files.setFull(nil)
	if got := c.run(t, "echo again"); got != "again\n" {
		t.Errorf("got %q", got)
	}
}

// TestProcessesAreSuspendedWhileSpaceIsDecided verifies that a process that never pauses is suspended when a check asks for that, goes on
// when it is admitted or the check fails, and ends when it is refused.
func TestProcessesAreSuspendedWhileSpaceIsDecided(t *testing.T) {
	d, files := openHost(t, nil)
	c := provision(t, d, files, "ws_1")
	p := c.start(t, "echo ready; while :; do :; done")
	p.expect(t, "ready")
	expectRunning := func(want bool) {
		t.Helper()
		eventually(t, func() string {
			for _, pid := range d.Processes("ws_1") {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "R") {
					return map[bool]string{false: "the process runs"}[want]
				}
			}
			return map[bool]string{true: "the process does not run"}[want]
		})
	}
	expectRunning(true)
	for _, failure := range []error{nil, errors.New("the disk does not answer"), entity.Errorf(entity.InsufficientStorage, "the drive is full")} {
		suspended, decided, checked := make(chan struct{}), make(chan struct{}), make(chan struct{})
		files.setCheck(func(suspend func(bool)) error {
			files.setCheck(nil)
			defer close(checked)
			suspend(true)
			close(suspended)
			<-decided
			if failure == nil {
				suspend(false)
			}
			return failure
		})
		<-suspended
		expectRunning(false)
		close(decided)
		<-checked
		if entity.HasCode(failure, entity.InsufficientStorage) {
			if exit := p.wait(t); exit.Reason != computer.EndedDiskFull {
				t.Errorf("got %+v", exit)
			}
			break
		}
		expectRunning(true)
	}
	if got := c.run(t, "echo again"); got != "again\n" {
		t.Errorf("got %q", got)
	}
}

// TestProcessAtItsGateIsNotSuspended verifies that a process starts, and writes nothing before, while the processes of its computer are
// suspended: Start waits for an answer of the process.
func TestProcessAtItsGateIsNotSuspended(t *testing.T) {
	d, files := openHost(t, nil)
	c := provision(t, d, files, "ws_1")
	c.start(t, "echo ready; while :; do :; done").expect(t, "ready") // spaces are checked while a process runs
	atGate, suspended, decided := make(chan struct{}), make(chan struct{}), make(chan struct{})
	files.setCheck(func(suspend func(bool)) error {
		files.setCheck(nil)
		<-atGate
		suspend(true)
		close(suspended)
		<-decided
		return nil
	})
	s := c.spec("echo started")
	s.Prepare = func(context.Context, computer.Network) error {
		close(atGate)
		<-suspended
		return nil
	}
	started := c.begin(t, s)
	close(decided)
	started.expect(t, "started")
}
