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

func (d *directory) join(base string) string { return d.fs.PathJoin(d.path, base) }

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
	if d.lock, err = d.fs.Lock(d.join(lockName)); err != nil {
		return nil, fmt.Errorf("data directory %s is in use by another process: %w", d.path, err)
	}
	if err := d.readIdentity(o.Partitions); err != nil {
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
		if present, err = d.contains(formatName); err == nil {
			return present, nil
		}
	}
	return false, fmt.Errorf("data directory %s: %w", o.Dir, err)
}

// has reports whether a part of the directory is there.
func (d *directory) contains(base string) (bool, error) {
	_, err := d.fs.Stat(d.join(base))
	if oserror.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// checkParts returns ErrDamaged where the format file or the store of a journal with history is missing.
func (d *directory) checkParts() error {
	hasFormat, err := d.contains(formatName)
	if err != nil {
		return err
	}
	hasStore, err := d.contains(storeName)
	if err != nil || hasFormat && hasStore {
		return err
	}
	m, _, err := readMarks(d.fs, d.marksPath)
	switch {
	case err != nil:
		return err
	case !hasFormat && hasStore:
		return damaged("%s is there without %s: a copy that was cut off", d.join(storeName), d.join(formatName))
	case m != nil && m.hasHistory() && !hasFormat:
		return damaged("%s is missing; %s says that there was a journal", d.join(formatName), d.marksPath)
	case hasFormat && (m == nil || m.hasHistory()):
		return damaged("%s is missing", d.join(storeName))
	}
	return nil
}

// identify reads the format file and the marks, or makes them for a new directory.
func (d *directory) readIdentity(partitions int) error {
	text, err := d.readFormat()
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
	case m != nil && len(m.partitions) != d.format.partitions:
		return damaged("the marks in %s are of %d partitions, not %d", d.marksPath, len(m.partitions), d.format.partitions)
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
	d.marks = &marks{disk: d.format.disk, timeline: newID(), partitions: make([]partitionMark, partitions)}
	if err := writeMarks(d.fs, d.marksPath, d.marks); err != nil {
		return err
	}
	return d.writeFormat()
}

// verify returns the marks to go on with, which are durable: those that were there, once the store is found to hold
// what they promise, or new ones for a store without marks. The marks of a copy get another timeline.
// Errors: ErrDamaged; nothing has been changed then.
func (d *directory) verifyStore(v *verifier) (marks, error) {
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
	return d.writeMarksOf(held, timeline)
}

// accept makes marks durable of what a store holds.
func (d *directory) writeMarksOf(held storeContents, timeline string) (marks, error) {
	m := marks{disk: d.format.disk, timeline: timeline, partitions: held.partitions, manifests: []extent{held.manifest}}
	if err := writeMarks(d.fs, d.marksPath, &m); err != nil {
		return m, err
	}
	if d.format.marked {
		return m, nil
	}
	d.format.marked = true
	return m, d.writeFormat()
}

// upgrade makes a directory of an older format one of formatVersion. It is called once the store has been verified, before
// the store is opened for writing.
func (d *directory) upgradeFormat() error {
	if d.format.version == formatVersion {
		return nil
	}
	d.format.version = formatVersion
	return d.writeFormat()
}

func (d *directory) readFormat() (string, error) {
	file, err := d.fs.Open(d.join(formatName))
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	return string(text), err
}

// write makes the format file durable, and the directory that holds it.
func (d *directory) writeFormat() error {
	temporary := d.join(formatName + ".new")
	file, err := d.fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(d.format.String()))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(temporary, d.join(formatName)); err != nil {
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

// Acceptance is what Accept found.
type Acceptance struct {
	// Events is the number of events that the journal holds, by the sequences of its feeds.
	Events uint64
	// Missing is how many more events its marks promise; 0 where the marks are missing or cannot be read.
	Missing uint64
}

// Accept makes a data directory open as it stands, whatever its marks promise: its operator has restored it in parts, or
// gives up what is lost. The journal must not be open, and must be readable. It gets a new timeline, so that cursors
// from before are refused; its events stay as they are.
func Accept(o Options) (Acceptance, error) {
	o = o.withDefaults()
	a, err := acceptStore(o)
	if err != nil {
		return a, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return a, nil
}

func acceptStore(o Options) (a Acceptance, err error) {
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	for _, part := range []string{formatName, storeName} {
		if has, err := d.contains(part); err != nil {
			return a, err
		} else if !has {
			return a, damaged("%s is missing", d.join(part))
		}
	}
	if d.lock, err = d.fs.Lock(d.join(lockName)); err != nil {
		return a, fmt.Errorf("in use by another process: %w", err)
	}
	defer d.lock.Close()
	text, err := d.readFormat()
	if err != nil {
		return a, err
	}
	if d.format, err = parseFormat(text); err != nil {
		return a, err
	}
	held, err := o.verifier(d).verify(nil, d.format.partitions)
	if err != nil {
		return a, err
	}
	promised, _, _ := readMarks(o.FS, o.Marks) // marks that cannot be read are replaced
	for p, has := range held.partitions {
		a.Events += has.sequence
		if promised != nil && p < len(promised.partitions) {
			a.Missing += max(promised.partitions[p].sequence, has.sequence) - has.sequence
		}
	}
	_, err = d.writeMarksOf(held, newID())
	return a, err
}
