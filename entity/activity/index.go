package activity

import (
	"crypto/sha256"
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// The indexes of a workspace's activity. Each value begins with the workspace's id and a zero byte; where a path follows,
// it is as 16 bytes of its SHA-256, so that a deep path costs no more than a short one.
const (
	// ByPath has the rows of a path, by seq; a rename's under both its paths.
	ByPath = "activity.path"
	// Below has the rows of everything strictly below a folder, by seq.
	Below = "activity.below"
	// Restores has the restore rows, by seq.
	Restores = "activity.restore"
	// Seen has an author's Totals on a path.
	Seen = "activity.seen"
	// Recency has the authors of a path, the most recently active first, by their Totals' RecencyAt; see seen.go.
	Recency = "activity.recency"
	// LatestWriter has the Writer of a folder's entry.
	LatestWriter = "activity.writer"
	// Indexed has the workspace's IndexMark.
	Indexed = "activity.indexed"
	// OpenIntents has what is about to change the disk.
	OpenIntents = "activity.intent"
	// OpenFolds has what no summary tells of yet.
	OpenFolds = "activity.fold"
)

// Entry is a row of an index, to be put or removed.
type Entry struct {
	Index  string
	Value  string
	Order  uint64
	Data   []byte
	Remove bool
}

// Prefix begins every index value of a workspace.
func Prefix(workspaceID string) string { return workspaceID + "\x00" }

// PathValue is the index value of a path.
func PathValue(workspaceID, path string) string {
	sum := sha256.Sum256([]byte(path))
	return workspaceID + "\x00" + string(sum[:16])
}

// SeenValue is the Seen index value of a path and an author.
func SeenValue(workspaceID, path string, author *activityv1.Author) string {
	return PathValue(workspaceID, path) + authorKey(author)
}

// WriterValue is the LatestWriter index value of an entry of a folder.
func WriterValue(workspaceID, dir, name string) string {
	return PathValue(workspaceID, dir) + name
}

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

// split parts a path into its folder ("" for the root) and its name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// places remembers the values of the paths of one decision, since most stand in several indexes.
type places struct {
	workspaceID string
	known       map[string]string
}

func (p *places) value(path string) string {
	if value, ok := p.known[path]; ok {
		return value
	}
	if p.known == nil {
		p.known = map[string]string{}
	}
	value := PathValue(p.workspaceID, path)
	p.known[path] = value
	return value
}

// kindData is what the entries of a row hold: its kind.
var kindData = func() (data [activityv1.Kind_KIND_RESTORE + 1][]byte) {
	for kind := range data {
		data[kind] = []byte{byte(kind)}
	}
	return data
}()

// find appends the places where a row is found again.
func (d *draft) find(r Row) {
	op := r.Operation
	data := kindData[op.GetKind()]
	if op.GetKind() == activityv1.Kind_KIND_RESTORE {
		d.Entries = append(d.Entries, Entry{Index: Restores, Value: Prefix(d.state.WorkspaceID), Order: r.Seq, Data: data})
		return
	}
	d.findPath(op.GetPath(), r.Seq, data)
	if op.GetFromPath() != "" {
		d.findPath(op.GetFromPath(), r.Seq, data)
	}
}

// findPath appends the entries of one of a row's paths. A folder shared by both paths of a rename gets its entry twice,
// which is one.
func (d *draft) findPath(path string, seq uint64, data []byte) {
	d.Entries = append(d.Entries, Entry{Index: ByPath, Value: d.places.value(path), Order: seq, Data: data})
	for dir, _ := split(path); dir != ""; dir, _ = split(dir) {
		d.Entries = append(d.Entries, Entry{Index: Below, Value: d.places.value(dir), Order: seq, Data: data})
	}
}
