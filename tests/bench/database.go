package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// databaseDir, if set, is a directory with filled databases, which are reused by the next run.
const databaseDir = "BENCH_DATABASES"

// Large reports whether benchmarks with ten million events are requested.
func Large() bool { return os.Getenv("BENCH_LARGE") == "1" }

var databases struct {
	sync.Mutex
	temporary string
}

// Filled returns a data directory with a workspace of a number of events. It fills the directory once in a run, or reuses one
// of an earlier run.
func Filled(b testing.TB, events int) string {
	databases.Lock()
	defer databases.Unlock()
	root := os.Getenv(databaseDir)
	if root == "" {
		if databases.temporary == "" {
			made, err := os.MkdirTemp("", "atelier-bench-")
			if err != nil {
				b.Fatal(err)
			}
			databases.temporary = made
		}
		root = databases.temporary
	}
	dir := filepath.Join(root, fmt.Sprint("events-", events))
	if _, err := os.Stat(filepath.Join(dir, "filled")); err == nil {
		return dir
	}
	if err := fill(dir, events); err != nil {
		b.Fatal(err)
	}
	return dir
}

func removeDatabases() {
	if databases.temporary != "" {
		os.RemoveAll(databases.temporary)
	}
}

// fill records events through the workspace's actor, a thousand with each command.
func fill(dir string, events int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	m, err := StartMember(dir)
	if err != nil {
		return err
	}
	source := NewOperations(1, max(events/20, 500), false)
	batches := make(chan []*activityv1.Operation, 4)
	var failed error
	var once sync.Once
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for batch := range batches {
				if err := m.Record(batch...); err != nil {
					once.Do(func() { failed = err })
				}
			}
		})
	}
	for left := events; left > 0; left -= 1000 {
		batches <- source.Take(min(left, 1000))
	}
	close(batches)
	writers.Wait()
	if err := m.Stop(); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return os.WriteFile(filepath.Join(dir, "filled"), []byte(m.Workspace), 0o600)
}
