package persistence

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var quiet = slog.New(slog.DiscardHandler)

// faulty is a journal on a disk that fails on demand.
type faulty struct {
	*Store
	t     *testing.T
	disk  *vfs.MemFS
	epoch uint64
	// fault, when there is one, is asked about each operation that writes.
	fault *atomic.Pointer[func(op errorfs.Op) error]
	// syncing gets a value for each sync that holdSync holds.
	syncing chan struct{}
}

func newFaulty(t *testing.T, o Options) *faulty {
	f := &faulty{t: t, disk: vfs.NewCrashableMem(), fault: new(atomic.Pointer[func(op errorfs.Op) error])}
	o.Dir, o.Logger, o.CacheBytes = "data", quiet, minCache
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

func (f *faulty) inject(fault func(op errorfs.Op) error) { f.fault.Store(&fault) }

// failing is a fault of files whose names contain part, in operations of some kinds.
func failing(err error, part string, kinds ...errorfs.OpKind) func(errorfs.Op) error {
	return func(op errorfs.Op) error {
		for _, kind := range kinds {
			if op.Kind == kind && strings.Contains(op.Path, part) {
				return err
			}
		}
		return nil
	}
}

func (f *faulty) begin(s Stream, expected uint64) chan Result {
	results := make(chan Result, 1)
	p := Proposal{Stream: s, Expected: expected, Epoch: f.epoch, Events: []Event{{Name: "e", Payload: make([]byte, 100)}}}
	f.Append(p, func(r Result) { results <- r })
	return results
}

func (f *faulty) append(s Stream, expected uint64) Result { return <-f.begin(s, expected) }

func (f *faulty) must(s Stream, expected uint64) {
	f.t.Helper()
	if r := f.append(s, expected); r.Err != nil {
		f.t.Fatal(r.Err)
	}
}

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

// holdSync makes syncs of the log wait until release is called.
func (f *faulty) holdSync() (release func()) {
	f.syncing = make(chan struct{}, 1000)
	goOn := make(chan struct{})
	isSync := failing(errors.New("sync"), ".log", syncs...)
	f.inject(func(op errorfs.Op) error {
		if isSync(op) != nil {
			f.syncing <- struct{}{}
			<-goOn
		}
		return nil
	})
	return func() { close(goOn) }
}

// together makes one commit of what propose appends.
func (f *faulty) together(propose func()) {
	release := f.holdSync()
	behind := f.begin("behind", headOf(f.t, f.Store, "behind"))
	<-f.syncing
	propose()
	release()
	if r := <-behind; r.Err != nil {
		f.t.Fatal(r.Err)
	}
	f.fault.Store(nil)
}

// crash opens what is left after a loss of power.
func (f *faulty) crash(t *testing.T) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "data", Logger: quiet, CacheBytes: minCache, FS: f.disk.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reopenAfter looks for the versions that may be left after the power went.
func reopenAfter(t *testing.T, f *faulty, least, most uint64) {
	t.Helper()
	s, err := Open(Options{Dir: "data", Logger: quiet, CacheBytes: minCache, FS: f.disk.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := headOf(t, s, "a"); n < least || n > most {
		t.Fatalf("version %d after reopening, want %d to %d", n, least, most)
	}
}

func (f *faulty) finish() {
	f.t.Helper()
	f.fault.Store(nil)
	if err := f.Close(); err != nil {
		f.t.Fatal(err)
	}
}
