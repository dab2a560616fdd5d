package observe

import (
	"time"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A change has the operations of one author on one path within a window. It becomes a row.
type change struct {
	kind   activityv1.Kind
	folder bool
	path   string
	// from is the old path of a rename.
	from   string
	author *activityv1.Author
	// file is the handle of the entry that is at the path after the change.
	file handle
	// count is the number of writes.
	count uint64
	// entries asks for the number of entries of a folder that was moved onto or from the drive.
	entries bool
	// isUnsure reports that it is unknown whether the path existed before the window, because the event of a rename does not
	// report whether the rename replaced an entry. If the path existed, a create is recorded as a write. If it did not exist, a
	// delete is not recorded.
	isUnsure bool
	// replaces reports that a rename has replaced a file that existed before the window.
	replaces bool
	// isSilent reports that a file was open for writing, but no write to it was seen. Writes through a memory mapping are not
	// reported. The file was written if its modification time has changed.
	isSilent bool
	// vacated is the rename that has freed the path before this change created a new entry there.
	vacated *change
	// isVoid reports that the change became part of another change, or was undone.
	isVoid bool
	// tries counts how often the change did not agree with the disk.
	tries int
}

// A table folds the changes of one drive within a window. It is pure; TestRows has its cases.
//
// The changes of one path by one author become one change, as follows. Changes by different authors stay apart.
//
//	create, write         create                          a new file is filled
//	write, write          write with a count
//	create, delete        nothing                         a temporary file
//	write, delete         delete
//	delete, create        write; both for a folder        a file is replaced
//	create a, a to b      create b, or write b if it      an editor saves through a temporary file
//	                      existed
//	a to b, b to c        rename a to c
//	a to b, b to a        nothing
//	a to b, create a,     write a                         an editor that keeps a backup while it saves
//	delete b
//
// The rename or removal of a folder changes the paths of other changes. Changes before it are not folded with changes after it.
type table struct {
	since   time.Time
	changes []*change
	// last has the last change of a path since the last move of a folder. A rename is under both of its paths.
	last map[string]*change
	// moves are the moves of folders, and the number of changes before each.
	moves []folderMove
	// live counts the changes that are not void.
	live int
}

// A folderMove is a move of a folder on the drive, or onto or from it; then one path is "".
type folderMove struct {
	from, to string
	before   int
}

// seen is an observed change of one path.
type seen struct {
	at     time.Time
	author *activityv1.Author
	path   string
	file   handle
	folder bool
}

func (t *table) isEmpty() bool { return len(t.changes) == 0 }

// lastOf returns the last change of a path if it has the author. another reports that the last change is another author's.
func (t *table) lastOf(path string, author *activityv1.Author) (c *change, another bool) {
	c = t.last[path]
	if c == nil || c.isVoid {
		return nil, false
	}
	if !sameAuthor(c.author, author) {
		return nil, true
	}
	return c, false
}

func sameAuthor(a, b *activityv1.Author) bool {
	return a == b || a.GetActor() == b.GetActor() && a.GetUserId() == b.GetUserId()
}

func (t *table) append(at time.Time, c *change) *change {
	if len(t.changes) == 0 {
		t.since = at
	}
	if t.last == nil {
		t.last = map[string]*change{}
	}
	t.changes = append(t.changes, c)
	t.last[c.path] = c
	t.live++
	return c
}

// void removes a change. Its path then has no last change.
func (t *table) void(c *change) {
	c.isVoid = true
	t.live--
	if t.last[c.path] == c {
		delete(t.last, c.path)
	}
	if c.from != "" && t.last[c.from] == c {
		delete(t.last, c.from)
	}
}

// isAt reports whether a change left an entry at a path.
func (c *change) isAt(path string) bool {
	return c.kind != activityv1.Kind_KIND_DELETE && c.path == path
}

// create folds the creation of an entry.
func (t *table) create(s seen) {
	c, another := t.lastOf(s.path, s.author)
	next := &change{kind: activityv1.Kind_KIND_CREATE, folder: s.folder, path: s.path, author: s.author, file: s.file}
	switch {
	case c == nil || another:
	case c.kind == activityv1.Kind_KIND_DELETE && !c.folder && !s.folder:
		next.kind, next.isUnsure = activityv1.Kind_KIND_WRITE, false
		t.void(c)
	case c.isAt(s.path):
		c.file = s.file
		return
	case c.kind == activityv1.Kind_KIND_RENAME:
		next.vacated = c
	}
	t.append(s.at, next)
}

// write folds a change of a file's content. closed reports that the file was closed after the write.
func (t *table) write(s seen, closed bool) {
	c, _ := t.lastOf(s.path, s.author)
	n := uint64(0)
	if closed {
		n = 1
	}
	switch {
	case c == nil:
	case c.kind == activityv1.Kind_KIND_WRITE && !c.isSilent:
		c.count += n
		c.file = s.file
		return
	case c.kind == activityv1.Kind_KIND_WRITE:
		c.isSilent, c.count, c.file = false, n, s.file
		return
	case c.kind == activityv1.Kind_KIND_CREATE:
		return
	case !c.isAt(s.path):
		return // the file was removed or moved, and is still open
	}
	t.append(s.at, &change{kind: activityv1.Kind_KIND_WRITE, path: s.path, author: s.author, file: s.file, count: n})
}

// close folds that a file was closed that was open for writing, without a write since the last event.
func (t *table) close(s seen) {
	if c := t.last[s.path]; c != nil && !c.isVoid {
		if c.kind == activityv1.Kind_KIND_WRITE && !c.isSilent && c.count == 0 && sameAuthor(c.author, s.author) {
			c.count = 1
		}
		if c.kind != activityv1.Kind_KIND_RENAME || !c.isAt(s.path) {
			return
		}
	}
	t.append(s.at, &change{kind: activityv1.Kind_KIND_WRITE, path: s.path, author: s.author, file: s.file, isSilent: true})
}

// remove folds the removal of an entry. A removed folder was empty.
func (t *table) remove(s seen) {
	c, another := t.lastOf(s.path, s.author)
	next := &change{kind: activityv1.Kind_KIND_DELETE, folder: s.folder, path: s.path, author: s.author, file: s.file}
	switch {
	case c == nil || another:
	case c.kind == activityv1.Kind_KIND_CREATE && !c.isUnsure:
		t.void(c)
		if c.vacated != nil && !c.vacated.isVoid {
			t.last[s.path] = c.vacated
		}
		return
	case c.kind == activityv1.Kind_KIND_CREATE, c.kind == activityv1.Kind_KIND_WRITE:
		next.isUnsure = c.isUnsure
		t.void(c)
	case c.kind == activityv1.Kind_KIND_RENAME && c.isAt(s.path) && !c.folder:
		t.removeRenamed(s, c)
		return
	case c.kind == activityv1.Kind_KIND_DELETE, !c.isAt(s.path):
		return
	}
	t.append(s.at, next)
}

// removeRenamed folds the removal of a file that was renamed in the window: the file was removed from its old path, and so was
// a file that the rename has replaced.
func (t *table) removeRenamed(s seen, renamed *change) {
	t.dropRenamed(s, renamed)
	t.removeReplaced(s, renamed)
}

// removeReplaced folds that nothing is at the new path of a rename any more, so that the file that the rename has replaced is
// removed.
func (t *table) removeReplaced(s seen, renamed *change) {
	if renamed.replaces || renamed.isUnsure {
		t.append(s.at, &change{kind: activityv1.Kind_KIND_DELETE, path: renamed.path, author: s.author, isUnsure: renamed.isUnsure})
	}
}

// dropRenamed replaces the rename of a file that does not exist any more by the removal of its old path. If a file was created
// there meanwhile, that is a write.
func (t *table) dropRenamed(s seen, renamed *change) {
	later := t.last[renamed.from]
	t.void(renamed)
	if later != nil && later != renamed && !later.isVoid && later.vacated == renamed &&
		later.kind == activityv1.Kind_KIND_CREATE && !later.folder {
		later.kind, later.vacated, later.isUnsure = activityv1.Kind_KIND_WRITE, nil, false
		return
	}
	t.append(s.at, &change{kind: activityv1.Kind_KIND_DELETE, path: renamed.from, author: s.author, file: renamed.file})
}

// rename folds the rename of an entry from a path to the path of s.
func (t *table) rename(s seen, from string) {
	if s.folder {
		t.append(s.at, &change{kind: activityv1.Kind_KIND_RENAME, folder: true, path: s.path, from: from, author: s.author, file: s.file})
		t.moves = append(t.moves, folderMove{from, s.path, len(t.changes)})
		t.seal()
		return
	}
	existed, unsure := t.replace(s, s.path)
	c, _ := t.lastOf(from, s.author)
	next := &change{kind: activityv1.Kind_KIND_RENAME, path: s.path, from: from, author: s.author, file: s.file, isUnsure: unsure,
		replaces: existed}
	switch {
	case c == nil || !c.isAt(from) || c.file != s.file:
	case c.kind == activityv1.Kind_KIND_CREATE:
		t.void(c)
		if c.isUnsure { // from may have existed before the window; its removal is a change then
			t.append(s.at, &change{kind: activityv1.Kind_KIND_DELETE, path: from, author: s.author, isUnsure: true})
		}
		next.kind, next.from = activityv1.Kind_KIND_CREATE, ""
		if existed {
			next.kind = activityv1.Kind_KIND_WRITE
		}
		if c.vacated != nil && !c.vacated.isVoid {
			t.last[from] = c.vacated
		}
	case c.kind == activityv1.Kind_KIND_RENAME:
		t.void(c)
		t.removeReplaced(s, c)
		next.from = c.from // may be s.path: the flush verifies that the file is there
	}
	t.append(s.at, next)
	if next.from != "" {
		t.last[next.from] = next
	}
}

// replace folds that an entry at a path is replaced by another entry. It reports whether a file existed there before the window,
// and whether that is not known.
func (t *table) replace(s seen, path string) (existed, unsure bool) {
	c, another := t.lastOf(path, s.author)
	switch {
	case another:
		return t.last[path].isAt(path), false
	case c == nil:
		return false, true
	case c.kind == activityv1.Kind_KIND_CREATE:
		t.void(c)
		return false, c.isUnsure
	case c.kind == activityv1.Kind_KIND_WRITE:
		t.void(c)
		return true, false
	case c.kind == activityv1.Kind_KIND_DELETE:
		t.void(c)
		return !c.isUnsure, c.isUnsure
	case c.isAt(path): // something was renamed to the path before: that is gone
		t.dropRenamed(s, c)
		return c.replaces, c.isUnsure
	}
	return false, false // vacated
}

// arrive folds the move of an entry onto the drive.
func (t *table) arrive(s seen) {
	if s.folder {
		t.append(s.at, &change{kind: activityv1.Kind_KIND_CREATE, folder: true, path: s.path, author: s.author, file: s.file, entries: true})
		t.moves = append(t.moves, folderMove{to: s.path, before: len(t.changes)})
		t.seal()
		return
	}
	existed, unsure := t.replace(s, s.path)
	c := &change{kind: activityv1.Kind_KIND_CREATE, path: s.path, author: s.author, file: s.file, isUnsure: unsure}
	if existed {
		c.kind = activityv1.Kind_KIND_WRITE
	}
	t.append(s.at, c)
}

// depart folds the move of an entry from the drive. A folder takes its entries along, with their changes in the window.
func (t *table) depart(s seen) {
	if !s.folder {
		t.remove(s)
		return
	}
	t.append(s.at, &change{kind: activityv1.Kind_KIND_DELETE, folder: true, path: s.path, author: s.author, file: s.file, entries: true})
	t.moves = append(t.moves, folderMove{from: s.path, before: len(t.changes)})
	t.seal()
}

// seal ends the folding of the changes so far: the paths of later changes may mean other entries.
func (t *table) seal() { t.last = nil }
