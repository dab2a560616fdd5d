package activity

import (
	"crypto/sha256"
	"strings"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// The indexes of a workspace's activity. Each value begins with the workspace's id and a zero byte; where a path follows,
// it is as 16 bytes of its SHA-256, so that a deep path costs no more than a short one.
const (
	// ByPath has the rows of a path, in runs by seq; a rename's under both its paths. See postings.go.
	ByPath = "activity.path"
	// Below has the rows of everything strictly below a folder, in runs by seq.
	Below = "activity.below"
	// Restores has the restore rows, in runs by seq.
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

// places remembers the locations of the paths of one decision, since most stand in several indexes.
type places struct {
	workspaceID string
	known       map[string]*location
	restores    run
}

// location is what the indexes have of one path.
type location struct {
	// value is the index value of the path.
	value string
	// folder is the location of the path's folder; nil below the root.
	folder *location
	// own and below are the runs in ByPath and Below.
	own, below run
}

// of returns the location of a path.
func (p *places) of(path string) *location {
	if found := p.known[path]; found != nil {
		return found
	}
	if p.known == nil {
		p.known = map[string]*location{}
	}
	made := &location{value: PathValue(p.workspaceID, path)}
	p.known[path] = made
	if dir := Dir(path); dir != "" {
		made.folder = p.of(dir)
	}
	return made
}

// value returns the index value of a path.
func (p *places) value(path string) string { return p.of(path).value }

// kindData is what the entry of one row holds: its kind. Appending to it copies it.
var kindData = func() (data [activityv1.Kind_KIND_RESTORE + 1][]byte) {
	for kind := range data {
		data[kind] = []byte{byte(kind)}[:1:1]
	}
	return data
}()

// find adds a row to the places where it is found again, and returns by about how many bytes the entries have grown.
func (d *draft) find(r Row) int {
	op := r.Operation
	row := Posting{r.Seq, op.GetKind()}
	if op.GetKind() == activityv1.Kind_KIND_RESTORE {
		return d.post(&d.places.restores, Restores, Prefix(d.state.WorkspaceID), row)
	}
	grown := d.findPath(op.GetPath(), row)
	if op.GetFromPath() != "" {
		grown += d.findPath(op.GetFromPath(), row)
	}
	return grown
}

// findPath adds a row to the entries of one of its paths. A folder that both paths of a rename share has it once.
func (d *draft) findPath(path string, row Posting) int {
	at := d.places.of(path)
	grown := d.post(&at.own, ByPath, at.value, row)
	for at = at.folder; at != nil; at = at.folder {
		grown += d.post(&at.below, Below, at.value, row)
	}
	return grown
}
