package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/retry"
)

// disk is the file system that Pebble uses. It differs from Options.FS in five ways:
//
// An error of the log, or of syncing the store's directory, ends the journal and is never returned to Pebble. Pebble
// would panic, and while it switches logs such a panic ends the process, because its deferred calls unlock a mutex that
// is not locked. The goroutine that met the error blocks forever instead (see endJournalOn). It holds no lock that
// readers need, and failure answers all callers that wait for it.
//
// If the process has no file descriptor left, opening a file waits until there is one (see openWhenPossible).
//
// After errors of flushes and compactions, creating a table is delayed: Pebble retries without a pause, and holds its
// locks everywhere else where it could be delayed.
//
// synced has a promise for each log after each sync of the log.
//
// marksWriter observes every byte that is written to manifests and logs. An edit of a manifest is in the marks before
// Pebble's sync of it returns, and therefore before Pebble removes the files that the edit makes obsolete.
type disk struct {
	vfs.FS
	// store is the directory of Pebble's files.
	store       string
	errors      *backgroundErrors
	marksWriter *marksWriter
	synced      *syncedLogs
	// running reports that the writer is running. While the store is opened and closed, errors are returned unchanged.
	running atomic.Bool
}

const (
	tableDelay    = 5 * time.Millisecond // for each error in a row
	maxTableDelay = 50 * tableDelay
)

// Unwrap returns the wrapped file system; see vfs.FS.
func (d *disk) Unwrap() vfs.FS { return d.FS }

const (
	logSuffix            = ".log"
	tableSuffix          = ".sst"
	manifestPrefix       = "MANIFEST-"
	manifestMarker       = "manifest"
	manifestMarkerPrefix = "marker." + manifestMarker + "."
)

// isLog reports whether a file is a log of the store, and not the copy of one in a checkpoint.
func (d *disk) isLog(name string) bool {
	return strings.HasSuffix(name, logSuffix) && d.FS.PathDir(name) == d.store
}

// track wraps a created manifest or log, so that marksWriter observes its writes, and records a change of the marker.
func (d *disk) track(name string, file vfs.File, err error) (vfs.File, error) {
	base := d.FS.PathBase(name)
	if target, ok := manifestOfMarker(base); ok && d.FS.PathDir(name) == d.store {
		d.marksWriter.recordMarker(target)
	}
	manifest := strings.HasPrefix(base, manifestPrefix) && d.FS.PathDir(name) == d.store
	if err != nil || !manifest && !d.isLog(name) {
		return file, err
	}
	tracked := &trackedFile{File: file, marksWriter: d.marksWriter, extent: d.marksWriter.beginExtent(base)}
	if !manifest {
		tracked.synced = d.synced
	}
	return tracked, nil
}

// manifestOfMarker returns the manifest that a marker file of Pebble names in its own name. ok is false for other files.
func manifestOfMarker(base string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(base, manifestMarkerPrefix)
	if !ok {
		return "", false
	}
	_, name, ok = strings.Cut(rest, ".")
	return name, ok
}

// Remove removes a file, and its extent from the marks. A log stays if its promise cannot be removed; the next opening removes it.
func (d *disk) Remove(name string) error {
	if d.isLog(name) {
		if err := d.synced.forget(d.FS.PathBase(name)); err != nil {
			return err
		}
	}
	err := d.FS.Remove(name)
	if err == nil && d.FS.PathDir(name) == d.store {
		d.marksWriter.forgetFile(d.FS.PathBase(name))
	}
	return err
}

// Create creates a file. The creation of a table is delayed after errors.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if n := d.errors.consecutive.Load(); n > 0 && strings.HasSuffix(name, tableSuffix) {
		time.Sleep(min(time.Duration(n)*tableDelay, maxTableDelay))
	}
	file, err := d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.Create(name, category) })
	file, err = d.track(name, file, err)
	return d.wrapVital(file, err, d.isLog(name))
}

// ReuseForWrite renames an obsolete log, for Pebble to overwrite it.
func (d *disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.synced.forget(d.FS.PathBase(from)); err != nil {
		return d.wrapVital(nil, err, d.isLog(to))
	}
	file, err := d.openWhenPossible(to, true, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
	if err == nil {
		d.marksWriter.forgetFile(d.FS.PathBase(from))
	}
	file, err = d.track(to, file, err)
	return d.wrapVital(file, err, d.isLog(to))
}

// OpenDir opens a directory, which Pebble syncs.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	file, err := d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.OpenDir(name) })
	return d.wrapVital(file, err, name == d.store)
}

