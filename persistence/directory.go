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

// A data directory contains:
//
//	LOCK     locked by the process that has the directory open
//	FORMAT   format, number of partitions and id; written last, so that an interrupted copy does not open
//	ACCEPTED a line for each acceptance of a loss (see accepted), unless there was none
//	SYNCED   the promised beginnings of the logs (see syncedLogs)
//	MARKS    identity and high-water marks (see marks), unless Options.Marks names another file
//	store/   Pebble's files
const (
	lockName   = "LOCK"
	formatName = "FORMAT"
	storeName  = "store"

	formatVersion     = 3
	formatSynced      = 3
	oldestFormat      = 1
	formatMarked      = "marked\n"
	defaultPartitions = 12
	maxPartitions     = 1 << 12
)

// A directory of an older format is readable as it is. Its format file gets formatVersion before the first write, because
// programs that know only the older format could not read later rows:
//
//	1  the first format
//	2  one index entry may represent many rows; see AppendPostings of package activity
//	3  heads have the bytes of streams, events may be erased (see headRow), and the file SYNCED promises the beginnings of logs, which only
//	   programs that know the file keep

// format is the content of the format file. disk is the id of the data directory. It is random and never copied, so that
// a cluster can tell a member that has lost its disk from the member that it was.
type format struct {
	version    int
	partitions int
	disk       string
	// marked reports that the directory has marks, without which it does not open. Programs older than the marks ignore
	// it.
	marked bool
}

// newID returns a random id of 32 hexadecimal digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// String encodes the format file.
func (f format) String() string {
	text := fmt.Sprintf("atelier journal %d\npartitions %d\ndisk %s\n", f.version, f.partitions, f.disk)
	if f.marked {
		text += formatMarked
	}
	return text
}

// parseFormat decodes a format file. It fails if the file is malformed or of an unknown version.
func parseFormat(text string) (format, error) {
	var f format
	if _, err := fmt.Sscanf(text, "atelier journal %d\n", &f.version); err != nil {
		return f, errors.New("the file is not the FORMAT of a journal")
	}
	if f.version < oldestFormat || f.version > formatVersion {
		return f, fmt.Errorf("the format is version %d; this program reads %d to %d", f.version, oldestFormat, formatVersion)
	}
	_, err := fmt.Sscanf(text, "atelier journal %d\npartitions %d\ndisk %s\n", &f.version, &f.partitions, &f.disk)
	if err != nil {
		return f, fmt.Errorf("malformed format file: %w", err)
	}
	if f.partitions < 1 || f.partitions > maxPartitions {
		return f, fmt.Errorf("malformed format file: %d partitions", f.partitions)
	}
	f.marked = strings.HasSuffix(text, "\n"+formatMarked)
	return f, nil
}

// directory is a data directory that this process has locked.
type directory struct {
	fs     vfs.FS
	path   string
	lock   io.Closer
	format format

	// marksPath is the file of the marks. marks is its content when the directory was opened, or nil if it did not exist.
	marksPath string
	marks     *marks
	// isCopy reports that the file of the marks is a copy of the file that was written (see fileIDOf).
	isCopy bool
	// synced has the promises of the file SYNCED when the directory was opened.
	synced []extent
}

// join returns the path of a part of the directory.
func (d *directory) join(base string) string { return d.fs.PathJoin(d.path, base) }

// openDirectory locks the data directory, and creates it if it does not exist: step 1 of opening a store. It returns
// ErrDamaged, and has created nothing, if a part of the directory is missing.
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

// Inspect reports whether a data directory contains a journal, without opening it. It returns ErrDamaged if a part of a
// journal with history is missing.
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

// contains reports whether a part of the directory exists.
func (d *directory) contains(base string) (bool, error) {
	_, err := d.fs.Stat(d.join(base))
	if oserror.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// checkParts returns ErrDamaged if the format file or the store of a journal with history is missing.
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
		return damaged("%s exists without %s: the copy was interrupted", d.join(storeName), d.join(formatName))
	case m != nil && m.hasHistory() && !hasFormat:
		return damaged("%s is missing, but according to %s the directory had a journal", d.join(formatName), d.marksPath)
	case hasFormat && (m == nil || m.hasHistory()):
		return damaged("%s is missing", d.join(storeName))
	}
	return nil
}

