package persistence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestLogFails breaks the log under an append, which is never acknowledged, and ends the journal but not the process.
func TestLogFails(t *testing.T) {
	for name, fault := range map[string]func(errorfs.Op) error{
		"sync":           failing(errors.New("broken"), ".log", syncs...),
		"write":          failing(errors.New("broken"), ".log", writes...),
		"write: no room": failing(syscall.ENOSPC, ".log", writes...),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, Options{})
			f.must("a", 0)
			f.inject(fault)
			if r := f.append("a", 1); !errors.Is(r.Err, ErrUnknown) {
				t.Fatalf("in flight: %+v", r)
			}
			<-f.Failed()
			if f.Err() == nil {
				t.Fatal("no cause")
			}
			f.fault.Store(nil)
			if r := f.append("a", 1); !errors.Is(r.Err, ErrClosed) {
				t.Fatalf("after: %+v", r)
			}
			if n := headOf(t, f.Store, "a"); n != 1 {
				t.Fatalf("the journal shows version %d", n)
			}
			if err := f.Checkpoint("copy"); !errors.Is(err, ErrClosed) {
				t.Fatalf("checkpoint: %v", err)
			}
			if err := f.Close(); err == nil {
				t.Fatal("closed without an error")
			}
			reopenAfter(t, f, 1, 2)
		})
	}
}

// TestQueuedWhenLogFails has a batch in flight and one behind it when the log breaks.
func TestQueuedWhenLogFails(t *testing.T) {
	f := newFaulty(t, Options{})
	f.must("a", 0)
	syncing, broken := make(chan struct{}, 100), make(chan struct{})
	isSync := failing(errors.New("broken"), ".log", syncs...)
	f.inject(func(op errorfs.Op) error {
		err := isSync(op)
		if err != nil {
			syncing <- struct{}{}
			<-broken
		}
		return err
	})
	flying := f.begin("a", 1)
	<-syncing
	queued := f.begin("a", 2)
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("a view shows version %d, which is not durable", n)
	}
	close(broken)
	if r := <-flying; !errors.Is(r.Err, ErrUnknown) {
		t.Fatalf("in flight: %+v", r)
	}
	if r := <-queued; !errors.Is(r.Err, ErrClosed) {
		t.Fatalf("queued: %+v", r)
	}
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("a view shows version %d, which was not acknowledged", n)
	}
}

// TestViewWhileSyncing asks for views while a batch is visible to Pebble and not durable.
func TestViewWhileSyncing(t *testing.T) {
	f := newFaulty(t, Options{})
	f.must("a", 0)
	syncing, goOn := make(chan struct{}, 100), make(chan struct{})
	isSync := failing(errors.New("sync"), ".log", syncs...)
	f.inject(func(op errorfs.Op) error {
		if isSync(op) != nil {
			syncing <- struct{}{}
			<-goOn
		}
		return nil
	})
	flying := f.begin("a", 1)
	<-syncing
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("version %d while it is being synced", n)
	}
	close(goOn)
	if r := <-flying; r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := headOf(t, f.Store, "a"); n != 2 {
		t.Fatalf("version %d after it is done", n)
	}
	f.finish()
}

// TestQueueIsBounded holds the disk until proposals are refused; what was accepted is written all the same.
func TestQueueIsBounded(t *testing.T) {
	for name, o := range map[string]Options{"number": {QueueProposals: 10}, "bytes": {QueueBytes: 3000}} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, o)
			syncing, goOn := make(chan struct{}, 100), make(chan struct{})
			isSync := failing(errors.New("sync"), ".log", syncs...)
			f.inject(func(op errorfs.Op) error {
				if isSync(op) != nil {
					syncing <- struct{}{}
					<-goOn
				}
				return nil
			})
			first := f.begin("first", 0)
			<-syncing
			var accepted []chan Result
			for i := 0; ; i++ {
				results := f.begin(Stream(fmt.Sprint("s", i)), 0)
				if n, _ := f.queue.depth(); n == len(accepted) {
					if r := <-results; !errors.Is(r.Err, ErrRefused) {
						t.Fatalf("got %+v", r)
					}
					break
				}
				accepted = append(accepted, results)
			}
			if len(accepted) < 5 || len(accepted) > 20 {
				t.Fatalf("%d were accepted", len(accepted))
			}
			close(goOn)
			for _, results := range append(accepted, first) {
				if r := <-results; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			f.must("later", 0)
			f.finish()
		})
	}
}

