package cgroup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// limit bounds each wait of a test.
const limit = 3 * time.Minute

// openRoot returns a node's group of this machine, and removes it and its remaining groups after the test.
func openRoot(t *testing.T) *Root {
	t.Helper()
	if os.Getuid() != 0 {
		testmachine.Lacks(t, "control groups need root")
	}
	r, err := Open(fmt.Sprintf("atelier-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	if err != nil {
		testmachine.Lacks(t, err.Error())
	}
	t.Cleanup(func() { clear(t, r) })
	return r
}

func clear(t *testing.T, r *Root) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	names, err := r.Leftovers()
	for _, name := range names {
		err = errors.Join(err, r.RemoveLeftover(ctx, name))
	}
	if err = errors.Join(err, r.Remove(ctx)); err != nil {
		t.Error(err)
	}
}

func create(t *testing.T, r *Root, l Limits) *Group {
	t.Helper()
	g, err := r.New("c1", l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A member is a shell in a group.
type member struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a shell that runs a script after it has joined a group.
func start(t *testing.T, g *Group, script string) member {
	t.Helper()
	m := member{Cmd: exec.Command("/bin/sh", "-c", "read _; "+script)}
	m.in, _ = m.StdinPipe()
	out, err := m.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = bufio.NewReader(out)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Process.Kill()
		_ = m.Wait()
	})
	if err := g.Join(m.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(m.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	return m
}

// line reads one line of a member's output.
func (m member) line(t *testing.T) string {
	t.Helper()
	line, err := m.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func kill(t *testing.T, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryLimit(t *testing.T) {
	g := create(t, openRoot(t), Limits{MemoryBytes: 1 << 30})
	limited, err := g.Child("app:1", Limits{MemoryBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	free, err := g.Child("app:2", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	const greedy = "head -c 67108864 /dev/zero | tail | wc -c"
	if got := start(t, free, greedy).line(t); got != "67108864" {
		t.Errorf("without a limit: %q", got)
	}
	if got := start(t, limited, greedy).line(t); got != "0" {
		t.Errorf("with a limit: %q", got)
	}
	for _, test := range []struct {
		*Group
		ended bool
	}{{limited, true}, {free, false}, {g, true}} {
		if n, err := test.OutOfMemory(); err != nil || (n > 0) != test.ended {
			t.Errorf("%s: %d processes ended, %v", test.path, n, err)
		}
	}
}

// TestMemoryLimitOfParent verifies that the limit of a computer holds for its process groups together.
func TestMemoryLimitOfParent(t *testing.T) {
	g := create(t, openRoot(t), Limits{MemoryBytes: 32 << 20})
	child, err := g.Child("app:1", Limits{MemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if got := start(t, child, "head -c 67108864 /dev/zero | tail | wc -c").line(t); got != "0" {
		t.Errorf("got %q", got)
	}
	if n, err := child.OutOfMemory(); err != nil || n == 0 {
		t.Errorf("%d ended, %v", n, err)
	}
}

func TestProcessLimit(t *testing.T) {
	r := openRoot(t)
	g := create(t, r, Limits{Processes: 8})
	m := start(t, g, "i=0; while [ $i -lt 20 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done; echo all")
	if line, err := m.out.ReadString('\n'); err == nil {
		t.Errorf("20 processes were started: %q", line)
	}
	if err := m.Wait(); err == nil {
		t.Error("the shell has not failed")
	}
	if u, err := g.Usage(); err != nil || u.Processes != 7 {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestProcessorLimit compares the processor time and the time that a computation takes.
func TestProcessorLimit(t *testing.T) {
	g := create(t, openRoot(t), Limits{Processors: 0.2})
	child, err := g.Child("app:1", Limits{Processors: 1}) // more than the parent's
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	start(t, child, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done").line(t)
	took := time.Since(began)
	u, err := g.Usage()
	if err != nil || u.Processor == 0 {
		t.Fatalf("%+v, %v", u, err)
	}
	// In the first period the quota is used at once.
	if least := 3 * (u.Processor - 40*time.Millisecond); took < least {
		t.Errorf("%v of processor time took %v, want at least %v", u.Processor, took, least)
	}
	t.Logf("%v of processor time took %v", u.Processor, took)
}

func TestFreeze(t *testing.T) {
	r := openRoot(t)
	g := create(t, r, Limits{})
	other, err := r.New("c2", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := g.Child("app:1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	const echo = "while read x; do echo $x; done"
	m, running := start(t, child, echo), start(t, other, echo)
	answer := make(chan string, 1)
	for _, frozen := range []*Group{g, child} {
		if err := frozen.Freeze(true); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(m.in, "hello\n"); err != nil {
			t.Fatal(err)
		}
		go func() { line, _ := m.out.ReadString('\n'); answer <- line }()
		for range 10 {
			if _, err := io.WriteString(running.in, "later\n"); err != nil {
				t.Fatal(err)
			}
			if line := running.line(t); line != "later" {
				t.Fatalf("the other process answered %q", line)
			}
		}
		select {
		case line := <-answer:
			t.Fatalf("the suspended process answered %q", line)
		default: // although a process has answered ten lines that it got later
		}
		if err := frozen.Freeze(false); err != nil {
			t.Fatal(err)
		}
		if line := <-answer; line != "hello\n" {
			t.Fatalf("the resumed process answered %q", line)
		}
	}
}

func TestKill(t *testing.T) {
	const bomb = "bomb() { bomb | bomb & }; bomb; echo started; sleep 1000"
	for _, test := range []struct {
		name, script string
		// processes is the number of processes to wait for.
		processes int
		frozen    bool
	}{
		{"fork_bomb", bomb, 190, false},
		{"suspended", "echo started; sleep 1000", 1, true},
		{"ignored_signals", "trap '' TERM HUP INT; echo started; sleep 1000", 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := openRoot(t)
			g := create(t, r, Limits{Processes: 200})
			child, err := g.Child("app:1", Limits{})
			if err != nil {
				t.Fatal(err)
			}
			m := start(t, child, test.script)
			m.line(t)
			for u, _ := g.Usage(); u.Processes < test.processes; u, _ = g.Usage() {
				if !retry.Pause(t.Context(), time.Millisecond) {
					t.Fatal(t.Context().Err())
				}
			}
			if test.frozen {
				if err := errors.Join(child.Freeze(true), g.Freeze(true)); err != nil {
					t.Fatal(err)
				}
			}
			kill(t, g)
			if left, err := g.list(); err != nil || len(left) > 0 {
				t.Errorf("processes %v are left, %v", left, err)
			}
			if err := m.Wait(); err == nil {
				t.Error("the shell has not been killed")
			}
			if err := g.Join(os.Getpid()); err == nil {
				t.Error("a process joined a killed group")
			}
			if err := g.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, dir := range r.dirs(g.path) {
				if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", dir, err)
				}
			}
			if _, err := g.Usage(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Usage after Remove: %v", err)
			}
			if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestKillChild verifies that the other groups of a computer keep their processes.
func TestKillChild(t *testing.T) {
	g := create(t, openRoot(t), Limits{})
	var members []member
	var groups []*Group
	for _, name := range []string{"session:1", "session:2"} {
		child, err := g.Child(name, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, child)
		members = append(members, start(t, child, "while read x; do echo $x; done"))
	}
	own := start(t, g, "while read x; do echo $x; done") // in the computer's group itself
	kill(t, groups[0])
	for _, m := range []member{members[1], own} {
		if _, err := io.WriteString(m.in, "hello\n"); err != nil || m.line(t) != "hello" {
			t.Errorf("a process of another group does not answer: %v", err)
		}
	}
	if _, err := g.Child("session:2", Limits{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same name again: %v", err)
	}
	if err := groups[0].Remove(t.Context()); err != nil {
		t.Error(err)
	}
	expired, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Remove(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("removing a group with processes: %v", err)
	}
}

func TestLeftovers(t *testing.T) {
	r := openRoot(t)
	g := create(t, r, Limits{})
	child, err := g.Child("app:1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m := start(t, child, "echo started; sleep 1000")
	m.line(t)
	if !r.unified { // a process that was interrupted while it created a group
		if err := os.Mkdir(filepath.Join(r.dir(pids, r.parent), "half"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Remove(t.Context()); err == nil {
		t.Error("a node's group with groups was removed")
	}
	next, err := Open(r.parent)
	if err != nil {
		t.Fatal(err)
	}
	names, err := next.Leftovers()
	if want := map[bool]string{true: "[c1]", false: "[c1 half]"}[r.unified]; err != nil || fmt.Sprint(names) != want {
		t.Fatalf("leftovers %v, %v, want %s", names, err, want)
	}
	for _, name := range names {
		if err := next.RemoveLeftover(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if err := m.Wait(); err == nil {
		t.Error("the process has not been killed")
	}
	if names, err := next.Leftovers(); err != nil || len(names) > 0 {
		t.Errorf("leftovers %v, %v", names, err)
	}
}

func TestJoinEndedProcess(t *testing.T) {
	g := create(t, openRoot(t), Limits{})
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(ended.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("got %v", err)
	}
}

// TestInvalidLimit verifies that a group that cannot be limited is not left.
func TestInvalidLimit(t *testing.T) {
	r := openRoot(t)
	if _, err := r.New("c1", Limits{Processes: 1 << 40}); err == nil {
		t.Error("an invalid limit was accepted")
	}
	if names, err := r.Leftovers(); err != nil || len(names) > 0 {
		t.Errorf("leftovers %v, %v", names, err)
	}
}

func TestInvalidNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../a", "_own", "a b", "a\nb", "ä", "a\x00", strings.Repeat("a", 201)} {
		if err := validateName(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	for _, name := range []string{"a", "session:01j", "node-1.example", strings.Repeat("a", 200)} {
		if err := validateName(name); err != nil {
			t.Error(err)
		}
	}
}

// TestEntrances has a process join a group by itself. Its descendants are in the group too, and no process joins after Kill.
func TestEntrances(t *testing.T) {
	r := openRoot(t)
	g := create(t, r, Limits{})
	entrances, err := g.Entrances()
	if err != nil {
		t.Fatal(err)
	}
	if r.unified != (len(entrances) == 0) {
		t.Fatalf("%d entrances", len(entrances))
	}
	if !r.unified {
		command := exec.Command("/bin/sh", "-c", `for fd in 3 4 5 6 7; do [ ! -e /proc/self/fd/$fd ] || echo 0 >&$fd; done; cat; exit`)
		command.ExtraFiles = entrances
		in, err1 := command.StdinPipe()
		stdout, err2 := command.StdoutPipe()
		if err := cmp.Or(err1, err2, command.Start()); err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		for _, file := range entrances {
			_ = file.Close()
		}
		out := make([]byte, 1)
		if _, err := io.WriteString(in, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(stdout, out); err != nil { // it has joined
			t.Fatal(err)
		}
		if all, err := g.Processes(); err != nil || len(all) != 2 {
			t.Errorf("the shell and cat: %v, %v", all, err)
		}
		for _, dir := range r.dirs(g.path) {
			if all, err := listProcesses(dir); err != nil || !slices.Contains(all, command.Process.Pid) {
				t.Errorf("%s has %v, %v", dir, all, err)
			}
		}
		defer func() { _ = command.Wait() }()
	}
	kill(t, g)
	if _, err := g.Entrances(); err == nil {
		t.Error("a killed group has entrances")
	}
}
