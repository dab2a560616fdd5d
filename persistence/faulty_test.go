package persistence

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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