// readIdentity reads the format file and the marks, or creates them for a new directory. It returns ErrDamaged if they do
// not belong together.
func (d *directory) readIdentity(partitions int) error {
	text, err := d.readFormat()
	if oserror.IsNotExist(err) {
		return d.create(partitions)
	}
	if err != nil {
		return err
	}
	if d.format, err = parseFormat(text); err != nil {
		return fmt.Errorf("%s: %w", d.join(formatName), err)
	}
	if partitions != 0 && partitions != d.format.partitions {
		return fmt.Errorf("it has %d partitions, not %d: the number cannot be changed",
			d.format.partitions, partitions)
	}
	if d.marks, d.isCopy, err = readMarks(d.fs, d.marksPath); err != nil {
		return err
	}
	switch m := d.marks; {
	case m == nil && d.format.marked:
		return damaged("the marks of the journal are missing: %s does not exist", d.marksPath)
	case m != nil && m.disk != d.format.disk:
		return damaged("the id of the journal in %s is %s, but the marks in %s belong to journal %s", d.join(formatName), d.format.disk, d.marksPath, m.disk)
	case m != nil && len(m.partitions) != d.format.partitions:
		return damaged("the marks in %s have %d partitions, but %s says %d", d.marksPath, len(m.partitions), d.join(formatName), d.format.partitions)
	}
	d.synced, err = d.readSynced()
	return err
}

// create writes the marks and then the format file of a new directory. In this order, a directory with a format file
// always has marks.
func (d *directory) create(partitions int) error {
	if partitions == 0 {
		partitions = defaultPartitions
	}
	if partitions < 1 || partitions > maxPartitions {
		return fmt.Errorf("%d partitions are not possible: use 1 to %d", partitions, maxPartitions)
	}
	d.format = format{version: formatVersion, partitions: partitions, disk: newID(), marked: true}
	d.marks = &marks{disk: d.format.disk, timeline: newID(), partitions: make([]partitionMark, partitions)}
	if err := writeMarks(d.fs, d.marksPath, d.marks); err != nil {
		return err
	}
	return d.writeFormat()
}

// verifyStore checks that the store contains the content that the marks promise, makes new marks of its content durable
// and returns them. A store without marks, and a copy of a data directory, get a new timeline. It returns ErrDamaged, and
// has changed nothing, if the store contains less than the marks promise or cannot be read.
func (d *directory) verifyStore(v *verifier) (marks, error) {
	if d.marks != nil && !d.marks.hasHistory() {
		return *d.marks, nil // a new store, or one that was never opened for writing
	}
	held, err := v.verify(d.marks, d.format.partitions)
	if err != nil {
		return marks{}, err
	}
	timeline := newID()
	switch {
	case d.marks == nil:
		v.logger.Info("created the marks of a journal that had none", "path", d.marksPath)
	case d.isCopy:
		v.logger.Warn("the data directory is a copy: cursors from the original become invalid", "path", d.marksPath)
	default:
		timeline = d.marks.timeline
	}
	return d.writeMarksOf(held, timeline)
}

// writeMarksOf makes marks durable that promise the content of a store, and returns them.
func (d *directory) writeMarksOf(held storeContents, timeline string) (marks, error) {
	m := marks{disk: d.format.disk, timeline: timeline, partitions: held.partitions, manifests: []extent{held.manifest}}
	if err := writeMarks(d.fs, d.marksPath, &m); err != nil {
		return m, err
	}
	if d.format.marked {
		return m, nil
	}
	if err := d.replaceSynced(); err != nil { // a directory with marks is expected to have the file
		return m, err
	}
	d.format.marked = true
	return m, d.writeFormat()
}

// replaceSynced makes a file SYNCED without promises.
func (d *directory) replaceSynced() error {
	d.synced = nil
	s, err := createSynced(d, nil, nil)
	if err != nil {
		return err
	}
	return s.close()
}

// upgradeFormat raises the directory to formatVersion. It is called after the store is verified and before it is opened
// for writing.
func (d *directory) upgradeFormat() error {
	if d.format.version == formatVersion {
		return nil
	}
	d.format.version = formatVersion
	return d.writeFormat()
}

// readFormat returns the text of the format file.
func (d *directory) readFormat() (string, error) {
	file, err := d.fs.Open(d.join(formatName))
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	return string(text), err
}

// writeFormat makes the format file durable, and the directory with it.
func (d *directory) writeFormat() error {
	return errors.Join(d.replace(formatName, []byte(d.format.String())), syncDirectory(d.fs, d.fs.PathDir(d.path)))
}

// replace replaces a part of the directory atomically and durably.
func (d *directory) replace(base string, content []byte) error {
	temporary := d.join(base + ".new")
	file, err := d.fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(temporary, d.join(base)); err != nil {
		return err
	}
	return syncDirectory(d.fs, d.path)
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(fs vfs.FS, path string) error {
	dir, err := fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
