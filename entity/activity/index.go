package activity

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// The names of the indexes of a workspace's activity. Each value begins with the id of the workspace and a zero byte. A
// path in a value is represented by 16 bytes of its SHA-256, so that the length of the value does not depend on the path.
const (
	// ByPath has the rows of each path, in runs by seq (postings.go). A rename is under both of its paths.
	ByPath = "activity.path"
	// Below has the rows of all paths below each folder, in runs by seq.
	Below = "activity.below"
	// Restores has the restore rows, in runs by seq.
	Restores = "activity.restore"
	// Seen has the Totals of each author on each path.
	Seen = "activity.seen"
	// Recency has the authors of each path by RecencyAt of their Totals, the most recently active author first. See
	// pair.move.
	Recency = "activity.recency"
	// LatestWriter has the Writer of each entry of each folder.
	LatestWriter = "activity.writer"
	// Indexed has the IndexMark of the workspace.
	Indexed = "activity.indexed"
	// OpenIntents has the intents that are neither completed nor abandoned.
	OpenIntents = "activity.intent"
	// OpenFolds has the folds that have no summary yet.
	OpenFolds = "activity.fold"
)

// Entry is a change of one entry of an index: it is put, or removed if Remove is set.
type Entry struct {
	Index  string
	Value  string
	Order  uint64
	Data   []byte
	Remove bool
}

// Prefix returns the common prefix of all index values of a workspace.
func Prefix(workspaceID string) string { return workspaceID + "\x00" }

// PathValue returns the index value of a path.
func PathValue(workspaceID, path string) string {
	sum := sha256.Sum256([]byte(path))
	return workspaceID + "\x00" + string(sum[:16])
}

// SeenValue returns the value in the Seen index of a path and an author.
func SeenValue(workspaceID, path string, author *activityv1.Author) string {
	return PathValue(workspaceID, path) + authorKey(author)
}

// WriterValue returns the value in the LatestWriter index of an entry of a folder.
func WriterValue(workspaceID, dir, name string) string {
	return PathValue(workspaceID, dir) + name
}

// authorKey returns the part of an index value that identifies an author.
func authorKey(a *activityv1.Author) string { return a.GetActor() + "\x00" + a.GetUserId() }

// Dir returns the folder of a path, "" for the root.
func Dir(path string) string {
	dir, _ := split(path)
	return dir
}

// Name returns the last segment of a path.
func Name(path string) string {
	_, name := split(path)
	return name
}

// Join returns the path of an entry of a folder, "" for the root.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// split splits a path into its folder, "" for the root, and its name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// pathIndex caches the index values and the current runs of the paths of one decision, because most paths are in several
// indexes.
type pathIndex struct {
	workspaceID string
	cached      map[string]*indexedPath
	restores    run
}

// indexedPath has the index value of a path, and its current runs in ByPath and Below.
type indexedPath struct {
	value string
	// folder is the folder of the path; nil if that is the root.
	folder        *indexedPath
	byPath, below run
}

// of returns the entry of a path, and creates it if needed.
func (p *pathIndex) of(path string) *indexedPath {
	if found := p.cached[path]; found != nil {
		return found
	}
	if p.cached == nil {
		p.cached = map[string]*indexedPath{}
	}
	created := &indexedPath{value: PathValue(p.workspaceID, path)}
	p.cached[path] = created
	if dir := Dir(path); dir != "" {
		created.folder = p.of(dir)
	}
	return created
}

// value returns PathValue of a path.
func (p *pathIndex) value(path string) string { return p.of(path).value }

// kindData has the data of an index entry with one row, its kind, for each kind. Appending to it makes a copy.
var kindData = func() (data [activityv1.Kind_KIND_RESTORE + 1][]byte) {
	for kind := range data {
		data[kind] = []byte{byte(kind)}[:1:1]
	}
	return data
}()

// addPostings adds a row to ByPath, Below and Restores. It returns the approximate growth of the entries, in bytes.
func (d *draft) addPostings(r Row) int {
	op := r.Operation
	row := Posting{Seq: r.Seq, Kind: op.GetKind()}
	if op.GetKind() == activityv1.Kind_KIND_RESTORE {
		return d.addPosting(&d.paths.restores, Restores, Prefix(d.state.WorkspaceID), row)
	}
	grown := d.addPathPostings(op.GetPath(), row)
	if op.GetFromPath() != "" {
		grown += d.addPathPostings(op.GetFromPath(), row)
	}
	return grown
}

