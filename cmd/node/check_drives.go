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
//
// The rows of the workspaces come one workspace after the other, after the states of their computers, so that the entries of one drive are
// in memory at a time: at most as many as the drive may have files, and the folders above them.
type checkedDrives struct {
	dir    string
	report func(persistence.Fault)
	// computers has each workspace with a computer, and whether the computer has a drive.
	computers map[string]bool
	// unfinished are the workspaces with open intents.
	unfinished map[string]bool
	// entries are the entries that exist according to the rows of the workspace whose rows are being read; nil before its first row.
	entries *checkedEntry
}

// checkedEntry is an entry of a drive, with the entries below it.
type checkedEntry struct {
	below map[string]*checkedEntry
}

func newCheckedDrives(dir string, report func(persistence.Fault)) *checkedDrives {
	return &checkedDrives{dir: dir, report: report, computers: map[string]bool{}, unfinished: map[string]bool{}}
}

// addState adds the computer of a workspace.
func (d *checkedDrives) addState(kind, identity string, state proto.Message) {
	if c, ok := state.(*computerv1.Computer); ok && kind == entity.KindComputer {
		d.computers[identity] = c.GetStatus() == computerv1.Status_STATUS_ACTIVE
	}
}

// addRow follows a row of file activity.
func (d *checkedDrives) addRow(workspaceID string, row activity.Row) {
	if !d.computers[workspaceID] || d.unfinished[workspaceID] {
		return // the drive is not compared
	}
	if d.entries == nil {
		d.entries = &checkedEntry{}
	}
	op := row.Operation
	switch op.GetKind() {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE:
		d.entries.put(op.GetPath(), nil)
	case activityv1.Kind_KIND_DELETE:
		d.entries.take(op.GetPath())
	case activityv1.Kind_KIND_RENAME:
		d.entries.put(op.GetPath(), d.entries.take(op.GetFromPath()))
	case activityv1.Kind_KIND_RESTORE:
		d.entries.below = nil
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

// endRows reports each entry that the drive of a workspace lacks, after the last row of the workspace, and forgets the entries.
func (d *checkedDrives) endRows(ctx context.Context, workspaceID string) error {
	entries := d.entries
	d.entries = nil
	files := d.filesOf(workspaceID)
	if at, err := os.Lstat(files); entries == nil || err != nil || !at.IsDir() {
		return nil // compareFolders reports a missing drive
	}
	if _, err := os.Lstat(filepath.Join(d.dir, workspaceID, "observed.json")); err == nil {
		return nil
	}
	faults := 0
	err := entries.compare(ctx, files, func(path string, err error) {
		if faults++; faults <= maxDriveFaults {
			d.report(persistence.Fault{File: path, What: fmt.Sprintf("the last row of file activity about this entry says that it exists: %v", err)})
		}
	})
	if faults > maxDriveFaults {
		d.report(persistence.Fault{File: files, What: fmt.Sprintf("%d more entries are missing", faults-maxDriveFaults)})
	}
	return err
}

// filesOf returns the folder of the files of a drive.
func (d *checkedDrives) filesOf(workspaceID string) string {
	return filepath.Join(d.dir, workspaceID, "files")
}

// compareFolders reports each drive without a workspace, and each computer whose drive is missing, after the last state.
func (d *checkedDrives) compareFolders() error {
	folders, err := os.ReadDir(d.dir)
	if err != nil && !isMissing(err) {
		return err
	}
	for _, folder := range folders {
		if _, isKnown := d.computers[folder.Name()]; folder.IsDir() && !isKnown {
			d.report(persistence.Fault{File: filepath.Join(d.dir, folder.Name()), What: "the drive belongs to no workspace of the journal"})
		}
	}
	for workspaceID, hasDrive := range d.computers {
		if at, err := os.Lstat(d.filesOf(workspaceID)); hasDrive && (err != nil || !at.IsDir()) {
			d.report(persistence.Fault{File: d.filesOf(workspaceID), What: "the drive is missing"})
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
