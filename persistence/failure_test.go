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

// TestLogFault breaks the log during an append: the append is not acknowledged, and the journal ends, but not the
// process.
func TestLogFault(t *testing.T) {
	for name, fault := range map[string]func(errorfs.Op) error{
		"sync":           faultOn(errors.New("broken"), ".log", syncs...),
		"write":          faultOn(errors.New("broken"), ".log", writes...),
		"write: no room": faultOn(syscall.ENOSPC, ".log", writes...),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaultyJournal(t, Options{})
			f.mustAppend("a", 0)
			f.injectFault(fault)
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
			checkVersionAfterCrash(t, f, 1, 2)
		})
	}
}

// TestLogFaultWithQueue breaks the log while one batch is in flight and another is queued.
func TestLogFaultWithQueue(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	syncing, broken := make(chan struct{}, 100), make(chan struct{})
	isSync := faultOn(errors.New("broken"), ".log", syncs...)
	f.injectFault(func(op errorfs.Op) error {
		err := isSync(op)
		if err != nil {
			syncing <- struct{}{}
			<-broken
		}
		return err
	})
	flying := f.startAppend("a", 1)
	<-syncing
	queued := f.startAppend("a", 2)
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

// TestViewDuringSync opens a view while a batch is visible in Pebble but not durable: the view does not show it.
func TestViewDuringSync(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	release := f.holdSyncs()
	flying := f.startAppend("a", 1)
	<-f.syncing
	if n := headOf(t, f.Store, "a"); n != 1 {
		t.Fatalf("version %d while it is being synced", n)
	}
	release()
	if r := <-flying; r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := headOf(t, f.Store, "a"); n != 2 {
		t.Fatalf("version %d after it is done", n)
	}
	f.mustClose()
}

// TestQueueBounds blocks the disk until proposals are refused: all accepted ones are written.
func TestQueueBounds(t *testing.T) {
	for name, o := range map[string]Options{"number": {QueueProposals: 10}, "bytes": {QueueBytes: 3000}} {
		t.Run(name, func(t *testing.T) {
			f := newFaultyJournal(t, o)
			release := f.holdSyncs()
			first := f.startAppend("first", 0)
			<-f.syncing
			var accepted []chan Result
			for i := 0; ; i++ {
				results := f.startAppend(Stream(fmt.Sprint("s", i)), 0)
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
			release()
			for _, results := range append(accepted, first) {
				if r := <-results; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			f.mustAppend("later", 0)
			f.mustClose()
		})
	}
}

// TestProposalTooLarge appends more than maxProposalBytes.
func TestProposalTooLarge(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	results := make(chan Result, 1)
	p := Proposal{Stream: "a", Epoch: f.epoch, Events: []Event{{Payload: make([]byte, maxProposalBytes)}}}
	f.Append(p, func(r Result) { results <- r })
	if r := <-results; !errors.Is(r.Err, ErrRefused) {
		t.Fatalf("got %+v", r)
	}
	f.mustAppend("a", 0)
	f.mustClose()
}

// TestDiskNearlyFull refuses proposals exactly while the free space is below the minimum.
func TestDiskNearlyFull(t *testing.T) {
	f := newFaultyJournal(t, Options{MinFreeBytes: 1 << 20})
	f.diskSpace.interval = 0
	f.mustAppend("a", 0)
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
	f.mustAppend("a", 1)
	f.mustClose()
}

// TestMoveWhileDiskIsNearlyFull refuses moves, which then change nothing: the owner of a partition continues, and a failed
// partition is still to be recovered.
func TestMoveWhileDiskIsNearlyFull(t *testing.T) {
	f := newFaultyJournal(t, Options{MinFreeBytes: 1 << 20})
	f.diskSpace.interval = 0
	f.Member("other")
	seen := f.watch(t, f.local)
	term := seen.notices[0]
	setFree := func(bytes uint64) {
		f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30})
	}
	refuseMove := func(to string) {
		t.Helper()
		setFree(1<<20 - 1)
		if epoch, err := f.Move(t.Context(), 0, to); !errors.Is(err, ErrRefused) {
			t.Fatalf("epoch %d, %v", epoch, err)
		}
		setFree(1 << 20)
	}
	refuseMove("other")
	if r := appendToFirst(f.local, term.Epoch, "a", 0); r.Err != nil {
		t.Errorf("the owner cannot append after a move was refused: %v", r.Err)
	}
	expectNotLeader(t, appendToFirst(f.Member("other"), term.Epoch, "a", 1), term.Epoch)
	f.Fail(0, errors.New("no quorum"))
	refuseMove(DefaultMember)
	if !f.queue.hasFailed(0) {
		t.Error("the partition has not failed any more, though nobody leads it")
	}
	epoch := f.mustMove(t, 0, DefaultMember)
	if r := appendToFirst(f.local, epoch, "a", 1); r.Err != nil {
		t.Error(r.Err)
	}
	f.mustClose()
}

// TestFlushFault lets Pebble retry flushes while the disk is full, and ends the journal on any other error that persists.
func TestFlushFault(t *testing.T) {
	t.Run("no room", func(t *testing.T) {
		f := newFaultyJournal(t, Options{})
		f.mustAppend("a", 0)
		tried := make(chan struct{}, 1)
		full := noSpaceFor(".sst")
		f.injectFault(func(op errorfs.Op) error {
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
		f.mustAppend("a", 1)
		f.fault.Store(nil)
		<-flushed
		f.mustAppend("a", 2)
		f.mustClose()
	})
	t.Run("broken", func(t *testing.T) {
		f := newFaultyJournal(t, Options{})
		f.mustAppend("a", 0)
		f.injectFault(faultOn(errors.New("broken"), ".sst", errorfs.OpCreate))
		if _, err := f.db.AsyncFlush(); err != nil {
			t.Fatal(err)
		}
		<-f.Failed()
		f.fault.Store(nil)
		checkVersionAfterCrash(t, f, 1, 1)
	})
}

// TestManifestFault causes a fatal error on a goroutine of Pebble.
func TestManifestFault(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	f.injectFault(faultOn(errors.New("broken"), "MANIFEST", append(writes, syncs...)...))
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
	checkVersionAfterCrash(t, f, 1, 1)
}

// TestNoFileDescriptors lets the process run out of file descriptors wherever Pebble opens a kind of file, many more
// times in a row than maxBackgroundErrors.
func TestNoFileDescriptors(t *testing.T) {
	for _, part := range []string{".sst", ".log"} {
		t.Run(part, func(t *testing.T) {
			f := newFaultyJournal(t, Options{})
			f.mustAppend("a", 0)
			var refused atomic.Int32
			none := faultOn(syscall.EMFILE, part, errorfs.OpCreate, errorfs.OpReuseForWrite)
			f.injectFault(func(op errorfs.Op) error {
				err := none(op)
				if err != nil && refused.Add(1) > 2*maxBackgroundErrors {
					f.fault.Store(nil)
				}
				return err
			})
			for version := uint64(1); refused.Load() <= 2*maxBackgroundErrors; version++ {
				f.mustAppend("a", version)
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
			f.mustClose()
		})
	}
}

// TestOpenFault breaks each file that opening writes.
func TestOpenFault(t *testing.T) {
	for _, part := range []string{formatName, "MANIFEST", ".log"} {
		t.Run(part, func(t *testing.T) {
			disk := vfs.NewMem()
			fs := errorfs.Wrap(disk, errorfs.InjectorFunc(faultOn(errors.New("broken"), part, append(writes, syncs...)...)))
			_, err := Open(Options{Dir: "data", FS: fs, Logger: discardLog, CacheBytes: minCache})
			if err == nil || !strings.Contains(err.Error(), "data") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestWatchAfterFailure watches a journal after its last append has failed.
func TestWatchAfterFailure(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	f.injectFault(faultOn(errors.New("broken"), ".log", syncs...))
	if r := f.append("a", 1); !errors.Is(r.Err, ErrUnknown) {
		t.Fatalf("got %+v", r)
	}
	<-f.Failed()
	last := uint64(0)
	f.Watch(context.Background(), func(n Notice) { last = max(last, n.Sequence) })
	if last != 1 {
		t.Fatalf("the watcher was notified of sequence %d", last)
	}
}

// TestLogSwitchFault fills memtables until Pebble creates another log, which fails.
func TestLogSwitchFault(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.mustAppend("a", 0)
	f.injectFault(noSpaceFor(".log"))
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
	checkVersionAfterCrash(t, f, version, version+1)
}

// TestFaultOfEachWrite breaks each of the first 60 writes to the disk in turn, and compares the acknowledged versions
// with the versions after a loss of power.
func TestFaultOfEachWrite(t *testing.T) {
	for n := range int64(60) {
		f := newFaultyJournal(t, Options{})
		f.mustAppend("a", 0)
		var left atomic.Int64
		left.Store(n)
		f.injectFault(func(op errorfs.Op) error {
			if left.Add(-1) == -1 {
				return errors.New("broken")
			}
			return nil
		})
		least, most := uint64(1), uint64(1)
		flushed := make(chan struct{})
		for most < 20 {
			if most == 5 {
				go func() { // may block at the fault forever
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
		checkVersionAfterCrash(t, f, least, most)
		if most >= 5 { // Pebble panics if it is flushed after it was closed
			select {
			case <-flushed:
			case <-f.Failed():
			}
		}
		_ = f.Close()
	}
}
