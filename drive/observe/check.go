package observe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// A Checker compares the drives with the sequences of file activity: each entry that exists according to the last row about it must be
// on its drive. An entry of a drive may have no row: the entries of a restored drive, and entries in folders with generated content, have
// none. A drive is not compared if its start has work to do, because of an open intent or of changes that were not observed.
//
// The rows of the workspaces come one workspace after the other, after the states of their computers, so that the entries of one drive are
// in memory at a time: at most as many as the drive may have files, and the folders above them.
type Checker struct {
	dir    string
	report func(path, what string)
	// computers has each workspace with a computer, and whether the computer has a drive.
	computers map[string]bool
	// unfinished are the workspaces with open intents.
	unfinished map[string]bool
	// entries are the entries that exist according to the rows of the workspace that is being read; nil before its first row.
	entries *checkedEntry
}

// checkedEntry is an entry of a drive, with the entries below it.
type checkedEntry struct {
	below map[string]*checkedEntry
}

// NewChecker returns a Checker of the drives below a folder. It calls report for each fault, with the path and a text about the fault.
func NewChecker(dir string, report func(path, what string)) *Checker {
	return &Checker{dir: dir, report: report, computers: map[string]bool{}, unfinished: map[string]bool{}}
}

// AddOpenIntent adds a workspace with an operation that the next start completes or abandons. The workspace's rows come later.
func (c *Checker) AddOpenIntent(workspaceID string) { c.unfinished[workspaceID] = true }

// AddState adds the computer of a workspace.
func (c *Checker) AddState(kind, identity string, state proto.Message) {
	if computer, ok := state.(*computerv1.Computer); ok && kind == entity.KindComputer {
		c.computers[identity] = computer.GetStatus() == computerv1.Status_STATUS_ACTIVE
	}
}

// AddRow follows a row of file activity.
func (c *Checker) AddRow(workspaceID string, row activity.Row) {
	if !c.computers[workspaceID] || c.unfinished[workspaceID] {
		return // the drive is not compared
	}
	if c.entries == nil {
		c.entries = &checkedEntry{}
	}
	op := row.Operation
	switch op.GetKind() {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE:
		c.entries.put(op.GetPath(), nil)
	case activityv1.Kind_KIND_DELETE:
		c.entries.take(op.GetPath())
	case activityv1.Kind_KIND_RENAME:
		c.entries.put(op.GetPath(), c.entries.take(op.GetFromPath()))
	case activityv1.Kind_KIND_RESTORE:
		c.entries.below = nil
	case activityv1.Kind_KIND_UNSPECIFIED, activityv1.Kind_KIND_READ, activityv1.Kind_KIND_CHANGED_SUMMARY, activityv1.Kind_KIND_VIEWED_SUMMARY:
	}
}

// put adds the entry at a path, and the folders above it; moved is the entry that is moved there, with the entries below it.
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

// maxDriveFaults bounds the faults of a drive that are reported one by one.
const maxDriveFaults = 20

// EndRows reports each entry that the drive of a workspace lacks, after the last row of the workspace, and forgets the entries.
func (c *Checker) EndRows(ctx context.Context, workspaceID string) error {
	entries := c.entries
	c.entries = nil
	files := filesOf(c.dir, workspaceID)
	if at, err := os.Lstat(files); entries == nil || err != nil || !at.IsDir() {
		return nil // CompareFolders reports a missing drive
	}
	if _, err := os.Lstat(filepath.Join(c.dir, workspaceID, markName)); err == nil {
		return nil
	}
	faults := 0
	err := entries.compare(ctx, files, func(path string, err error) {
		if faults++; faults <= maxDriveFaults {
			c.report(path, fmt.Sprintf("the last row of file activity about this entry says that it exists: %v", err))
		}
	})
	if faults > maxDriveFaults {
		c.report(files, fmt.Sprintf("%d more entries are missing", faults-maxDriveFaults))
	}
	return err
}

// CompareFolders reports each drive without a workspace, and each computer with a missing drive, after the last state.
func (c *Checker) CompareFolders() error {
	folders, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range folders {
		if _, isKnown := c.computers[folder.Name()]; folder.IsDir() && !isKnown {
			c.report(filepath.Join(c.dir, folder.Name()), "the drive belongs to no workspace of the journal")
		}
	}
	for workspaceID, hasDrive := range c.computers {
		if at, err := os.Lstat(filesOf(c.dir, workspaceID)); hasDrive && (err != nil || !at.IsDir()) {
			c.report(filesOf(c.dir, workspaceID), "the drive is missing")
		}
	}
	return nil
}

// compare calls missing for each entry below a folder that the disk lacks. It does not look below a missing folder.
func (e *checkedEntry) compare(ctx context.Context, path string, missing func(path string, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(e.below)) {
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
