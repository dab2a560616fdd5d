package persistence

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system as Pebble sees it.
//
// An error of the log, or of syncing the directory, ends the journal here, and never gets to Pebble: it would panic,
// and when it is changing logs it does so where unwinding ends the process (it unlocks what it has unlocked before). So
// the goroutine that met the error stays here for good. It holds none of the locks that readers need, and whoever waits
// for it is answered by failure.
//
// A process without a file descriptor left is no reason to end: opening waits until there is one.
//
// The making of tables is slowed down after errors, since Pebble tries again without a pause, and has its locks held
// wherever else it could be slowed.
type disk struct {
	vfs.FS
	store      string
	background *background
	// armed: there is a writer to answer for. While the store is opened and closed, errors are returned as they are.
	armed atomic.Bool
}

const (
	pace    = 5 * time.Millisecond // for each error in a row
	maxPace = 50 * pace
)

func (d *disk) Unwrap() vfs.FS { return d.FS }

// log tells whether a file is Pebble's log; checkpoints have copies elsewhere.
func (d *disk) log(name string) bool {
	return strings.HasSuffix(name, ".log") && d.FS.PathDir(name) == d.store
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if n := d.background.errors.Load(); n > 0 && strings.HasSuffix(name, ".sst") {
		time.Sleep(min(time.Duration(n)*pace, maxPace))
	}
	file, err := d.await(name, true, func() (vfs.File, error) { return d.FS.Create(name, category) })
	return d.vital(file, err, d.log(name))
}

func (d *disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.await(to, true, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
	return d.vital(file, err, d.log(to))
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	file, err := d.await(name, true, func() (vfs.File, error) { return d.FS.OpenDir(name) })
	return d.vital(file, err, name == d.store)
}

func (d *disk) vital(file vfs.File, err error, is bool) (vfs.File, error) {
	if !is {
		return file, err
	}
	if d.must(err) != nil {
		return nil, err
	}
	return vital{file, d}, nil
}

// must does not return an error that ends the journal.
func (d *disk) must(err error) error {
	if err == nil || !d.armed.Load() {
		return err
	}
	d.background.failure.fail(fmt.Errorf("log: %w", err))
	select {}
}

// vital is a file that the journal cannot go on without.
type vital struct {
	vfs.File
	disk *disk
}

func (f vital) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.disk.must(err)
}

func (f vital) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, f.disk.must(err)
}

func (f vital) Sync() error     { return f.disk.must(f.File.Sync()) }
func (f vital) SyncData() error { return f.disk.must(f.File.SyncData()) }
func (f vital) Close() error    { return f.disk.must(f.File.Close()) }

func (f vital) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.disk.must(err)
}
