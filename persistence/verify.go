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

// verifier compares a store with the marks before Pebble opens it for writing. Pebble takes a damaged record of its
// manifest for the end of the manifest, and then removes the tables and logs that the remaining records do not name. So
// the verifier reads the manifest itself, opens the store on a file system that refuses every change and shows empty
// logs, and reads the tables and logs. It changes nothing, and leaves the replay of the logs to the open that follows.
type verifier struct {
	fs      vfs.FS
	trial   *trial
	store   string
	options *pebble.Options
	logger  *slog.Logger
}

// checkedBytes bounds the bytes of tables whose blocks are verified before the journal opens, the newest tables first.
// Of the others, the footer, index and properties are read; their blocks are verified whenever they are read.
const checkedBytes = 64 << 20

// found is what a store holds.
type found struct {
	manifest extent
	shares   []mark
}

func (o Options) verifier(d *directory) *verifier {
	t := &trial{FS: o.FS}
	p := o.pebble(t, &background{})
	p.Logger = trialLogger{o.Logger}
	// The read that meets damage returns an error, which is enough here.
	p.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	p.ReadOnly = true
	p.ErrorIfNotExists = true
	p.CacheSize = minCache
	p.EnsureDefaults() // which tables needs as well
	return &verifier{fs: o.FS, trial: t, store: d.name(storeName), options: p, logger: o.Logger}
}

// verify returns what the store holds, or ErrDamaged if that is less than the marks promise or cannot be read. m is nil
// for a store without marks.
func (v *verifier) verify(m *marks, partitions int) (found, error) {
	var f found
	name, err := atomicfs.ReadMarker(v.fs, v.store, manifestMarker)
	if err != nil {
		return f, damaged("%s: %w", v.store, err)
	}
	if name == "" {
		return f, damaged("%s has no manifest", v.store)
	}
	if f.manifest, err = v.measure(name); err != nil {
		return f, damaged("the manifest %s: %w", name, err)
	}
	if err := v.files(m, name); err != nil {
		return f, err
	}
	if f.shares, err = v.open(partitions); err != nil {
		return f, damaged("%s cannot be read: %w", v.store, err)
	}
	if m == nil {
		return f, nil
	}
	for p, least := range m.shares {
		if has := f.shares[p]; has.epoch < least.epoch || has.sequence < least.sequence {
			return f, damaged("partition %d ends at event %d of epoch %d, and has held event %d of epoch %d",
				p, has.sequence, has.epoch, least.sequence, least.epoch)
		}
	}
	return f, nil
}

// files compares the current manifest with the marks and, after a clean end, the logs.
func (v *verifier) files(m *marks, current string) error {
	if m == nil || len(m.manifests) == 0 {
		return nil
	}
	at := slices.IndexFunc(m.manifests, func(e extent) bool { return e.name == current })
	if at < 0 {
		last := m.manifests[len(m.manifests)-1].name
		if len(current) < len(last) || len(current) == len(last) && current < last {
			return damaged("the current manifest is %s, older than %s", current, last)
		}
		// A version of this program that keeps no marks has opened the store since.
		v.logger.Warn("the store was written without its marks", "manifest", current, "marked", last)
		return nil
	}
	expected := m.manifests[at : at+1]
	if m.sealed {
		expected = append(slices.Clone(expected), m.logs...)
	}
	for _, e := range expected {
		if err := v.compare(e); err != nil {
			return damaged("%s: %w", v.fs.PathJoin(v.store, e.name), err)
		}
	}
	return nil
}

// compare checks that a file begins as it was written.
func (v *verifier) compare(e extent) error {
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
		return fmt.Errorf("the file ends after %d bytes, and has held %d", n, e.length)
	case sum.Sum32() != e.sum:
		return fmt.Errorf("the first %d bytes are not those that were written", e.length)
	}
	return nil
}

// measure returns the extent of a whole file.
func (v *verifier) measure(name string) (extent, error) {
	file, err := v.fs.Open(v.fs.PathJoin(v.store, name))
	if err != nil {
		return extent{}, err
	}
	defer file.Close()
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, file)
	return extent{name, n, sum.Sum32()}, err
}

// open reads the store without changing it. A panic of Pebble on damaged data is an error.
func (v *verifier) open(partitions int) (shares []mark, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			err = fmt.Errorf("%v", r)
		}
	}()
	db, err := pebble.Open(v.store, v.options)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := v.tables(db); err != nil {
		return nil, err
	}
	shares = make([]mark, partitions)
	for i := range shares {
		p := Partition(i)
		if shares[i].epoch, err = readNumber(db, appendHeader(nil, p, tagTerm)); err != nil {
			return nil, err
		}
		if shares[i].sequence, err = lastSequence(db, p); err != nil {
			return nil, err
		}
	}
	return shares, v.logs(shares)
}

// tables opens every table, and reads the newest of them whole.
func (v *verifier) tables(db *pebble.DB) error {
	levels, err := db.SSTables()
	if err != nil {
		return err
	}
	var all []pebble.SSTableInfo
	for _, level := range levels {
		all = append(all, level...)
	}
	slices.SortFunc(all, func(a, b pebble.SSTableInfo) int { return int(b.BackingSSTNum) - int(a.BackingSSTNum) })
	left := int64(checkedBytes)
	for _, t := range all {
		left -= int64(t.Size)
		name := fmt.Sprintf("%06d%s", t.BackingSSTNum, tableSuffix)
		if err := v.table(name, left >= 0); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}

func (v *verifier) table(name string, whole bool) error {
	file, err := v.fs.Open(v.fs.PathJoin(v.store, name))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	reader, err := sstable.NewReader(context.Background(), readable, v.options.MakeReaderOptions()) // which closes readable
	if err != nil {
		return err
	}
	layout, err := reader.Layout()
	if err == nil && whole {
		err = checkBlocks(file, layout)
	}
	return errors.Join(err, reader.Close())
}

// checkBlocks verifies the checksum of every block of a table. (sstable.Reader has a method for that, which leaves out
// the blocks that hold values apart from their keys.)
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
			continue // there is no such block
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

// trial is the file system of an open that changes nothing. A log that is opened is empty, and is added to logs.
type trial struct {
	vfs.FS
	logs wal.FileAccumulator
}

// Open opens a file for reading.
func (t *trial) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := t.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, logSuffix) {
		return file, err
	}
	_, err = t.logs.MaybeAccumulate(t.FS, name)
	return emptyFile{file}, err
}

// emptyFile is a file that shows none of its content.
type emptyFile struct{ vfs.File }

func (emptyFile) Read([]byte) (int, error) { return 0, io.EOF }

var errReadOnly = errors.New("the store is opened for reading")

type nothing struct{}

func (nothing) Close() error { return nil }

// Lock locks nothing: the data directory has a lock of its own.
func (*trial) Lock(string) (io.Closer, error) { return nothing{}, nil }

func (*trial) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }
func (*trial) Link(string, string) error                              { return errReadOnly }
func (*trial) Remove(string) error                                    { return errReadOnly }
func (*trial) RemoveAll(string) error                                 { return errReadOnly }
func (*trial) Rename(string, string) error                            { return errReadOnly }
func (*trial) MkdirAll(string, fs.FileMode) error                     { return errReadOnly }
func (*trial) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

func (*trial) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

// trialLogger has Pebble's fatal errors end the trial alone.
type trialLogger struct{ slog *slog.Logger }

func (l trialLogger) Infof(format string, args ...any) {
	l.slog.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l trialLogger) Errorf(format string, args ...any) { l.Infof(format, args...) }

// Fatalf must not return; verifier.open recovers.
func (l trialLogger) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }
