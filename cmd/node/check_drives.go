package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/persistence"
)

// checkedDrives compares the drives with the sequences of file activity: each entry that exists according to the last row about it must be
// on its drive. An entry of a drive may have no row: the entries of a restored drive, and entries in folders with generated content, have
// none. A drive whose start has work to do, because of an open intent or of changes that were not observed, is not compared.
type checkedDrives struct {
	dir string
	// provisioned are the workspaces whose computers have a drive, and known all with a computer.
	provisioned, known map[string]bool
	// entries are the entries of each workspace that exist according to its rows.
	entries map[string]*checkedEntry
	// unfinished are the workspaces with open intents.
	unfinished map[string]bool
}

// checkedEntry is an entry of a drive, with the entries below it.
type checkedEntry struct {
	below map[string]*checkedEntry
}

func newCheckedDrives(dir string) *checkedDrives {
	return &checkedDrives{dir: dir, provisioned: map[string]bool{}, known: map[string]bool{}, entries: map[string]*checkedEntry{}, unfinished: map[string]bool{}}
}

// addState adds the computer of a workspace.
func (d *checkedDrives) addState(kind, identity string, state proto.Message) {
	if c, ok := state.(*computerv1.Computer); ok && kind == entity.KindComputer {
		d.known[identity] = true
		d.provisioned[identity] = c.GetStatus() == computerv1.Status_STATUS_ACTIVE
	}
}

// addRow follows a row of file activity.
func (d *checkedDrives) addRow(workspaceID string, row activity.Row) {
	root := d.entries[workspaceID]
	if root == nil {
		root = &checkedEntry{}
		d.entries[workspaceID] = root
	}
	op := row.Operation
	switch op.GetKind() {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE:
		root.put(op.GetPath(), nil)
	case activityv1.Kind_KIND_DELETE:
		root.take(op.GetPath())
	case activityv1.Kind_KIND_RENAME:
		root.put(op.GetPath(), root.take(op.GetFromPath()))
	case activityv1.Kind_KIND_RESTORE:
		root.below = nil
	case activityv1.Kind_KIND_UNSPECIFIED, activityv1.Kind_KIND_READ, activityv1.Kind_KIND_CHANGED_SUMMARY, activityv1.Kind_KIND_VIEWED_SUMMARY:
	}
}

// put adds the entry at a path, and the folders above it; moved is the entry that is moved there, with those below it.
func (e *checkedEntry) put(path string, moved *checkedEntry) {
	names := strings.Split(path, "/")
	for i, name := range names {
		if e.below == nil {
			e.below = map[string]*checkedEntry{}
		}
		next := e.below[name]
		if i == len(names)-1 && moved != nil {
			next = moved
		}
		if next == nil {
			next = &checkedEntry{}
		}
		e.below[name] = next
		e = next
	}
}

// take removes and returns the entry at a path; nil if there is none.
func (e *checkedEntry) take(path string) *checkedEntry {
	dir, name := activity.Dir(path), activity.Name(path)
	if dir != "" {
		for _, folder := range strings.Split(dir, "/") {
			if e = e.below[folder]; e == nil {
				return nil
			}
		}
	}
	taken := e.below[name]
	delete(e.below, name)
	return taken
}

// findOpenIntents finds the workspaces with operations that the next start completes or abandons.
func (d *checkedDrives) findOpenIntents(v persistence.View, partitions int) error {
	for p := range partitions {
		for row, err := range v.Index(persistence.Partition(p), persistence.Query{Index: activity.OpenIntents, Prefix: true}) {
			if err != nil {
				return err
			}
			workspaceID, _, _ := strings.Cut(row.Value, "\x00")
			d.unfinished[workspaceID] = true
		}
	}
	return nil
}

// maxDriveFaults bounds the faults of a drive that are reported one by one.
const maxDriveFaults = 20

// compare reports each provisioned drive that is missing, each drive without a workspace, and each entry that a drive lacks.
func (d *checkedDrives) compare(ctx context.Context, report func(persistence.Fault)) error {
	folders, err := os.ReadDir(d.dir)
	if err != nil && !isMissing(err) {
		return err
	}
	for _, folder := range folders {
		if folder.IsDir() && !d.known[folder.Name()] {
			report(persistence.Fault{File: filepath.Join(d.dir, folder.Name()), What: "the drive belongs to no workspace of the journal"})
		}
	}
	for workspaceID, provisioned := range d.provisioned {
		if !provisioned {
			continue
		}
		files := filepath.Join(d.dir, workspaceID, "files")
		if at, err := os.Lstat(files); err != nil || !at.IsDir() {
			report(persistence.Fault{File: files, What: "the drive is missing"})
			continue
		}
		if _, err := os.Lstat(filepath.Join(d.dir, workspaceID, "observed.json")); d.unfinished[workspaceID] || err == nil || d.entries[workspaceID] == nil {
			continue
		}
		faults := 0
		err := d.entries[workspaceID].compare(ctx, files, func(path string, err error) {
			if faults++; faults <= maxDriveFaults {
				report(persistence.Fault{File: path, What: fmt.Sprintf("the last row of file activity about this entry says that it exists: %v", err)})
			}
		})
		if err != nil {
			return err
		}
		if faults > maxDriveFaults {
			report(persistence.Fault{File: files, What: fmt.Sprintf("%d more entries are missing", faults-maxDriveFaults)})
		}
	}
	return nil
}

// compare calls missing for each entry below a folder that the disk lacks. It does not look below a missing folder.
func (e *checkedEntry) compare(ctx context.Context, path string, missing func(path string, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	names := make([]string, 0, len(e.below))
	for name := range e.below {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below := filepath.Join(path, name)
		if _, err := os.Lstat(below); err != nil {
			missing(below, err)
			continue
		}
		if err := e.below[name].compare(ctx, below, missing); err != nil {
			return err
		}
	}
	return nil
}
