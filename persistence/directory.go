package persistence

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A data directory holds
//
//	LOCK     held by the process that has it open
//	FORMAT   what the directory is; written last, so that a copy that was cut off is not taken for one
//	store/   Pebble's files
const (
	lockName   = "LOCK"
	formatName = "FORMAT"
	storeName  = "store"

	formatVersion     = 1
	defaultPartitions = 12
	maxPartitions     = 1 << 12
)

// format is what a data directory says of itself. Disk is made once and never copied: it tells a member of a cluster
// that has lost its disk from the one that it was.
type format struct {
	version    int
	partitions int
	disk       string
}

func newDisk() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (f format) String() string {
	return fmt.Sprintf("atelier journal %d\npartitions %d\ndisk %s\n", f.version, f.partitions, f.disk)
}

func parseFormat(text string) (format, error) {
	var f format
	if _, err := fmt.Sscanf(text, "atelier journal %d\n", &f.version); err != nil {
		return f, errors.New("not a journal's format file")
	}
	if f.version != formatVersion {
		return f, fmt.Errorf("format %d; this program reads %d", f.version, formatVersion)
	}
	_, err := fmt.Sscanf(text, "atelier journal %d\npartitions %d\ndisk %s\n", &f.version, &f.partitions, &f.disk)
	if err != nil {
		return f, fmt.Errorf("malformed format file: %w", err)
	}
	if f.partitions < 1 || f.partitions > maxPartitions {
		return f, fmt.Errorf("%d partitions", f.partitions)
	}
	return f, nil
}

// directory is a data directory that this process holds.
type directory struct {
	fs     vfs.FS
	path   string
	lock   io.Closer
	format format
}

func (d *directory) name(base string) string { return d.fs.PathJoin(d.path, base) }

// openDirectory locks the directory, and makes it where there is none. partitions of 0: whatever it has.
func openDirectory(fs vfs.FS, path string, partitions int) (*directory, error) {
	d := &directory{fs: fs, path: path}
	if err := fs.MkdirAll(path, 0o750); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	var err error
	if d.lock, err = fs.Lock(d.name(lockName)); err != nil {
		return nil, fmt.Errorf("data directory %s is in use by another process: %w", path, err)
	}
	if err := d.identify(partitions); err != nil {
		_ = d.lock.Close()
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	return d, nil
}

func (d *directory) identify(partitions int) error {
	text, err := d.read()
	if oserror.IsNotExist(err) {
		return d.create(partitions)
	}
	if err != nil {
		return err
	}
	if d.format, err = parseFormat(text); err != nil {
		return err
	}
	if partitions != 0 && partitions != d.format.partitions {
		return fmt.Errorf("it has %d partitions, not %d: the number is fixed when it is made",
			d.format.partitions, partitions)
	}
	return nil
}

func (d *directory) create(partitions int) error {
	if _, err := d.fs.Stat(d.name(storeName)); err == nil {
		return errors.New("it has data but no format file: a copy that was cut off")
	}
	if partitions == 0 {
		partitions = defaultPartitions
	}
	if partitions < 1 || partitions > maxPartitions {
		return fmt.Errorf("%d partitions: 1 to %d are possible", partitions, maxPartitions)
	}
	d.format = format{version: formatVersion, partitions: partitions, disk: newDisk()}
	return d.write()
}

func (d *directory) read() (string, error) {
	file, err := d.fs.Open(d.name(formatName))
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	return string(text), err
}

// write makes the format file durable, and the directory that holds it.
func (d *directory) write() error {
	temporary := d.name(formatName + ".new")
	file, err := d.fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(d.format.String()))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(temporary, d.name(formatName)); err != nil {
		return err
	}
	return errors.Join(syncDirectory(d.fs, d.path), syncDirectory(d.fs, d.fs.PathDir(d.path)))
}

func syncDirectory(fs vfs.FS, path string) error {
	dir, err := fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
