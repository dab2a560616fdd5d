package observe

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestMain runs the tests, or in a child process of TestRandomOperations random operations.
func TestMain(m *testing.M) {
	if seed := os.Getenv("OBSERVE_RANDOM"); seed != "" {
		_, _ = io.ReadAll(os.Stdin) // until the process is attributed
		n, _ := strconv.ParseUint(seed, 10, 64)
		count, _ := strconv.Atoi(os.Getenv("OBSERVE_COUNT"))
		changeAtRandom(rand.New(rand.NewPCG(n, 0)), count, os.Getenv("OBSERVE_OUTSIDE"))
		return
	}
	os.Exit(m.Run())
}

// changeAtRandom makes random changes in the working directory. Operations on entries that do not exist fail, which is fine.
func changeAtRandom(r *rand.Rand, count int, outside string) {
	name := func() string {
		depth := r.IntN(3)
		parts := make([]string, depth+1)
		for i := range depth {
			parts[i] = fmt.Sprintf("d%d", r.IntN(3))
		}
		parts[depth] = fmt.Sprintf("f%d", r.IntN(4))
		return filepath.Join(parts...)
	}
	folder := func() string {
		parts := make([]string, 1+r.IntN(2))
		for i := range parts {
			parts[i] = fmt.Sprintf("d%d", r.IntN(3))
		}
		return filepath.Join(parts...)
	}
	for range count {
		switch r.IntN(12) {
		case 0, 1, 2:
			_ = os.WriteFile(name(), []byte("content"), 0o644)
		case 3:
			_ = os.Remove(name())
		case 4, 5:
			_ = os.Mkdir(folder(), 0o755)
		case 6:
			_ = os.Rename(folder(), folder())
		case 7:
			_ = os.Rename(name(), name())
		case 8:
			_ = os.RemoveAll(folder())
		case 9:
			temporary := name() + ".tmp"
			_ = os.WriteFile(temporary, []byte("content"), 0o644)
			_ = os.Rename(temporary, name())
		case 10:
			_ = os.Link(name(), name())
		case 11:
			_ = os.Rename(name(), filepath.Join(outside, "x"))
			_ = os.Rename(filepath.Join(outside, "x"), name())
		}
	}
}

// random starts a child with random operations.
func (n *node) random(author *activityv1.Author, seed uint64, count int) (end func()) {
	n.t.Helper()
	w, err := n.observer.Begin(n.t.Context(), workspace, author)
	if err != nil {
		n.t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Dir = n.files
	command.Env = append(os.Environ(), fmt.Sprintf("OBSERVE_RANDOM=%d", seed), fmt.Sprintf("OBSERVE_COUNT=%d", count),
		"OBSERVE_OUTSIDE="+n.t.TempDir())
	in, err := command.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	if err := w.Attribute(command.Process.Pid); err != nil {
		n.t.Fatal(err)
	}
	_ = in.Close()
	return func() {
		if err := command.Wait(); err != nil {
			n.t.Error(err)
		}
		if err := w.End(n.t.Context()); err != nil {
			n.t.Error(err)
		}
	}
}

// TestRandomOperations verifies that the sequence agrees with the disk, after random operations of a process.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNode(t, Options{})
			n.random(session, seed, 300)()
			n.expectSameTree()
			for _, row := range n.rows() {
				if !strings.HasPrefix(row, "session:ses_1 ") {
					t.Errorf("row %q has another author", row)
				}
			}
		})
	}
}
