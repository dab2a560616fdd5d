package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
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
	store       string
	errors      *backgroundErrors
	marksWriter *marksWriter
	// armed: there is a writer to answer for. While the store is opened and closed, errors are returned as they are.
	running atomic.Bool
}

const (
	tableDelay    = 5 * time.Millisecond // for each error in a row
	maxTableDelay = 50 * tableDelay
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
func (d *disk) isLog(name string) bool {
	return strings.HasSuffix(name, logSuffix) && d.FS.PathDir(name) == d.store
}

// watch lets the keeper see what is written to a manifest or a log.
func (d *disk) track(name string, file vfs.File, err error) (vfs.File, error) {
	base := d.FS.PathBase(name)
	if target, ok := manifestOfMarker(base); ok && d.FS.PathDir(name) == d.store {
		d.marksWriter.recordMarker(target)
	}
	manifest := strings.HasPrefix(base, manifestPrefix) && d.FS.PathDir(name) == d.store
	if err != nil || !manifest && !d.isLog(name) {
		return file, err
	}
	return &trackedFile{file, d.marksWriter, d.marksWriter.beginExtent(base), manifest}, nil
}

// markedManifest returns the manifest that a marker of Pebble's points to; ok is false for other files.
func manifestOfMarker(base string) (name string, ok bool) {
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
		d.marksWriter.forgetFile(d.FS.PathBase(name))
	}
	return err
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if n := d.errors.consecutive.Load(); n > 0 && strings.HasSuffix(name, tableSuffix) {
		time.Sleep(min(time.Duration(n)*tableDelay, maxTableDelay))
	}
	file, err := d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.Create(name, category) })
	file, err = d.track(name, file, err)
	return d.wrapVital(file, err, d.isLog(name))
}

func (d *disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.openWhenPossible(to, true, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, category) })
	if err == nil {
		d.marksWriter.forgetFile(d.FS.PathBase(from))
	}
	file, err = d.track(to, file, err)
	return d.wrapVital(file, err, d.isLog(to))
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	file, err := d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.OpenDir(name) })
	return d.wrapVital(file, err, name == d.store)
}

func (d *disk) wrapVital(file vfs.File, err error, is bool) (vfs.File, error) {
	if !is {
		return file, err
	}
	if d.endJournalOn(err) != nil {
		return nil, err
	}
	return vitalFile{file, d}, nil
}

// must does not return an error that ends the journal.
func (d *disk) endJournalOn(err error) error {
	if err == nil || !d.running.Load() {
		return err
	}
	d.errors.failure.fail(fmt.Errorf("log: %w", err))
	select {}
}

// vital is a file that the journal cannot go on without.
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

const (
	// firstDescriptorPause and longestDescriptorPause are between attempts to open a file when the process has no file
	// descriptor left.
	minDescriptorPause = time.Millisecond
	maxDescriptorPause = 100 * time.Millisecond
	// descriptorPatience bounds the attempts to open a file for reading.
	descriptorTimeout = 5 * time.Second
)

// outOfDescriptors reports whether an error says that the process or the machine has no file descriptor left, which passes.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// await calls open until there is a file descriptor for it: as long as the journal is open where Pebble could not go on
// without the file, else for descriptorPatience.
func (d *disk) openWhenPossible(name string, vital bool, open func() (vfs.File, error)) (vfs.File, error) {
	began := time.Now()
	for pause := minDescriptorPause; ; pause = min(2*pause, maxDescriptorPause) {
		file, err := open()
		if !outOfDescriptors(err) || !(vital && d.running.Load()) && time.Since(began) > descriptorTimeout {
			return file, err
		}
		if pause == minDescriptorPause {
			d.errors.failure.logger.Error("the journal waits for a file descriptor: the process has none left",
				slog.String("file", name), slog.Any("error", err))
		}
		time.Sleep(pause)
	}
}

// Open and OpenReadWrite are of vfs.FS.
func (d *disk) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return d.openWhenPossible(name, false, func() (vfs.File, error) { return d.FS.Open(name, options...) })
}

func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return d.openWhenPossible(name, true, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, category, options...) })
}

// maxBackgroundErrors in a row are more than a passing trouble.
const maxBackgroundErrors = 16

// background judges the errors of flushes and compactions, which Pebble tries again by itself. A full disk may get room
// again, and until then the writer refuses; file descriptors become free again; any other error that does not pass is the end.
type backgroundErrors struct {
	failure *failure
	metrics *metrics
	// errors in a row, and those among them that were not for want of room or of descriptors.
	consecutive atomic.Int32
	unexpected  atomic.Int32
}

// failed is called with Pebble's locks held.
func (b *backgroundErrors) recordError(err error) {
	b.metrics.backgroundErrors.Inc()
	b.failure.logger.Error("pebble in the background", "error", err)
	b.consecutive.Add(1)
	if errors.Is(err, syscall.ENOSPC) || outOfDescriptors(err) {
		return
	}
	if b.unexpected.Add(1) == maxBackgroundErrors {
		b.failure.fail(fmt.Errorf("background: %w", err))
	}
}

func (b *backgroundErrors) recordFlush(info pebble.FlushInfo) {
	if info.Err == nil {
		b.consecutive.Store(0)
		b.unexpected.Store(0)
	}
}

// damaged logs what Pebble found when it met bytes that are not those that were written. The read that met them returns
// an error; other reads go on. Pebble's default is to end the process.
func (b *backgroundErrors) reportCorruption(info pebble.DataCorruptionInfo) {
	b.metrics.damagedReads.Inc()
	b.failure.logger.Error("a file of the journal is damaged: restore the data directory from a copy",
		"file", info.Path, "error", info.Details)
}

func (b *backgroundErrors) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: b.recordError,
		DataCorruption:  b.reportCorruption,
		FlushEnd:        b.recordFlush,
		WriteStallBegin: func(pebble.WriteStallBeginInfo) { b.metrics.stalls.Inc() },
	}
}
