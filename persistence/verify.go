package persistence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// verifier compares a store with the marks before Pebble opens it for writing: step 2 of opening a store in the package
// comment. It changes nothing on the disk.
//
// It is needed because Pebble takes a damaged record of its manifest for the end of the manifest, and then removes the
// tables and logs that the remaining records do not name. The verifier therefore checks the manifest itself, opens the
// store on a file system that refuses every change and shows empty logs, and reads the tables and logs. The logs are
// replayed by the open that follows.
type verifier struct {
	fs       vfs.FS
	readOnly *readOnlyFS
	store    string
	options  *pebble.Options
	logger   *slog.Logger
	// synced are the promised beginnings of logs.
	synced []extent
	// mayLackFeed is Options.mayLackFeed.
	mayLackFeed bool
	// lastLog is the path of the last log that verify has read, if there is one. isTorn reports that its last record is incomplete.
	lastLog string
	isTorn  bool
}

// maxCheckedBytes bounds the bytes of tables with blocks that are verified before the journal opens, beginning with the
// newest table. Only the footer, index and properties of older tables are read; their blocks are verified at each read.
const maxCheckedBytes = 64 << 20

// storeContents is the current manifest of a store, and the last epoch and sequence of each partition.
type storeContents struct {
	manifest   extent
	partitions []partitionMark
}

// verifier returns a verifier of the store in d.
func (o Options) verifier(d *directory) *verifier {
	t := &readOnlyFS{FS: o.FS}
	p := o.pebble(t, &backgroundErrors{})
	p.Logger = readOnlyLogger{o.Logger}
	// A read of a damaged block returns an error; the event is not needed.
	p.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	p.ReadOnly = true
	p.ErrorIfNotExists = true
	p.CacheSize = minCache
	p.EnsureDefaults() // checkTable uses the defaults too
	return &verifier{fs: o.FS, readOnly: t, store: d.join(storeName), options: p, logger: o.Logger, synced: d.synced, mayLackFeed: o.mayLackFeed}
}

// verify returns the content of the store. It returns ErrDamaged if the store contains less than the marks promise or
// cannot be read. m is nil for a store without marks.
func (v *verifier) verify(m *marks, partitions int) (storeContents, error) {
	var f storeContents
	name, err := atomicfs.ReadMarker(v.fs, v.store, manifestMarker)
	if err != nil {
		return f, damaged("%s: %w", v.store, err)
	}
	if name == "" {
		return f, damaged("the store has no manifest: %s* is missing", v.fs.PathJoin(v.store, manifestMarkerPrefix))
	}
	if f.manifest, err = v.extentOf(name); err != nil {
		return f, damaged("the manifest %s: %w", v.fs.PathJoin(v.store, name), err)
	}
	if err := v.checkFiles(m, name); err != nil {
		return f, err
	}
	if err := v.checkSmallFiles(); err != nil {
		return f, damaged("%w", err)
	}
	if err := recovered(func() (err error) { f.partitions, err = v.readStore(partitions); return err }); err != nil {
		return f, damaged("%s cannot be read: %w", v.store, err)
	}
	if m == nil {
		return f, nil
	}
	for p, least := range m.partitions {
		if has := f.partitions[p]; has.epoch < least.epoch || has.sequence < least.sequence && !v.mayLackFeed {
			return f, damaged("%s: partition %d ends at event %d of epoch %d, but has contained event %d of epoch %d",
				cmp.Or(v.lastLog, v.store), p, has.sequence, has.epoch, least.sequence, least.epoch)
		}
	}
	return f, nil
}

