// Package place bounds how many heavy tests run at the same time on a machine, over all packages and whatever the flag -p of go test
// is: at most as many as it has processors. A heavy test starts a browser, an engine of containers, agents of others, several
// nodes or an attack. It takes a place before it starts them.
//
// A place is a lock of a file, so that the kernel gives back the places of a process that is killed.
package place

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A holding is the place of a top-level test and its subtests.
type holding struct {
	wait    sync.Once
	release func()
	err     error
	count   int // of the calls of Take by tests that have not ended
}

var (
	mu       sync.Mutex
	holdings = map[string]*holding{} // by the names of top-level tests
)

// Take waits for a place, which the test has until it ends. Subtests share the place of their top-level test.
func Take(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	mu.Lock()
	h := holdings[name]
	if h == nil {
		h = &holding{release: func() {}}
		holdings[name] = h
	}
	h.count++
	mu.Unlock()
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if h.count--; h.count == 0 {
			delete(holdings, name)
			h.release()
		}
	})
	h.wait.Do(func() {
		if release, err := take(folder(), runtime.NumCPU()); err != nil {
			h.err = err
		} else {
			h.release = release
		}
	})
	if h.err != nil {
		t.Fatal(h.err)
	}
}

// folder returns the folder of the locks, which all runs of the user's tests share. It is not below TMPDIR, because each run of the
// tests has a TMPDIR of its own.
func folder() string { return fmt.Sprintf("/tmp/atelier-places-%d", os.Getuid()) }

// take locks one of count files of a folder and returns a function that releases it. It waits for all of them at the same time, and
// releases the further locks that it gets after the first at once.
func take(folder string, count int) (release func(), err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	type lock struct {
		file *os.File
		err  error
	}
	locks := make(chan lock)
	done := make(chan struct{})
	for n := range count {
		go func() {
			f, err := os.OpenFile(filepath.Join(folder, fmt.Sprint(n)), os.O_CREATE|os.O_RDWR, 0o600)
			if err == nil {
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			}
			select {
			case locks <- lock{f, err}:
			case <-done:
				f.Close()
			}
		}()
	}
	first := <-locks
	close(done)
	if first.err != nil {
		return nil, fmt.Errorf("wait for a place: %w", first.err)
	}
	return func() { first.file.Close() }, nil
}
