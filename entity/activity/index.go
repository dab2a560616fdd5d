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
	return Prefix(workspaceID) + string(sum[:16])
}

// SeenValue is the Seen index value of a path and an author.
func SeenValue(workspaceID, path string, author *activityv1.Author) string {
	return PathValue(workspaceID, path) + authorKey(author)
}

// RecencyValue is the Recency index value of an author who was last active on a path at a time: it sorts before those of
// earlier times. RecencyAuthor finds the author again.
func RecencyValue(workspaceID, path string, at int64, author *activityv1.Author) string {
	newestFirst := binary.BigEndian.AppendUint64(nil, ^uint64(at))
	return PathValue(workspaceID, path) + string(newestFirst) + authorKey(author)
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

// rowEntries are the places where a row is found again.
func rowEntries(workspaceID string, r Row) []Entry {
	op := r.Operation
	data := []byte{byte(op.GetKind())}
	if op.GetKind() == activityv1.Kind_KIND_RESTORE {
		return []Entry{{Index: Restores, Value: Prefix(workspaceID), Order: r.Seq, Data: data}}
	}
	entries := pathEntries(nil, workspaceID, op.GetPath(), r.Seq, data)
	if op.GetFromPath() != "" {
		entries = pathEntries(entries, workspaceID, op.GetFromPath(), r.Seq, data)
	}
	return entries
}

// pathEntries appends the entries of one of a row's paths. A folder shared by both paths of a rename gets its entry
// twice, which is one.
func pathEntries(entries []Entry, workspaceID, path string, seq uint64, data []byte) []Entry {
	entries = append(entries, Entry{Index: ByPath, Value: PathValue(workspaceID, path), Order: seq, Data: data})
	for dir, _ := split(path); dir != ""; dir, _ = split(dir) {
		entries = append(entries, Entry{Index: Below, Value: PathValue(workspaceID, dir), Order: seq, Data: data})
	}
	return entries
}