func TestTooLarge(t *testing.T) {
	f := newFaulty(t, Options{})
	results := make(chan Result, 1)
	p := Proposal{Stream: "a", Epoch: f.epoch, Events: []Event{{Payload: make([]byte, maxProposalBytes)}}}
	f.Append(p, func(r Result) { results <- r })
	if r := <-results; !errors.Is(r.Err, ErrRefused) {
		t.Fatalf("got %+v", r)
	}
	f.must("a", 0)
	f.finish()
}

func TestDiskNearlyFull(t *testing.T) {
	f := newFaulty(t, Options{MinFreeBytes: 1 << 20})
	f.diskSpace.interval = 0
	f.must("a", 0)
	f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1<<20 - 1, TotalBytes: 1 << 30})
	for range 3 {
		if r := f.append("a", 1); !errors.Is(r.Err, ErrRefused) {
			t.Fatalf("got %+v", r)
		}
	}
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("version %d", n)
	}
	f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 30})
	f.must("a", 1)
	f.finish()
}

// TestFlushFails lets Pebble try again for as long as the disk is full, and gives up on any other error that stays.
func TestFlushFails(t *testing.T) {
	t.Run("no room", func(t *testing.T) {
		f := newFaulty(t, Options{})
		f.must("a", 0)
		tried := make(chan struct{}, 1)
		full := failing(syscall.ENOSPC, ".sst", errorfs.OpCreate)
		f.inject(func(op errorfs.Op) error {
			err := full(op)
			if err != nil {
				select {
				case tried <- struct{}{}:
				default:
				}
			}
			return err
		})
		flushed, err := f.db.AsyncFlush()
		if err != nil {
			t.Fatal(err)
		}
		<-tried
		<-tried
		f.must("a", 1)
		f.fault.Store(nil)
		<-flushed
		f.must("a", 2)
		f.finish()
	})
	t.Run("broken", func(t *testing.T) {
		f := newFaulty(t, Options{})
		f.must("a", 0)
		f.inject(failing(errors.New("broken"), ".sst", errorfs.OpCreate))
		if _, err := f.db.AsyncFlush(); err != nil {
			t.Fatal(err)
		}
		<-f.Failed()
		f.fault.Store(nil)
		reopenAfter(t, f, 1, 1)
	})
}

// TestManifestFails breaks what Pebble considers fatal on a goroutine of its own.
func TestManifestFails(t *testing.T) {
	f := newFaulty(t, Options{})
	f.must("a", 0)
	f.inject(failing(errors.New("broken"), "MANIFEST", append(writes, syncs...)...))
	if _, err := f.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	<-f.Failed()
	if r := f.append("a", 1); !errors.Is(r.Err, ErrClosed) {
		t.Fatalf("got %+v", r)
	}
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("version %d", n)
	}
	_ = f.Close()
	f.fault.Store(nil)
	reopenAfter(t, f, 1, 1)
}

// TestNoDescriptors lets the process run out of file descriptors where Pebble opens each kind of file. Pebble's own bound on
// errors in a row is far exceeded.
func TestNoDescriptors(t *testing.T) {
	for _, part := range []string{".sst", ".log"} {
		t.Run(part, func(t *testing.T) {
			f := newFaulty(t, Options{})
			f.must("a", 0)
			var refused atomic.Int32
			none := failing(syscall.EMFILE, part, errorfs.OpCreate, errorfs.OpReuseForWrite)
			f.inject(func(op errorfs.Op) error {
				err := none(op)
				if err != nil && refused.Add(1) > 2*maxBackgroundErrors {
					f.fault.Store(nil)
				}
				return err
			})
			for version := uint64(1); refused.Load() <= 2*maxBackgroundErrors; version++ {
				f.must("a", version)
				flushed, err := f.db.AsyncFlush()
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-flushed:
				case <-f.Failed():
					t.Fatal(f.Err())
				}
			}
			f.finish()
		})
	}
}

