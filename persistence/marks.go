package persistence

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDamaged says that the data directory does not hold what its marks say it held, or that a file of it cannot be
// read. Open returns it, wrapped with the reason, before anything on the disk is changed.
var ErrDamaged = errors.New("the journal is damaged or incomplete")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// marks are the identity of a journal and its high-water marks, kept in a file outside Pebble, so that a store that
// lost history cannot pass for one that never had it. Everything that the marks promise was durable in the store before
// the marks were written; the store may hold more.
type marks struct {
	// disk is the id of the data directory that the marks belong to.
	disk string
	// timeline is random. It is renewed when the data directory is found to be a copy of another.
	timeline string
	// place tells the file that holds the marks from a copy of it; "" where the file system cannot tell.
	place string
	// sealed tells that the journal was closed cleanly: logs then lists every log of the store.
	sealed bool
	// shares are the least epoch and the least feed sequence of each partition.
	shares []mark
	// manifests are the beginnings of Pebble's manifests, one of which is the current one. Each edit of a manifest is in
	// them before Pebble acts on it, and thus before Pebble removes anything because of it.
	manifests []extent
	logs      []extent
}

// mark is what a partition held at least.
type mark struct{ epoch, sequence uint64 }

// extent is the beginning of a file of the store: its length in bytes and the CRC-32C of them.
type extent struct {
	name   string
	length int64
	sum    uint32
}

const (
	marksName     = "MARKS"
	maxMarksBytes = 1 << 20
	marksHeader   = "atelier marks 1\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (e *extent) add(p []byte) {
	e.length += int64(len(p))
	e.sum = crc32.Update(e.sum, castagnoli, p)
}

// hasHistory reports whether the journal was ever opened: until then there is nothing that could have been lost.
func (m *marks) hasHistory() bool {
	return slices.ContainsFunc(m.shares, func(s mark) bool { return s.epoch > 0 })
}

func (m *marks) clone() marks {
	c := *m
	c.shares, c.manifests, c.logs = slices.Clone(m.shares), slices.Clone(m.manifests), slices.Clone(m.logs)
	return c
}

// encode returns the text of the file, which ends with a checksum of all before it.
func (m *marks) encode() []byte {
	var b strings.Builder
	b.WriteString(marksHeader)
	fmt.Fprintf(&b, "disk %s\ntimeline %s\nplace %s\nsealed %t\n", m.disk, m.timeline, cmp.Or(m.place, "-"), m.sealed)
	for p, s := range m.shares {
		fmt.Fprintf(&b, "partition %d %d %d\n", p, s.epoch, s.sequence)
	}
	for _, e := range m.manifests {
		fmt.Fprintf(&b, "manifest %s %d %08x\n", e.name, e.length, e.sum)
	}
	for _, e := range m.logs {
		fmt.Fprintf(&b, "log %s %d %08x\n", e.name, e.length, e.sum)
	}
	fmt.Fprintf(&b, "checksum %08x\n", crc32.Checksum([]byte(b.String()), castagnoli))
	return []byte(b.String())
}

var errMarksDamaged = errors.New("its checksum does not match its content")

// decodeMarks parses what encode returned. Errors: errMarksDamaged, or one that names the line.
func decodeMarks(text string) (marks, error) {
	var m marks
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	if text[at:] != fmt.Sprintf("checksum %08x\n", crc32.Checksum([]byte(text[:at]), castagnoli)) {
		return m, errMarksDamaged
	}
	body, ok := strings.CutPrefix(text[:at], marksHeader)
	if !ok {
		return m, errors.New("its format is not one that this program reads")
	}
	for line := range strings.Lines(body) {
		if err := m.decodeLine(line); err != nil {
			return m, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return m, nil
}

func (m *marks) decodeLine(line string) error {
	key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	var err error
	switch key {
	case "disk":
		m.disk = value
	case "timeline":
		m.timeline = value
	case "place":
		if value != "-" {
			m.place = value
		}
	case "sealed":
		_, err = fmt.Sscanf(value, "%t", &m.sealed)
	case "partition":
		var p int
		var s mark
		_, err = fmt.Sscanf(value, "%d %d %d", &p, &s.epoch, &s.sequence)
		if err == nil && p != len(m.shares) {
			err = errors.New("partitions are out of order")
		}
		m.shares = append(m.shares, s)
	case "manifest", "log":
		var e extent
		_, err = fmt.Sscanf(value, "%s %d %x", &e.name, &e.length, &e.sum)
		if key == "log" {
			m.logs = append(m.logs, e)
		} else {
			m.manifests = append(m.manifests, e)
		}
	default:
		err = errors.New("unknown")
	}
	return err
}

// readMarks returns the marks in a file, or nil where there is no such file. isCopy tells that the file is not the one
// that was written, but a copy of it. Errors: ErrDamaged.
func readMarks(fs vfs.FS, path string) (_ *marks, isCopy bool, err error) {
	file, err := fs.Open(path)
	if oserror.IsNotExist(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMarksBytes))
	if err != nil {
		return nil, false, err
	}
	m, err := decodeMarks(string(text))
	if err != nil {
		return nil, false, damaged("the marks in %s cannot be read: %w", path, err)
	}
	place := placeOf(file)
	return &m, m.place != "" && place != "" && m.place != place, nil
}

// writeMarks replaces the file at path durably: after a crash it holds these marks or those before.
func writeMarks(fs vfs.FS, path string, m *marks) error {
	temporary := path + ".new"
	file, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	m.place = placeOf(file) // which a rename leaves as it is
	_, err = file.Write(m.encode())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(fs, fs.PathDir(path))
}
