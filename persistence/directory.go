package persistence

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A data directory holds
//
//	LOCK     held by the process that has it open
//	FORMAT   what the directory is; written last, so that a copy that was cut off is not taken for one
//	MARKS    identity and high-water marks (see marks), where Options.Marks names no other file
//	store/   Pebble's files
const (
	lockName   = "LOCK"
	formatName = "FORMAT"
	storeName  = "store"

	formatVersion     = 2
	oldestFormat      = 1
	formatMarked      = "marked\n"
	defaultPartitions = 12
	maxPartitions     = 1 << 12
)

// A directory of an older format is read as it is, and gets formatVersion before anything is written that programs of the
// older format do not read:
//
//	1  the first
//	2  an entry of an index may stand for many rows; see AppendPostings of package activity

// format is what a data directory says of itself. Disk is made once and never copied: it tells a member of a cluster
// that has lost its disk from the one that it was.
type format struct {
	version    int
	partitions int
	disk       string
	// marked tells that the directory has marks, without which it does not open. Versions of this program before the
	// marks pass over it.
	marked bool
}

// newID returns a random id of 32 hexadecimal digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (f format) String() string {
	text := fmt.Sprintf("atelier journal %d\npartitions %d\ndisk %s\n", f.version, f.partitions, f.disk)
	if f.marked {
		text += formatMarked
	}
	return text
}

func parseFormat(text string) (format, error) {
	var f format
	if _, err := fmt.Sscanf(text, "atelier journal %d\n", &f.version); err != nil {
		return f, errors.New("not a journal's format file")
	}
	if f.version < oldestFormat || f.version > formatVersion {
		return f, fmt.Errorf("format %d; this program reads %d to %d", f.version, oldestFormat, formatVersion)
	}
	_, err := fmt.Sscanf(text, "atelier journal %d\npartitions %d\ndisk %s\n", &f.version, &f.partitions, &f.disk)
	if err != nil {
		return f, fmt.Errorf("malformed format file: %w", err)
	}
	if f.partitions < 1 || f.partitions > maxPartitions {
		return f, fmt.Errorf("%d partitions", f.partitions)
	}
	f.marked = strings.HasSuffix(text, "\n"+formatMarked)
	return f, nil
}

// directory is a data directory that this process holds.
type directory struct {
	fs     vfs.FS
	path   string
	lock   io.Closer
	format format

	// marksPath is the file of the marks; marks is what it held when the directory was opened, nil where it was missing.
	marksPath string
	marks     *marks
	// isCopy tells that the file of the marks is a copy of the one that was written.
	isCopy bool
}

func (d *directory) name(base string) string { return d.fs.PathJoin(d.path, base) }

// openDirectory locks the data directory, and makes it where there is none. Where a part of it is missing, it returns
// ErrDamaged and has made nothing.
func openDirectory(o Options) (*directory, error) {
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	err := d.checkParts()
	if err == nil {
		err = d.fs.MkdirAll(d.path, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	if d.lock, err = d.fs.Lock(d.name(lockName)); err != nil {
		return nil, fmt.Errorf("data directory %s is in use by another process: %w", d.path, err)
	}
	if err := d.identify(o.Partitions); err != nil {
		_ = d.lock.Close()
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	return d, nil
}

// Inspect reports whether there is a journal in a data directory, without opening it. Errors: ErrDamaged where a part of
// one that held history is missing.
func Inspect(o Options) (bool, error) {
	o = o.withDefaults()
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	err := d.checkParts()
	if err == nil {
		var present bool
		if present, err = d.has(formatName); err == nil {
			return present, nil
		}
	}
	return false, fmt.Errorf("data directory %s: %w", o.Dir, err)
}

// has reports whether a part of the directory is there.
func (d *directory) has(base string) (bool, error) {
	_, err := d.fs.Stat(d.name(base))
	if oserror.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// checkParts returns ErrDamaged where the format file or the store of a journal with history is missing.
func (d *directory) checkParts() error {
	hasFormat, err := d.has(formatName)
	if err != nil {
		return err
	}
	hasStore, err := d.has(storeName)
	if err != nil || hasFormat && hasStore {
		return err
	}
	m, _, err := readMarks(d.fs, d.marksPath)
	switch {
	case err != nil:
		return err
	case !hasFormat && hasStore:
		return damaged("%s is there without %s: a copy that was cut off", d.name(storeName), d.name(formatName))
	case m != nil && m.hasHistory() && !hasFormat:
		return damaged("%s is missing; %s says that there was a journal", d.name(formatName), d.marksPath)
	case hasFormat && (m == nil || m.hasHistory()):
		return damaged("%s is missing", d.name(storeName))
	}
	return nil
}

// identify reads the format file and the marks, or makes them for a new directory.
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
	if d.marks, d.isCopy, err = readMarks(d.fs, d.marksPath); err != nil {
		return err
	}
	switch m := d.marks; {
	case m == nil && d.format.marked:
		return damaged("the marks of the journal are missing: %s", d.marksPath)
	case m != nil && m.disk != d.format.disk:
		return damaged("the journal's id is %s, and the marks in %s are of journal %s", d.format.disk, d.marksPath, m.disk)
	case m != nil && len(m.shares) != d.format.partitions:
		return damaged("the marks in %s are of %d partitions, not %d", d.marksPath, len(m.shares), d.format.partitions)
	}
	return nil
}

// create makes the marks before the format file: a directory with a format file has marks.
func (d *directory) create(partitions int) error {
	if partitions == 0 {
		partitions = defaultPartitions
	}
	if partitions < 1 || partitions > maxPartitions {
		return fmt.Errorf("%d partitions: 1 to %d are possible", partitions, maxPartitions)
	}
	d.format = format{version: formatVersion, partitions: partitions, disk: newID(), marked: true}
	d.marks = &marks{disk: d.format.disk, timeline: newID(), shares: make([]mark, partitions)}
	if err := writeMarks(d.fs, d.marksPath, d.marks); err != nil {
		return err
	}
	return d.write()
}

// verify returns the marks to go on with, which are durable: those that were there, once the store is found to hold
// what they promise, or new ones for a store without marks. The marks of a copy get another timeline.
// Errors: ErrDamaged; nothing has been changed then.
func (d *directory) verify(v *verifier) (marks, error) {
	if d.marks != nil && !d.marks.hasHistory() {
		return *d.marks, nil // the store is new, or was never opened
	}
	held, err := v.verify(d.marks, d.format.partitions)
	if err != nil {
		return marks{}, err
	}
	timeline := newID()
	switch {
	case d.marks == nil:
		v.logger.Info("the journal had no marks, and has them now", "path", d.marksPath)
	case d.isCopy:
		v.logger.Warn("the data directory is a copy: cursors that the original gave out end", "path", d.marksPath)
	default:
		timeline = d.marks.timeline
	}
	return d.accept(held, timeline)
}

// accept makes marks durable of what a store holds.
func (d *directory) accept(held found, timeline string) (marks, error) {
	m := marks{disk: d.format.disk, timeline: timeline, shares: held.shares, manifests: []extent{held.manifest}}
	if err := writeMarks(d.fs, d.marksPath, &m); err != nil {
		return m, err
	}
	if d.format.marked {
		return m, nil
	}
	d.format.marked = true
	return m, d.write()
}

// upgrade makes a directory of an older format one of formatVersion. It is called once the store has been verified, before
// the store is opened for writing.
func (d *directory) upgrade() error {
	if d.format.version == formatVersion {
		return nil
	}
	d.format.version = formatVersion
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