// checkFiles compares the current manifest and the promised beginnings of logs with their extents and, after an orderly end, also all logs.
func (v *verifier) checkFiles(m *marks, current string) error {
	if m == nil || len(m.manifests) == 0 {
		return nil
	}
	at := slices.IndexFunc(m.manifests, func(e extent) bool { return e.name == current })
	if at < 0 {
		last := m.manifests[len(m.manifests)-1].name
		if len(current) < len(last) || len(current) == len(last) && current < last {
			return damaged("the current manifest is %s, older than %s", v.fs.PathJoin(v.store, current), last)
		}
		// An older version of this program, which has no marks, has opened the store meanwhile.
		v.logger.Warn("the store was last written by a program that keeps no marks", "manifest", current, "marked", last)
		return nil
	}
	expected := slices.Concat(m.manifests[at:at+1], v.synced)
	if m.sealed {
		expected = append(expected, m.logs...)
	}
	for _, e := range expected {
		if err := v.checkExtent(e); err != nil {
			return damaged("%s: %w", v.fs.PathJoin(v.store, e.name), err)
		}
	}
	return nil
}

// checkExtent returns an error unless the file begins with the bytes of its extent.
func (v *verifier) checkExtent(e extent) error {
	file, err := v.fs.Open(v.fs.PathJoin(v.store, e.name))
	if oserror.IsNotExist(err) {
		return errors.New("the file is missing")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, io.LimitReader(file, e.length))
	switch {
	case err != nil:
		return err
	case n < e.length:
		return fmt.Errorf("the file has %d bytes, and had at least %d", n, e.length)
	case sum.Sum32() != e.sum:
		return fmt.Errorf("the first %d bytes differ from the bytes that were written", e.length)
	}
	return nil
}

// extentOf returns the extent of a whole file.
func (v *verifier) extentOf(name string) (extent, error) {
	file, err := v.fs.Open(v.fs.PathJoin(v.store, name))
	if err != nil {
		return extent{}, err
	}
	defer file.Close()
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, file)
	return extent{name, n, sum.Sum32()}, err
}

// recovered returns the error of work. A panic of Pebble on damaged data becomes an error.
func recovered(work func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			err = fmt.Errorf("%v", r)
		}
	}()
	return work()
}

// readStore opens the store read-only, checks its tables and logs, and returns the last epoch and sequence of each
// partition.
func (v *verifier) readStore(partitions int) (reached []partitionMark, err error) {
	db, err := v.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := v.checkTables(db); err != nil {
		return nil, err
	}
	if reached, err = readReached(db, partitions); err != nil {
		return nil, err
	}
	return reached, v.readLogs(reached)
}

// readReached returns the last epoch and sequence of each partition in the tables of a store.
func readReached(db *pebble.DB, partitions int) (reached []partitionMark, err error) {
	reached = make([]partitionMark, partitions)
	for i := range reached {
		p := Partition(i)
		if reached[i].epoch, err = readNumber(db, appendHeader(nil, p, tagTerm)); err != nil {
			return nil, err
		}
		if reached[i].sequence, err = lastSequence(db, p); err != nil {
			return nil, err
		}
	}
	return reached, nil
}

// table is the file of a table and its size.
type table struct {
	name string
	size uint64
}

// listTables returns the tables of a store, beginning with the newest.
func (v *verifier) listTables(db *pebble.DB) ([]table, error) {
	levels, err := db.SSTables()
	if err != nil {
		return nil, err
	}
	all := slices.Concat(levels...)
	slices.SortFunc(all, func(a, b pebble.SSTableInfo) int { return int(b.BackingSSTNum) - int(a.BackingSSTNum) })
	tables := make([]table, len(all))
	for i, t := range all {
		tables[i] = table{fmt.Sprintf("%06d%s", t.BackingSSTNum, tableSuffix), t.Size}
	}
	return tables, nil
}

// checkTables opens every table, and verifies all blocks of the newest ones up to maxCheckedBytes.
func (v *verifier) checkTables(db *pebble.DB) error {
	tables, err := v.listTables(db)
	if err != nil {
		return err
	}
	left := int64(maxCheckedBytes)
	for _, t := range tables {
		left -= int64(t.size)
		if err := v.checkTable(t.name, left >= 0); err != nil {
			return fmt.Errorf("table %s: %w", v.fs.PathJoin(v.store, t.name), err)
		}
	}
	return nil
}

