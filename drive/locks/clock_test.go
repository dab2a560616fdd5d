package locks_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive/locks"
)

const year = 365 * 24 * time.Hour

// A machine has a wall clock that a test sets, and a monotonic clock that begins anew with each process.
type machine struct {
	*testing.T
	memory
	wall    time.Time
	passed  time.Duration
	process string
	table   *locks.Table
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, wall: time.UnixMilli(1_800_000_000_000)}
	m.restart()
	return m
}

// restart begins another process. The monotonic clock of the new process has other readings.
func (m *machine) restart() {
	m.Helper()
	m.process += "p"
	m.passed = time.Duration(len(m.process)) * time.Minute
	m.load()
}

// load reads the locks again, as after the drive was closed.
func (m *machine) load() {
	m.Helper()
	table, err := locks.LoadAt(m, slog.New(slog.DiscardHandler), m.process, func() (time.Time, time.Duration) { return m.wall, m.passed })
	if err != nil {
		m.Fatal(err)
	}
	m.table = table
}

func (m *machine) pass(by time.Duration) { m.wall, m.passed = m.wall.Add(by), m.passed+by }

func (m *machine) step(by time.Duration) { m.wall = m.wall.Add(by) }

// expect checks that the path is locked for a time from now, and not any more afterwards.
func (m *machine) expect(left time.Duration) {
	m.Helper()
	covering := m.table.Covering("a")
	if len(covering) != 1 || m.table.Remaining(covering[0]) != left {
		m.Fatalf("%d locks, want one that ends in %v", len(covering), left)
	}
	m.pass(left - time.Millisecond)
	if len(m.table.Covering("a")) != 1 {
		m.Errorf("the lock has ended a moment before %v", left)
	}
	m.pass(time.Millisecond)
	if len(m.table.Covering("a")) != 0 || m.table.CheckFree(&locks.Lock{Path: "a"}) != nil {
		m.Errorf("the lock has not ended after %v", left)
	}
}

// TestClockSteps sets the wall clock while a lock lasts: within a process, while the drive is closed, and between two processes.
func TestClockSteps(t *testing.T) {
	const timeout = 10 * time.Minute
	for name, test := range map[string]struct {
		steps func(*machine)
		left  time.Duration
	}{
		"none":                    {func(*machine) {}, timeout},
		"ahead":                   {func(m *machine) { m.step(year) }, timeout},
		"back":                    {func(m *machine) { m.step(-year) }, timeout},
		"ahead and back":          {func(m *machine) { m.step(year); m.pass(time.Minute); m.step(-year) }, timeout - time.Minute},
		"ahead, and loaded again": {func(m *machine) { m.step(year); m.pass(time.Minute); m.load() }, timeout - time.Minute},
		"back, and loaded again":  {func(m *machine) { m.step(-year); m.pass(time.Minute); m.load() }, timeout - time.Minute},
		"a restart":               {func(m *machine) { m.pass(time.Minute); m.restart() }, timeout - time.Minute},
		"a restart after the clock was ahead": {func(m *machine) {
			m.pass(time.Minute)
			m.step(-year)
			m.restart()
		}, timeout},
		"two restarts after the clock was ahead": {func(m *machine) {
			m.step(-year)
			m.restart()
			m.pass(time.Minute)
			if _, err := m.table.Acquire(locks.Lock{Path: "b", Creator: "usr_1"}, time.Hour); err != nil { // the file is written anew
				m.Fatal(err)
			}
			m.restart()
		}, timeout - time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if _, err := m.table.Acquire(locks.Lock{Path: "a", Creator: "usr_1"}, timeout); err != nil {
				t.Fatal(err)
			}
			test.steps(m)
			m.expect(test.left)
		})
	}
}

// TestRefreshAfterTheClockWasAhead refreshes a lock while the clock is ahead. The lock lasts as long as the refresh has asked for.
func TestRefreshAfterTheClockWasAhead(t *testing.T) {
	m := newMachine(t)
	held, err := m.table.Acquire(locks.Lock{Path: "a", Creator: "usr_1"}, locks.MaxTimeout)
	if err != nil {
		t.Fatal(err)
	}
	m.step(year)
	if _, err := m.table.Refresh(held.Token, "a", "usr_1", time.Minute); err != nil {
		t.Fatal(err)
	}
	m.step(-year)
	m.restart()
	m.expect(time.Minute)
}

// TestLocksEndIfTheClockWasBehind restarts the node with a clock that is right, after the clock was a year behind.
func TestLocksEndIfTheClockWasBehind(t *testing.T) {
	m := newMachine(t)
	if _, err := m.table.Acquire(locks.Lock{Path: "a", Creator: "usr_1"}, locks.MaxTimeout); err != nil {
		t.Fatal(err)
	}
	m.step(year)
	m.restart()
	if len(m.table.Covering("a")) != 0 {
		t.Error("a lock of a year ago has not ended")
	}
}

// TestLocksOfEarlierPrograms loads a lock that was stored without its timeout.
func TestLocksOfEarlierPrograms(t *testing.T) {
	m := newMachine(t)
	m.content = []byte(`[{"token":"urn:uuid:00000000-0000-4000-8000-000000000000","path":"a","creator":"usr_1","expires":1800000060000}]` + "\n")
	m.load()
	m.expect(time.Minute)
	m.step(-year)
	m.restart()
	m.expect(locks.MaxTimeout)
}