// addPathPostings adds a row to the entries of one of its paths. A folder above both paths of a rename gets the row once.
func (d *draft) addPathPostings(path string, row Posting) int {
	p := d.paths.of(path)
	grown := d.addPosting(&p.byPath, ByPath, p.value, row)
	for folder := p.folder; folder != nil; folder = folder.folder {
		grown += d.addPosting(&folder.below, Below, folder.value, row)
	}
	return grown
}

// span returns the number of the interval of length MarkerWindow in which a time lies.
func span(at int64) int64 { return at / MarkerWindow.Milliseconds() }

// recencyAt returns the time under which an author is listed in the Recency index.
func recencyAt(t *activityv1.Totals) int64 {
	if at := t.GetRecencyAt(); at > 0 {
		return at
	}
	return t.GetLastAt()
}

// move appends the entries that move an author in the Recency index, and sets RecencyAt of the totals after the write.
//
// The authors of a path are listed by the time of their last activity, which changes with every read. To keep the number
// of removed entries low, which readers of the index have to skip, the entry of an author moves only when the author
// becomes active in another span. So entries are in the order of their spans, and a reader sorts the entries of one span
// by the exact times in the totals.
func (p pair) move(entries []Entry, after *activityv1.Totals) []Entry {
	if p.before != nil {
		was := recencyAt(p.before)
		if span(was) == span(after.LastAt) {
			after.RecencyAt = was
			return entries
		}
		entries = append(entries, Entry{Index: Recency, Value: p.path + recencyKey(was, p.author), Remove: true})
	}
	after.RecencyAt = after.LastAt
	return append(entries, Entry{Index: Recency, Value: p.path + recencyKey(after.LastAt, p.author)})
}

// recencyKey returns the key of an author for the time of the author's last activity. Later times sort first.
func recencyKey(at int64, author string) string {
	var newestFirst [8]byte
	binary.BigEndian.PutUint64(newestFirst[:], ^uint64(at))
	return string(newestFirst[:]) + author
}

// SeenPlace returns the position of an author in the list of a path's authors, which is ordered by the exact times of their
// last activity. A page ends at the position of its last author.
func SeenPlace(at int64, author *activityv1.Author) string { return recencyKey(at, authorKey(author)) }

// RecencyStart returns the value in the Recency index after which a reader finds all authors of a path at or behind the
// position after, together with other authors of the same span. It is "" if the reader must begin with the first author.
func RecencyStart(workspaceID, path, after string) string {
	if len(after) < 8 {
		return ""
	}
	at := int64(^binary.BigEndian.Uint64([]byte(after)))
	last := (span(at)+1)*MarkerWindow.Milliseconds() - 1
	return PathValue(workspaceID, path) + recencyKey(last, "")
}

// RecencyEntry parses a value in the Recency index of a path. It returns the span of the author's entry and the author's
// value in the Seen index. ok is false if the value does not belong to the path.
func RecencyEntry(workspaceID, path, value string) (entrySpan int64, seen string, ok bool) {
	prefix := PathValue(workspaceID, path)
	key, ok := strings.CutPrefix(value, prefix)
	if !ok || len(key) < 8 {
		return 0, "", false
	}
	return span(int64(^binary.BigEndian.Uint64([]byte(key)))), prefix + key[8:], true
}

// boundTail adds an index write to the decision if the tail would become too long without it.
func (d *draft) boundTail() {
	t := &d.state.Tail
	switch {
	case d.Index != nil:
	case len(t.Uses) >= maxReadPaths:
		d.writeIndexes(t.Uses)
	case t.countUnindexed()+len(d.Rows) >= MaxTail:
		d.writeIndexes(nil)
	case len(d.Rows) > 0 && !t.Marked:
		d.putMark(d.state.Seq, 0)
	}
}