// checkTable reads the footer, index and properties of a table and, if whole, verifies all of its blocks.
func (v *verifier) checkTable(name string, whole bool) error {
	file, err := v.fs.Open(v.fs.PathJoin(v.store, name))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	reader, err := sstable.NewReader(context.Background(), readable, v.options.MakeReaderOptions()) // closes readable
	if err != nil {
		return err
	}
	layout, err := reader.Layout()
	if err == nil && whole {
		err = checkBlocks(file, layout)
	}
	return errors.Join(err, reader.Close())
}

// checkBlocks verifies the checksum of every block of a table. sstable.Reader.ValidateBlockChecksums omits the blocks
// with values that are stored apart from their keys.
func checkBlocks(file io.ReaderAt, l *sstable.Layout) error {
	handles := slices.Concat(l.Index, l.ValueBlock, []block.Handle{l.TopIndex, l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex})
	for _, b := range l.Data {
		handles = append(handles, b.Handle)
	}
	for _, b := range l.Filter {
		handles = append(handles, b.Handle)
	}
	slices.SortFunc(handles, func(a, b block.Handle) int { return cmp.Compare(a.Offset, b.Offset) })
	var bytes []byte
	for _, h := range handles {
		if h.Length == 0 {
			continue // the table has no such block
		}
		bytes = slices.Grow(bytes[:0], int(h.Length)+block.TrailerLen)[:h.Length+block.TrailerLen]
		if _, err := file.ReadAt(bytes, int64(h.Offset)); err != nil {
			return err
		}
		if err := block.ValidateChecksum(block.ChecksumTypeCRC32c, bytes, h); err != nil {
			return fmt.Errorf("block at byte %d: %w", h.Offset, err)
		}
	}
	return nil
}

// readOnlyFS is a file system on which Pebble can open a store without changing it: it refuses all writes and shows empty
// logs. It adds each log that Pebble opens to logs.
type readOnlyFS struct {
	vfs.FS
	logs wal.FileAccumulator
	// showsLogs reports that logs are not empty, so that Pebble replays them in memory.
	showsLogs bool
}

// Open opens a file for reading.
func (t *readOnlyFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := t.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, logSuffix) || t.showsLogs {
		return file, err
	}
	_, err = t.logs.MaybeAccumulate(t.FS, name)
	return emptyFile{file}, err
}

// emptyFile is a file that appears empty.
type emptyFile struct{ vfs.File }

func (emptyFile) Read([]byte) (int, error) { return 0, io.EOF }

var errReadOnly = errors.New("the store is open for reading only")

// noLock is a lock without effect.
type noLock struct{}

func (noLock) Close() error { return nil }

// Lock does nothing, because openDirectory has locked the data directory.
func (*readOnlyFS) Lock(string) (io.Closer, error) { return noLock{}, nil }

func (*readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }
func (*readOnlyFS) Link(string, string) error                              { return errReadOnly }
func (*readOnlyFS) Remove(string) error                                    { return errReadOnly }
func (*readOnlyFS) RemoveAll(string) error                                 { return errReadOnly }
func (*readOnlyFS) Rename(string, string) error                            { return errReadOnly }
func (*readOnlyFS) MkdirAll(string, fs.FileMode) error                     { return errReadOnly }
func (*readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

func (*readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

// readOnlyLogger turns Pebble's fatal errors into panics, which readStore recovers.
type readOnlyLogger struct{ slog *slog.Logger }

func (l readOnlyLogger) Infof(format string, args ...any) {
	l.slog.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l readOnlyLogger) Errorf(format string, args ...any) { l.Infof(format, args...) }

// Fatalf panics, because it must not return.
func (l readOnlyLogger) Fatalf(format string, args ...any) {
	panic(pebbleFatal{fmt.Errorf(format, args...)})
}