// TestOpenFails breaks each file that opening writes.
func TestOpenFails(t *testing.T) {
	for _, part := range []string{formatName, "MANIFEST", ".log"} {
		t.Run(part, func(t *testing.T) {
			disk := vfs.NewMem()
			fs := errorfs.Wrap(disk, errorfs.InjectorFunc(failing(errors.New("broken"), part, append(writes, syncs...)...)))
			_, err := Open(Options{Dir: "data", FS: fs, Logger: quiet, CacheBytes: minCache})
			if err == nil || !strings.Contains(err.Error(), "data") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestWatchersOutliveFailure watches a journal of which the last append failed.
func TestWatchersOutliveFailure(t *testing.T) {
	f := newFaulty(t, Options{})
	f.must("a", 0)
	f.inject(failing(errors.New("broken"), ".log", syncs...))
	if r := f.append("a", 1); !errors.Is(r.Err, ErrUnknown) {
		t.Fatalf("got %+v", r)
	}
	<-f.Failed()
	last := uint64(0)
	f.Watch(context.Background(), func(n Notice) { last = max(last, n.Sequence) })
	if last != 1 {
		t.Fatalf("the feed is told to be at %d", last)
	}
}

// TestNextLogFails fills memtables until Pebble begins another log, and cannot.
func TestNextLogFails(t *testing.T) {
	f := newFaulty(t, Options{})
	f.must("a", 0)
	f.inject(failing(syscall.ENOSPC, ".log", errorfs.OpCreate, errorfs.OpReuseForWrite))
	version := uint64(1)
	for {
		results := make(chan Result, 1)
		e := Event{Name: "e", Payload: make([]byte, 100<<10)}
		f.Append(Proposal{Stream: "a", Expected: version, Epoch: f.epoch, Events: []Event{e}}, func(r Result) { results <- r })
		if r := <-results; r.Err != nil {
			if !errors.Is(r.Err, ErrUnknown) {
				t.Fatalf("got %+v", r)
			}
			break
		}
		version++
	}
	<-f.Failed()
	if n := headOf(t, f.Store, "a"); n != version {
		t.Fatalf("version %d, want %d", n, version)
	}
	if err := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("closed with %v", err)
	}
	f.fault.Store(nil)
	reopenAfter(t, f, version, version+1)
}

// TestEachWriteFails breaks the first, second, third ... thing that is written, and looks after a loss of power for what
// was acknowledged.
func TestEachWriteFails(t *testing.T) {
	for n := range int64(60) {
		f := newFaulty(t, Options{})
		f.must("a", 0)
		var left atomic.Int64
		left.Store(n)
		f.inject(func(op errorfs.Op) error {
			if left.Add(-1) == -1 {
				return errors.New("broken")
			}
			return nil
		})
		least, most := uint64(1), uint64(1)
		flushed := make(chan struct{})
		for most < 20 {
			if most == 5 {
				go func() { // may stay at the fault
					_, _ = f.db.AsyncFlush()
					close(flushed)
				}()
			}
			most++
			if r := f.append("a", most-1); r.Err != nil {
				if f.Err() == nil {
					t.Fatalf("fault %d: %v without an end", n, r.Err)
				}
				break
			}
			least = most
		}
		f.fault.Store(nil)
		reopenAfter(t, f, least, most)
		if most >= 5 { // Pebble panics where a flush is asked for after its end
			select {
			case <-flushed:
			case <-f.Failed():
			}
		}
		_ = f.Close()
	}
}
