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
//
// The keeper of the marks learns of each byte of manifests and logs. An edit of a manifest is in the marks before Pebble
// gets the answer to its sync, and so before Pebble removes what the edit makes obsolete.
type disk struct {
	vfs.FS
	store      string
	background *background
	keeper     *keeper
	// armed: there is a writer to answer for. While the store is opened and closed, errors are returned as they are.
	armed atomic.Bool
}

const (
	pace    = 5 * time.Millisecond // for each error in a row
	maxPace = 50 * pace
)

func (d *disk) Unwrap() vfs.FS { return d.FS }

const (
	logSuffix            = ".log"
	tableSuffix          = ".sst"
	manifestPrefix       = "MANIFEST-"
	manifestMarker       = "manifest"
	manifestMarkerPrefix = "marker." + manifestMarker + "."
)

// log tells whether a file is Pebble's log; checkpoints have copies elsewhere.
func (d *disk) log(name string) bool {
	return strings.HasSuffix(name, logSuffix) && d.FS.PathDir(name) == d.store
}

// watch lets the keeper see what is written to a manifest or a log.
func (d *disk) watch(name string, file vfs.File, err error) (vfs.File, error) {
	base := d.FS.PathBase(name)
	if target, ok := markedManifest(base); ok && d.FS.PathDir(name) == d.store {
		d.keeper.points(target)
	}
	manifest := strings.HasPrefix(base, manifestPrefix) && d.FS.PathDir(name) == d.store
	if err != nil || !manifest && !d.log(name) {
		return file, err
	}
	return &witness{file, d.keeper, d.keeper.created(base), manifest}, nil
}

// markedManifest returns the manifest that a marker of Pebble's points to; ok is false for other files.
func markedManifest(base string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(base, manifestMarkerPrefix)
	if !ok {
		return "", false
	}
	_, name, ok = strings.Cut(rest, ".")
	return name, ok
}

// Remove removes a file, which the keeper forgets.
func (d *disk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil && d.FS.PathDir(name) == d.store {
		d.keeper.removed(d.FS.PathBase(name))
	}
	return err
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if n := d.background.errors.Load(); n > 0 && strings.HasSuffix(name, tableSuffix) {
		time.Sleep(min(time.Duration(n)*pace, maxPace))
	}
	file, err := d.await(name, true, func() (vfs.File, error) { return d.FS.Create(name, category) })
	file, err = d.watch(name, file, err)
	return d.vital(file, err, d.log(name))
}

func (d *disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.await(to, true, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
	if err == nil {
		d.keeper.removed(d.FS.PathBase(from))
	}
	file, err = d.watch(to, file, err)
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
