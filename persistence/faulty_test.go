package persistence

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var discardLog = slog.New(slog.DiscardHandler)

// faultyJournal is a journal on a disk with injected faults.
type faultyJournal struct {
	*Store
	t     *testing.T
	disk  *vfs.MemFS
	epoch uint64
	// fault is called for each operation that writes, unless it is nil.
	fault *atomic.Pointer[func(op errorfs.Op) error]
	// syncing receives a value for each sync that holdSyncs blocks.
	syncing chan struct{}
}

// newFaultyJournal opens a journal in memory, without faults.
func newFaultyJournal(t *testing.T, o Options) *faultyJournal {
	f := &faultyJournal{t: t, disk: vfs.NewCrashableMem(), fault: new(atomic.Pointer[func(op errorfs.Op) error])}
	o.Dir, o.Logger, o.CacheBytes = "data", discardLog, minCache
	o.FS = errorfs.Wrap(f.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fault := f.fault.Load(); fault != nil && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return (*fault)(op)
		}
		return nil
	}))
	var err error
	if f.Store, err = Open(o); err != nil {
		t.Fatal(err)
	}
	f.epoch = f.watchers.notices[0].Epoch
	return f
}

// injectFault replaces the fault.
func (f *faultyJournal) injectFault(fault func(op errorfs.Op) error) { f.fault.Store(&fault) }

// faultOn returns a fault that fails operations of some kinds on files with part in their path.
func faultOn(err error, part string, kinds ...errorfs.OpKind) func(errorfs.Op) error {
	return func(op errorfs.Op) error {
		for _, kind := range kinds {
			if op.Kind == kind && strings.Contains(op.Path, part) {
				return err
			}
		}
		return nil
	}
}

// startAppend appends one event to partition 0 without waiting for the result.
func (f *faultyJournal) startAppend(s Stream, expected uint64) chan Result {
	results := make(chan Result, 1)
	p := Proposal{Stream: s, Expected: expected, Epoch: f.epoch, Events: []Event{{Name: "e", Payload: make([]byte, 100)}}}
	f.Append(p, func(r Result) { results <- r })
	return results
}

// append appends one event to partition 0.
func (f *faultyJournal) append(s Stream, expected uint64) Result { return <-f.startAppend(s, expected) }

func (f *faultyJournal) mustAppend(s Stream, expected uint64) {
	f.t.Helper()
	if r := f.append(s, expected); r.Err != nil {
		f.t.Fatal(r.Err)
	}
}

// headOf returns the version of a stream in partition 0, and fails unless the stream has as many events.
func headOf(t *testing.T, s *Store, stream Stream) uint64 {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	n, err := v.Head(0, stream)
	if err != nil {
		t.Fatal(err)
	}
	read := uint64(0)
	for _, err := range v.Read(0, stream, 0, Ascending) {
		if err != nil {
			t.Fatal(err)
		}
		read++
	}
	if read != n {
		t.Fatalf("%d events, head %d", read, n)
	}
	return n
}

var (
	syncs  = []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileFlush}
	writes = []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileWriteAt}
)

// holdSyncs blocks syncs of the log until release is called.
func (f *faultyJournal) holdSyncs() (release func()) {
	f.syncing = make(chan struct{}, 1000)
	goOn := make(chan struct{})
	isSync := faultOn(errors.New("sync"), ".log", syncs...)
	f.injectFault(func(op errorfs.Op) error {
		if isSync(op) != nil {
			f.syncing <- struct{}{}
			<-goOn
		}
		return nil
	})
	return func() { close(goOn) }
}

// commitTogether puts everything that propose appends into one commit.
func (f *faultyJournal) commitTogether(propose func()) {
	release := f.holdSyncs()
	behind := f.startAppend("behind", headOf(f.t, f.Store, "behind"))
	<-f.syncing
	propose()
	release()
	if r := <-behind; r.Err != nil {
		f.t.Fatal(r.Err)
	}
	f.fault.Store(nil)
}

// reopenAfterCrash opens the journal as a loss of power leaves it.
func (f *faultyJournal) reopenAfterCrash(t *testing.T) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "data", Logger: discardLog, CacheBytes: minCache, FS: f.disk.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkVersionAfterCrash fails unless the version of stream a after a loss of power is between least and most.
func checkVersionAfterCrash(t *testing.T, f *faultyJournal, least, most uint64) {
	t.Helper()
	s, err := Open(Options{Dir: "data", Logger: discardLog, CacheBytes: minCache, FS: f.disk.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := headOf(t, s, "a"); n < least || n > most {
		t.Fatalf("version %d after reopening, want %d to %d", n, least, most)
	}
}

// mustClose removes the fault and closes the journal.
func (f *faultyJournal) mustClose() {
	f.t.Helper()
	f.fault.Store(nil)
	if err := f.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// noSpaceFor returns a fault that fails the creation of files with part in their path, and each use of the reserve, as on a full disk.
func noSpaceFor(part string) func(errorfs.Op) error {
	create := faultOn(syscall.ENOSPC, part, errorfs.OpCreate, errorfs.OpReuseForWrite)
	reserve := faultOn(syscall.ENOSPC, reserveName+"/", errorfs.OpCreate, errorfs.OpReuseForWrite)
	return func(op errorfs.Op) error { return cmp.Or(create(op), reserve(op)) }
}
