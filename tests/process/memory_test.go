package process

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/limit/machine"
	"github.com/atelier-run/atelier/persistence"
)

// journalRole makes the test binary fill and read a journal in the directory that the variable names, instead of running tests.
const journalRole = "ATELIER_TEST_JOURNAL"

const journalCache = 64 << 20

// TestJournalMemory holds the peak memory of a process that fills the journal's cache several times over. In a static build the
// cache lies in the Go heap: with GOGC=400 and this cache the peak was above 400 MB.
func TestJournalMemory(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), journalRole+"="+t.TempDir(), "GOGC=") // a GOGC that is set would replace the adaptation
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	peak, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak: %d MiB with a cache of %d MiB", peak>>10, journalCache>>20)
	if peak > (journalCache+200<<20)>>10 {
		t.Errorf("peak: %d MiB with a cache of %d MiB", peak>>10, journalCache>>20)
	}
}

// exerciseJournal writes four times as much as the cache holds, reads all of it twice, and prints the process's peak in KiB.
func exerciseJournal(dir string) error {
	machine.TuneMemory()
	s, err := persistence.Open(persistence.Options{Dir: dir, CacheBytes: journalCache, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	epoch, err := s.Move(context.Background(), 0, persistence.DefaultMember)
	if err != nil {
		return err
	}
	const stream = persistence.Stream("user/usr_1")
	random := rand.NewChaCha8([32]byte{}) // bytes that cannot be compressed
	done := make(chan persistence.Result)
	for version := uint64(0); version < 4*journalCache/(256<<10); version++ {
		payload := make([]byte, 256<<10)
		_, _ = random.Read(payload)
		s.Append(persistence.Proposal{Stream: stream, Expected: version, Epoch: epoch, Events: []persistence.Event{{Name: "test", Payload: payload}}},
			func(r persistence.Result) { done <- r })
		if r := <-done; r.Err != nil {
			return r.Err
		}
	}
	for range 2 {
		view, err := s.View()
		if err != nil {
			return err
		}
		for _, err := range view.Read(0, stream, 1, persistence.Ascending) {
			if err != nil {
				return err
			}
		}
		if err := view.Close(); err != nil {
			return err
		}
	}
	peak, err := peakMemory(os.Getpid())
	fmt.Println(peak)
	return err
}

// peakMemory returns the most memory that a process has had, in KiB.
func peakMemory(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	number, _, _ := strings.Cut(rest, "kB")
	return strconv.Atoi(strings.TrimSpace(number))
}
