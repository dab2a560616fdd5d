package activity

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// RowName is the name of a row in the journal.
const RowName = "atelier.activity.v1.row"

// Row is one fact of the sequence.
type Row struct {
	Seq uint64
	// At is in milliseconds since the Unix epoch.
	At        int64
	Operation *activityv1.Operation
}

var kindNames = map[activityv1.Kind]string{
	activityv1.Kind_KIND_WRITE:           "write",
	activityv1.Kind_KIND_CREATE:          "create",
	activityv1.Kind_KIND_DELETE:          "delete",
	activityv1.Kind_KIND_RENAME:          "rename",
	activityv1.Kind_KIND_READ:            "read",
	activityv1.Kind_KIND_CHANGED_SUMMARY: "changed-summary",
	activityv1.Kind_KIND_VIEWED_SUMMARY:  "viewed-summary",
	activityv1.Kind_KIND_RESTORE:         "restore",
}

var entryKindNames = map[activityv1.EntryKind]string{
	activityv1.EntryKind_ENTRY_KIND_FILE:   "file",
	activityv1.EntryKind_ENTRY_KIND_FOLDER: "folder",
}

// plain rows are of files alone, and do not say so.
func plain(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_READ, activityv1.Kind_KIND_RESTORE:
		return true
	default:
		return false
	}
}

// Stored is a row as the journal keeps it: one byte for the kind, then the JSON that pages and streams send.
type Stored []byte

// Kind is the row's kind.
func (s Stored) Kind() activityv1.Kind {
	if len(s) == 0 {
		return activityv1.Kind_KIND_UNSPECIFIED
	}
	return activityv1.Kind(s[0])
}

// JSON is the row as clients get it.
func (s Stored) JSON() []byte { return s[1:] }

// Read tells whether a row is one of those that feed and stream leave out unless asked for reads.
func Read(k activityv1.Kind) bool { return k == activityv1.Kind_KIND_READ }

// Encode makes a row's stored form.
func Encode(r Row) Stored {
	op := r.Operation
	b := make([]byte, 0, 160+len(op.GetPath())+len(op.GetFromPath()))
	b = append(b, byte(op.GetKind()))
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, r.Seq, 10)
	b = append(b, `,"event":{"kind":"`...)
	b = append(b, kindNames[op.GetKind()]...)
	b = append(b, `","actor":`...)
	b = appendString(b, op.GetAuthor().GetActor())
	b = append(b, `,"at":`...)
	b = strconv.AppendInt(b, r.At, 10)
	if user := op.GetAuthor().GetUserId(); user != "" {
		b = append(b, `,"userId":`...)
		b = appendString(b, user)
	}
	if name := entryKindNames[op.GetEntryKind()]; name != "" && !plain(op.GetKind()) {
		b = append(b, `,"entryKind":"`...)
		b = append(b, name...)
		b = append(b, '"')
	}
	if op.GetPath() != "" {
		b = append(b, `,"path":`...)
		b = appendString(b, op.GetPath())
	}
	if op.GetFromPath() != "" {
		b = append(b, `,"fromPath":`...)
		b = appendString(b, op.GetFromPath())
	}
	if op.GetCount() > 0 {
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, op.GetCount(), 10)
	}
	return append(b, `}}`...)
}

// appendString appends a JSON string; paths and actors were checked to be UTF-8.
func appendString(b []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return append(b, `""`...)
	}
	return quoted
}

// AppendFrame appends a row's server-sent event.
func AppendFrame(b []byte, cursor Cursor, seq uint64, row Stored) []byte {
	b = append(b, "id: "...)
	b = cursor.Append(b, seq)
	b = append(b, "\nevent: "...)
	b = append(b, kindNames[row.Kind()]...)
	b = append(b, "\ndata: "...)
	b = append(b, row.JSON()...)
	return append(b, "\n\n"...)
}

// Decode parses a row's stored form, without its entry kind. It fails for what Encode did not make.
func Decode(s Stored) (Row, error) {
	if len(s) == 0 || kindNames[s.Kind()] == "" {
		return Row{}, errors.New("activity: the row has no known kind")
	}
	var row struct {
		Seq   uint64
		Event struct {
			Actor, UserID, Path, FromPath string
			At                            int64
			Count                         uint64
		}
	}
	if err := json.Unmarshal(s.JSON(), &row); err != nil {
		return Row{}, fmt.Errorf("activity: the row cannot be parsed: %w", err)
	}
	e := row.Event
	return Row{Seq: row.Seq, At: e.At, Operation: &activityv1.Operation{
		Kind: s.Kind(), Path: e.Path, FromPath: e.FromPath, Count: e.Count,
		Author: &activityv1.Author{Actor: e.Actor, UserId: e.UserID},
	}}, nil
}

// On reports whether a row is one of a path's own: a rename belongs to both its paths.
func (r Row) On(path string) bool {
	return r.Operation.GetPath() == path || r.Operation.GetFromPath() == path
}

// Below reports whether a row is of something strictly below a folder.
func (r Row) Below(folder string) bool {
	return below(r.Operation.GetPath(), folder) || below(r.Operation.GetFromPath(), folder)
}

func below(path, folder string) bool {
	return len(path) > len(folder) && path[len(folder)] == '/' && path[:len(folder)] == folder
}
