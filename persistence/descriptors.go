package persistence

import (
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// firstDescriptorPause and longestDescriptorPause are between attempts to open a file when the process has no file
	// descriptor left.
	firstDescriptorPause   = time.Millisecond
	longestDescriptorPause = 100 * time.Millisecond
	// descriptorPatience bounds the attempts to open a file for reading.
	descriptorPatience = 5 * time.Second
)

// outOfDescriptors reports whether an error says that the process or the machine has no file descriptor left, which passes.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// await calls open until there is a file descriptor for it: as long as the journal is open where Pebble could not go on
// without the file, else for descriptorPatience.
func (d *disk) await(name string, vital bool, open func() (vfs.File, error)) (vfs.File, error) {
	began := time.Now()
	for pause := firstDescriptorPause; ; pause = min(2*pause, longestDescriptorPause) {
		file, err := open()
		if !outOfDescriptors(err) || !(vital && d.armed.Load()) && time.Since(began) > descriptorPatience {
			return file, err
		}
		if pause == firstDescriptorPause {
			d.background.failure.logger.Error("the journal waits for a file descriptor: the process has none left",
				slog.String("file", name), slog.Any("error", err))
		}
		time.Sleep(pause)
	}
}

// Open and OpenReadWrite are of vfs.FS.
func (d *disk) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	return d.await(name, false, func() (vfs.File, error) { return d.FS.Open(name, options...) })
}

func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return d.await(name, true, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, category, options...) })
}
