package activity

import (
	"crypto/sha256"
	"encoding/binary"
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
	// Recency has the authors of a path, the most recently active first.
	Recency = "activity.recency"
	// LatestWriter has the Writer of a folder's entry.
	LatestWriter = "activity.writer"
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

// recencyValue is the Recency index value of an author who was last active on a path at a time: it sorts before those of
// earlier times.
func recencyValue(pathValue string, at int64, author string) string {
	var newestFirst [8]byte
	binary.BigEndian.PutUint64(newestFirst[:], ^uint64(at))
	return pathValue + string(newestFirst[:]) + author
}

// RecencyAuthor is what a Recency value holds behind its path: where it stands, and the Seen value of its author.
func RecencyAuthor(workspaceID, path, value string) (place, seen string, ok bool) {
	prefix := PathValue(workspaceID, path)
	place, ok = strings.CutPrefix(value, prefix)
	if !ok || len(place) < 8 {
		return "", "", false
	}
	return place, prefix + place[8:], true
}

// WriterValue is the LatestWriter index value of an entry of a folder.
func WriterValue(workspaceID, dir, name string) string {
	return PathValue(workspaceID, dir) + name
}

func authorKey(a *activityv1.Author) string { return a.GetActor() + "\x00" + a.GetUserId() }

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
	known       []place
}

type place struct{ path, value string }

func (p *places) value(path string) string {
	for i := range p.known {
		if p.known[i].path == path {
			return p.known[i].value
		}
	}
	value := PathValue(p.workspaceID, path)
	if len(p.known) < 8 {
		p.known = append(p.known, place{path, value})
	}
	return value
}

// find appends the places where a row is found again.
func (d *draft) find(r Row) {
	op := r.Operation
	data := []byte{byte(op.GetKind())}
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