// wrapVital wraps a file without which the journal cannot continue. It returns other files unchanged.
func (d *disk) wrapVital(file vfs.File, err error, isVital bool) (vfs.File, error) {
	if !isVital {
		return file, err
	}
	if d.endJournalOn(err) != nil {
		return nil, err
	}
	return vitalFile{file, d}, nil
}

// endJournalOn returns nil for nil. On an error while the writer is running, it fails the journal and blocks forever.
func (d *disk) endJournalOn(err error) error {
	if err == nil || !d.running.Load() {
		return err
	}
	d.errors.failure.fail(fmt.Errorf("write the log: %w", err))
	select {}
}

// vitalFile is a log or the store's directory: an error of writing or syncing it ends the journal.
type vitalFile struct {
	vfs.File
	disk *disk
}

func (f vitalFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.disk.endJournalOn(err)
}

func (f vitalFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, f.disk.endJournalOn(err)
}

func (f vitalFile) Sync() error     { return f.disk.endJournalOn(f.File.Sync()) }
func (f vitalFile) SyncData() error { return f.disk.endJournalOn(f.File.SyncData()) }
func (f vitalFile) Close() error    { return f.disk.endJournalOn(f.File.Close()) }

func (f vitalFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.disk.endJournalOn(err)
}

// descriptorTimeout bounds the attempts to open a file for reading.
const descriptorTimeout = 5 * time.Second

// outOfDescriptors reports whether an error means that the process or the machine has no file descriptor left. The
// condition passes by itself.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// reopening has the pauses between attempts to open a file while the process has no file descriptor left.
var reopening = retry.Policy{First: time.Millisecond, Longest: 100 * time.Millisecond}

// openWhenPossible calls open until a file descriptor is available: for a vital file, without which Pebble cannot
// continue, as long as the journal is running, and otherwise for descriptorTimeout.
func (d *disk) openWhenPossible(name string, vital bool, open func() (vfs.File, error)) (vfs.File, error) {
	began := time.Now()
	for n := 1; ; n++ {
		file, err := open()
		if !outOfDescriptors(err) || !(vital && d.running.Load()) && time.Since(began) > descriptorTimeout {
			return file, err
		}
		if n == 1 {
			d.errors.failure.logger.Error("the journal waits for a file descriptor: the process has none left, raise its limit",
				slog.String("file", name), slog.Any("error", err))
		}
		retry.Pause(context.Background(), reopening.After(n))
	}
}

// Open opens a file for reading.
func (d *disk) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return d.openWhenPossible(name, false, func() (vfs.File, error) { return d.FS.Open(name, options...) })
}

// OpenReadWrite opens a file for reading and writing.
func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, category, options...) })
}

// maxBackgroundErrors is the number of unexpected errors in a row after which the journal fails.
const maxBackgroundErrors = 16

// backgroundErrors counts the errors of flushes and compactions, which Pebble retries by itself. A full disk and a lack
// of file descriptors may pass (the writer refuses proposals while the disk is full); any other error that does not pass
// ends the journal.
type backgroundErrors struct {
	failure *failure
	metrics *metrics
	// consecutive counts all errors since the last successful flush. unexpected counts the errors among them that are not
	// a lack of space or descriptors.
	consecutive atomic.Int32
	unexpected  atomic.Int32
}

// recordError counts an error. Pebble calls it with its locks held.
func (b *backgroundErrors) recordError(err error) {
	b.metrics.backgroundErrors.Inc()
	b.failure.logger.Error("a flush or compaction of the journal has failed, will retry", "error", err)
	b.consecutive.Add(1)
	if errors.Is(err, syscall.ENOSPC) || outOfDescriptors(err) {
		return
	}
	if b.unexpected.Add(1) == maxBackgroundErrors {
		b.failure.fail(fmt.Errorf("flushes or compactions keep failing: %w", err))
	}
}

// recordFlush resets the counts after a successful flush.
func (b *backgroundErrors) recordFlush(info pebble.FlushInfo) {
	if info.Err == nil {
		b.consecutive.Store(0)
		b.unexpected.Store(0)
	}
}

// reportCorruption logs that Pebble has read a block with a wrong checksum. The read returns an error, and other reads
// continue. Pebble's default is to end the process.
func (b *backgroundErrors) reportCorruption(info pebble.DataCorruptionInfo) {
	b.metrics.damagedReads.Inc()
	b.failure.logger.Error("a file of the journal is damaged: restore the data directory from a copy",
		"file", info.Path, "error", info.Details)
}

// listener returns the listener of Pebble's events.
func (b *backgroundErrors) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: b.recordError,
		DataCorruption:  b.reportCorruption,
		FlushEnd:        b.recordFlush,
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { b.metrics.stalls.Inc() },
	}
}
