package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// pageRows is the greatest number of rows in a page of the activity.
const pageRows = 100

// A row is a row of the activity.
type row struct {
	Seq   uint64
	Event struct {
		Kind, EntryKind, Path, FromPath string
		At                              int64
		Count                           uint64
	}
}

// feed returns a page of rows.
func (o *Observer) feed(ctx context.Context, workspaceID string, q *activityv1.ReadFeed) (rows []row, next uint64, err error) {
	page, err := entity.ReplyAs[*activityv1.Page](o.ask(ctx, workspaceID, "", q))
	if err != nil {
		return nil, 0, err
	}
	items := make([]byte, 0, len(page.GetItems())+2)
	items = append(append(append(items, '['), page.GetItems()...), ']')
	if err := json.Unmarshal(items, &rows); err != nil {
		return nil, 0, fmt.Errorf("observe: parse rows: %w", err)
	}
	return rows, page.GetNext(), nil
}

// isKnown reports whether the sequence says that a path exists: that its last row left an entry there. After a restore every
// path may exist.
func (o *Observer) isKnown(ctx context.Context, workspaceID, path string) (bool, error) {
	last, err := o.lastRow(ctx, workspaceID, path)
	return last != nil && last.leaves(path), err
}

// lastRow returns the last row that concerns a path itself or restores the drive; nil if there is none.
func (o *Observer) lastRow(ctx context.Context, workspaceID, path string) (*row, error) {
	rows, _, err := o.feed(ctx, workspaceID, &activityv1.ReadFeed{Path: path, Limit: 1, Descending: true})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// leaves reports whether an entry is at a path after the row, which concerns the path.
func (r *row) leaves(path string) bool {
	return r.Event.Kind != "delete" && (r.Event.Kind != "rename" || r.Event.Path == path)
}

// A stand is the state of a path in the sequence: the time of its last row, and whether an entry was there after it.
type stand struct {
	at     int64
	exists bool
}

// recentRows knows the contents of the rows since a time, by their paths.
type recentRows struct {
	observer    *Observer
	workspaceID string
	stands      map[string]stand
	// trees are the folders that were copied or moved onto the drive, with the time of their rows.
	trees map[string]int64
	// restored is the time of the last restore.
	restored int64
	position uint64
}

// load reads the rows since a time, in milliseconds since the Unix epoch. The cost grows with their number only.
func (k *recentRows) load(ctx context.Context, since int64) error {
	k.stands, k.trees = map[string]stand{}, map[string]int64{}
	var all []row
	for position := uint64(0); ; {
		rows, next, err := k.observer.feed(ctx, k.workspaceID, &activityv1.ReadFeed{Position: position, Limit: pageRows, Descending: true})
		if err != nil {
			return err
		}
		old := false
		for _, r := range rows {
			// The rows of summaries have earlier times than the rows before them, by two seconds at the most.
			if old = r.Event.At < since && !strings.HasSuffix(r.Event.Kind, "-summary"); old {
				break
			}
			all = append(all, r)
		}
		if len(rows) > 0 && position == 0 {
			k.position = rows[0].Seq
		}
		if old || next == 0 {
			break
		}
		position = next
	}
	for i := len(all) - 1; i >= 0; i-- {
		k.add(&all[i])
	}
	return nil
}

// refresh reads the rows that were recorded since the last call.
func (k *recentRows) refresh(ctx context.Context) error {
	for {
		rows, next, err := k.observer.feed(ctx, k.workspaceID, &activityv1.ReadFeed{Position: k.position, Limit: pageRows})
		if err != nil {
			return err
		}
		for i := range rows {
			k.add(&rows[i])
			k.position = rows[i].Seq
		}
		if next == 0 {
			return nil
		}
		k.position = next
	}
}

func (k *recentRows) add(r *row) {
	e := &r.Event
	switch e.Kind {
	case "restore":
		k.restored = e.At
		return
	case "changed-summary", "viewed-summary", "read":
		return
	case "rename":
		k.rename(e.FromPath, e.Path, e.EntryKind == "folder", e.At)
	case "create":
		if e.EntryKind == "folder" && e.Count > 0 {
			k.trees[e.Path] = e.At
		}
	}
	k.stands[e.Path] = stand{at: e.At, exists: e.Kind != "delete"}
}

// addOperation adds an operation that has no row yet.
func (k *recentRows) addOperation(op *activityv1.Operation) {
	if k.stands == nil {
		k.stands = map[string]stand{}
	}
	if op.GetKind() == activityv1.Kind_KIND_RENAME {
		k.rename(op.GetFromPath(), op.GetPath(), op.GetEntryKind() == activityv1.EntryKind_ENTRY_KIND_FOLDER, 0)
	}
	k.stands[op.GetPath()] = stand{exists: op.GetKind() != activityv1.Kind_KIND_DELETE}
}

func (k *recentRows) rename(from, to string, folder bool, at int64) {
	if folder {
		k.move(from, to)
	}
	k.stands[from] = stand{at: at}
}

// move moves the stands of the entries below a folder.
func (k *recentRows) move(from, to string) {
	moved := map[string]stand{}
	for path, s := range k.stands {
		if path != from && within(path, from) {
			moved[to+path[len(from):]] = s
			delete(k.stands, path)
		}
	}
	for path, s := range moved {
		k.stands[path] = s
	}
}

// covers reports whether a row records the last change of an entry that exists, which was made at a time. The entry's path is
// locked, so all changes through the drive's routes have their rows, which are later than the changes.
func (k *recentRows) covers(path string, changed int64) bool {
	if s, ok := k.stands[path]; ok {
		return s.exists && s.at >= changed
	}
	if k.restored >= changed {
		return true
	}
	for above := path; ; {
		if at, ok := k.trees[above]; ok && at >= changed {
			return true
		}
		end := strings.LastIndexByte(above, '/')
		if end < 0 {
			return false
		}
		above = above[:end]
	}
}