// putMark puts the IndexMark. The first rows of a workspace are committed with one. A workspace without a mark is one from
// before marks existed, when the index entries were committed with their row.
func (d *draft) putMark(upTo, reads uint64) {
	d.put(Indexed, Prefix(d.state.WorkspaceID), &activityv1.IndexMark{Seq: upTo, Reads: reads})
}

// writeIndexes adds the index entries of all unindexed rows, including the rows of this decision, and the read counts.
// It writes the totals of each pair of path and author once, and the latest writer of each path once.
func (d *draft) writeIndexes(uses UseCounts) {
	t := &d.state.Tail
	if t.countUnindexed()+len(d.Rows)+len(uses) == 0 {
		return
	}
	w := &indexWriter{
		draft: d, IndexWrite: IndexWrite{UpTo: t.Proposed, Totals: map[string]*activityv1.Totals{}, UseWrite: t.UseWrites},
		writers: map[string]*activityv1.Writer{},
	}
	w.addRows(t.Unindexed())
	w.addRows(d.Rows)
	if len(uses) > 0 {
		w.addUses(uses)
	}
	w.finish()
}

// indexWriter builds an index write.
type indexWriter struct {
	IndexWrite
	draft *draft
	// pairs are the keys of Totals, and writerValues are the keys of writers, in the order of their first rows.
	pairs        []pair
	writerValues []string
	writers      map[string]*activityv1.Writer
	// bytes is the approximate size of the entries. isFull is set once it has reached maxIndexBytes.
	bytes  int
	isFull bool
}

// pair is a path and an author, in the form of the Seen index, with the totals before the index write; nil if there are
// none.
type pair struct {
	path, author string
	before       *activityv1.Totals
}

// addRows adds the entries of rows until the index write is full.
func (w *indexWriter) addRows(rows []Row) {
	for _, r := range rows {
		if w.isFull = w.isFull || w.bytes >= maxIndexBytes; w.isFull {
			return
		}
		w.addRow(r)
	}
}

func (w *indexWriter) addRow(r Row) {
	op := r.Operation
	w.UpTo = r.Seq
	w.bytes += w.draft.addPostings(r)
	if !r.Counts() {
		return
	}
	w.bytes += 4*len(op.GetPath()) + 256
	r.CountInto(w.totals(op.GetPath(), op.GetAuthor()))
	w.addWriter(r.Writer())
}

// addWriter makes writer, unless it is nil, the latest writer of its path, if no later one is in the index write.
func (w *indexWriter) addWriter(writer *activityv1.Writer) {
	if writer == nil {
		return
	}
	dir, name := split(writer.GetPath())
	value := w.draft.paths.value(dir) + name
	before := w.writers[value]
	if before == nil {
		w.writerValues = append(w.writerValues, value)
	}
	if before.GetLastWriteAt() <= writer.GetLastWriteAt() {
		w.writers[value] = writer
	}
}

// addUses adds counts to the totals, and their writes to the latest writers.
func (w *indexWriter) addUses(uses UseCounts) {
	for path, authors := range uses {
		for _, c := range authors {
			c.CountInto(w.totals(path, c.Author))
			w.addWriter(c.Writer(path))
		}
	}
	w.Uses = uses
	w.UseWrite++
}

// totals returns the totals of an author on a path, which the caller may change.
func (w *indexWriter) totals(path string, author *activityv1.Author) *activityv1.Totals {
	p := pair{path: w.draft.paths.value(path), author: authorKey(author)}
	if t := w.Totals[p.path+p.author]; t != nil {
		return t
	}
	p.before = w.draft.totals(p.path + p.author)
	after := entity.ShallowCopy(p.before)
	forgetFuture(after, w.draft.At)
	w.Totals[p.path+p.author] = after
	w.pairs = append(w.pairs, p)
	return after
}

// finish appends the entries of Seen, Recency and LatestWriter and the IndexMark to the decision.
func (w *indexWriter) finish() {
	d := w.draft
	for _, p := range w.pairs {
		after := w.Totals[p.path+p.author]
		d.Entries = p.move(d.Entries, after)
		d.put(Seen, p.path+p.author, after)
	}
	for _, value := range w.writerValues {
		d.put(LatestWriter, value, w.writers[value])
	}
	d.putMark(w.UpTo, w.UseWrite)
	d.Index = &w.IndexWrite
}
