package persistence

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/atelier-run/atelier/volume"
)

// appendEssential appends one essential event to partition 0.
func (f *faultyJournal) appendEssential(s Stream, expected uint64) Result {
	results := make(chan Result, 1)
	f.Append(Proposal{
		Stream: s, Expected: expected, Epoch: f.epoch, Urgency: Essential, Events: []Event{{Name: "e", Payload: make([]byte, 100<<10)}},
	}, func(r Result) { results <- r })
	return <-results
}

// limitFree limits the free space of the disk, and returns a function that changes it. It is called before anything is appended.
func (f *faultyJournal) limitFree() (set func(bytes, files uint64)) {
	var free atomic.Uint64
	f.reserve.freeFiles = free.Load
	set = func(bytes, files uint64) {
		f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30})
		free.Store(files)
	}
	set(1<<30, volume.Unlimited)
	return set
}

func expectSpares(t *testing.T, r *reserve, least, most int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	names, err := r.FS.List(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := int(r.left.Load()); n != len(names) || n < least || n > most {
		t.Fatalf("%d spare files, and %d in the folder; want %d to %d", n, len(names), least, most)
	}
}

// TestReserveMakesLogs lets Pebble create logs and tables on a disk without inodes: each is one of the spare files. When the disk
// has inodes again, the reserve is refilled, and a start finds all of it.
func TestReserveMakesLogs(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.diskSpace.interval = 0
	expectSpares(t, f.reserve, spareFiles, spareFiles)
	f.injectFault(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	version := uint64(0)
	for f.reserve.left.Load() > spareFiles/2 {
		if r := f.appendEssential("a", version); r.Err != nil {
			t.Fatal(r.Err)
		}
		version++
	}
	f.fault.Store(nil)
	f.mustAppend("a", version)
	f.mustAppend("a", version+1) // its check refills files that a flush in progress may have taken since the last check
	expectSpares(t, f.reserve, spareFiles-2, spareFiles)
	if n := headOf(t, f.Store, "a"); n != version+2 {
		t.Fatalf("version %d, want %d", n, version+2)
	}
	f.mustClose()
	f.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 30})
	again, err := Open(Options{Dir: "data", FS: f.disk, Logger: discardLog, CacheBytes: minCache})
	if err != nil {
		t.Fatal(err)
	}
	expectSpares(t, again.reserve, spareFiles, spareFiles)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReserveMakesRoomForWrites fails writes of the log until spare files were removed.
func TestReserveMakesRoomForWrites(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	full := faultOn(syscall.ENOSPC, ".log", writes...)
	f.injectFault(func(op errorfs.Op) error {
		if f.reserve.left.Load() > spareFiles-3 {
			return full(op)
		}
		return nil
	})
	f.mustAppend("a", 0)
	expectSpares(t, f.reserve, spareFiles-3, spareFiles-3)
	f.fault.Store(nil)
	f.mustClose()
}

// TestReserveIsForTheJournalAlone fails the creation of all files on a full disk except the files that the journal cannot
// continue without.
func TestReserveIsForTheJournalAlone(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	r := f.reserve
	f.injectFault(faultOn(syscall.ENOSPC, "", errorfs.OpCreate))
	create := func(name string, category vfs.DiskWriteCategory) error {
		file, err := r.Create(name, category)
		if err != nil {
			return err
		}
		return errors.Join(file.Close(), r.Remove(name))
	}
	for name, category := range map[string]vfs.DiskWriteCategory{
		"data/store/900001.sst": compactionCategory, "backup/journal/store/900002.log": vfs.WriteCategoryUnspecified, "data/drives/x": "x",
	} {
		if err := create(name, category); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectSpares(t, r, spareFiles, spareFiles)
	for r.left.Load() > lastReserve {
		if err := create("data/store/900003.sst", flushCategory); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("data/store/900004.sst", flushCategory); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a flush has taken the last quarter: %v", err)
	}
	if err := errors.Join(create("data/store/900005.log", "pebble-wal"), create("data/MARKS.new", vfs.WriteCategoryUnspecified)); err != nil {
		t.Error(err)
	}
	f.fault.Store(nil)
	f.mustClose()
}

// TestEssentialProposals accepts essential proposals alone while the disk is nearly full, in one commit with others or not, and none when
// the reserve is nearly used up.
func TestEssentialProposals(t *testing.T) {
	for name, free := range map[string]struct{ bytes, files uint64 }{"bytes": {1, 100}, "inodes": {1 << 30, 99}} {
		t.Run(name, func(t *testing.T) {
			f := newFaultyJournal(t, Options{MinFreeFiles: 100})
			f.diskSpace.interval = 0
			setFree := f.limitFree()
			release := f.holdSyncs()
			first := f.startAppend("held", 0)
			<-f.syncing
			setFree(free.bytes, free.files)
			ordinary := f.startAppend("a", 0)
			essential := make(chan Result, 1)
			go func() { essential <- f.appendEssential("b", 0) }()
			release()
			if r := <-first; r.Err != nil {
				t.Errorf("the commit before: %+v", r)
			}
			if r := <-essential; r.Err != nil {
				t.Errorf("essential: %+v", r)
			}
			if r := <-ordinary; !errors.Is(r.Err, ErrRefused) {
				t.Errorf("ordinary: %+v", r)
			}
			for f.reserve.left.Load() >= lastReserve {
				f.reserve.release(0)
			}
			setFree(free.bytes, 0) // nothing is refilled
			if r := f.appendEssential("b", 1); !errors.Is(r.Err, ErrRefused) {
				t.Errorf("essential, without a reserve: %+v", r)
			}
			setFree(1<<30, 100)
			f.mustAppend("a", 0)
			expectSpares(t, f.reserve, spareFiles, spareFiles)
			f.mustClose()
		})
	}
}

// TestRationedProposals accepts rationed proposals on a full disk until half of the reserve is used, and essential ones after that.
func TestRationedProposals(t *testing.T) {
	f := newFaultyJournal(t, Options{MinFreeFiles: 100})
	f.diskSpace.interval = 0
	f.limitFree()(1, 0) // nothing is refilled
	rationed := func(version uint64) error {
		results := make(chan Result, 1)
		f.Append(Proposal{
			Stream: "a", Expected: version, Epoch: f.epoch, Urgency: Rationed, Events: []Event{{Name: "e", Payload: []byte("x")}},
		}, func(r Result) { results <- r })
		return (<-results).Err
	}
	if err := rationed(0); err != nil {
		t.Error(err)
	}
	for f.reserve.left.Load() >= rationReserve {
		f.reserve.release(0)
	}
	if err := rationed(1); !errors.Is(err, ErrRefused) {
		t.Errorf("with less than half of the reserve: %v", err)
	}
	if r := f.appendEssential("a", 1); r.Err != nil {
		t.Errorf("essential: %v", r.Err)
	}
	f.mustClose()
}

// TestShareLeavesInodesToOthers opens a journal on a disk without inodes: afterwards others have some.
func TestShareLeavesInodesToOthers(t *testing.T) {
	f := newFaultyJournal(t, Options{})
	f.reserve.freeFiles = func() uint64 { return uint64(spareFiles - f.reserve.left.Load()) }
	f.reserve.share()
	expectSpares(t, f.reserve, spareFiles-sharedFiles, spareFiles-sharedFiles)
	f.reserve.refill()
	expectSpares(t, f.reserve, spareFiles-sharedFiles, spareFiles-sharedFiles)
	f.mustClose()
}
