package observe

import (
	"golang.org/x/sys/unix"
)

const (
	// maxBatch is the number of events after which a batch is applied, even if more are queued.
	maxBatch = 1 << 15
	// maxLookups bounds how often the folders of a batch are looked up again because others were moved meanwhile.
	maxLookups = 8
)

// An event is a record of the kernel with its folders.
type event struct {
	mask    uint64
	pid     int32
	dir     *folder
	name    string
	newDir  *folder
	newName string
	// target is the folder that was created, moved or removed.
	target *folder
	// file is the handle of another entry.
	file handle
}

func (e *event) isFolder() bool { return e.mask&unix.FAN_ONDIR != 0 }

// relocates reports whether the event changes where a folder is.
func (e *event) relocates() bool {
	return e.target != nil && e.mask&(unix.FAN_RENAME|unix.FAN_DELETE) != 0
}

// A batch is a sequence of events that are applied together, so that later events tell where the folders of earlier events
// have been.
type batch struct {
	folders *folders
	events  []event
	// next has, for each folder, the positions of the events that relocate it, ascending.
	next map[*folder][]int
	// now has the present places of folders that were not known.
	now map[*folder]place
	// moved reports that an event of the batch moves a folder.
	moved bool
}

// A place is where a folder was when it was looked up.
type place struct {
	path          string
	outside, gone bool
}

// add appends a record, unless it concerns no drive.
func (b *batch) add(r *record) {
	if r.dir == nil {
		return
	}
	f := b.folders
	e := event{mask: r.mask, pid: r.pid, dir: f.of(r.dir)}
	if r.newDir != nil {
		e.newDir = f.of(r.newDir)
	}
	if f.update(e.dir) && e.dir.isOutside && (e.newDir == nil || f.update(e.newDir) && e.newDir.isOutside) && !b.moved {
		if r.mask&unix.FAN_ONDIR != 0 && r.target != nil {
			// The events in a folder outside may be read when it has gone.
			if d := f.of(r.target); !f.update(d) {
				f.setOutside(d)
			}
		}
		return
	}
	e.name, e.newName = string(r.name), string(r.newName)
	if e.isFolder() && r.target != nil {
		e.target = f.of(r.target)
		e.file = e.target.handle
		if e.relocates() {
			if b.next == nil {
				b.next = map[*folder][]int{}
			}
			b.next[e.target] = append(b.next[e.target], len(b.events))
			b.moved = b.moved || e.mask&unix.FAN_RENAME != 0
		}
	} else {
		e.file = handle(r.target)
	}
	b.events = append(b.events, e)
}

// lookUp finds where the unknown folders of the events from one position on are now. Folders that the batch creates are known
// when that event is applied. It reports whether it looked up any, so that the events that are queued now have to be read: only
// if none of them moves or removes a folder, the places are as of the end of the batch.
func (b *batch) lookUp(from int) bool {
	found := false
	created := map[*folder]bool{}
	for i := from; i < len(b.events); i++ {
		e := &b.events[i]
		for _, d := range []*folder{e.dir, e.newDir} {
			if d == nil || d.isLocated || created[d] {
				continue
			}
			if _, done := b.now[d]; done {
				continue
			}
			if b.now == nil {
				b.now = map[*folder]place{}
			}
			var p place
			p.path, p.outside, p.gone = b.folders.find(d.handle)
			b.now[d] = p
			created[d], found = true, true
		}
		if e.mask&unix.FAN_CREATE != 0 && e.target != nil {
			created[e.target] = true
		}
	}
	return found
}

// relocatesSince reports whether an event from one position on moves or removes a folder.
func (b *batch) relocatesSince(from int) bool {
	for i := from; i < len(b.events); i++ {
		if b.events[i].relocates() {
			return true
		}
	}
	return false
}

// locate makes sure that a folder is located as of the event at a position, which is the next to be applied. It reports false
// if the place of the folder cannot be known.
//
// If a later event of the batch moves or removes the folder, that event names the place where it was until then. Otherwise it
// still is there. Either way the folder above may have been moved later, so its place is found in the same way.
func (b *batch) locate(d *folder, at int) bool { return b.locateBelow(d, at, 0) }

func (b *batch) locateBelow(d *folder, at, depth int) bool {
	if b.folders.update(d) {
		return true
	}
	if depth > maxDepth {
		return false
	}
	for _, i := range b.next[d] {
		if i < at {
			continue
		}
		e := &b.events[i]
		if !b.locateBelow(e.dir, at, depth+1) {
			return false
		}
		b.place(d, e.dir, e.name)
		return true
	}
	now, known := b.now[d]
	if !known {
		now.path, now.outside, now.gone = b.folders.find(d.handle)
	}
	switch {
	case now.gone:
		return false
	case b.moved:
	case now.outside:
		b.folders.setOutside(d)
		return true
	default:
		b.folders.set(d, now.path)
		return true
	}
	above, err := b.folders.parent(d.handle)
	if err != nil {
		return false
	}
	if above == d.handle { // the root of the file system
		b.folders.setOutside(d)
		return true
	}
	parent := b.folders.of([]byte(above))
	if !b.locateBelow(parent, at, depth+1) {
		return false
	}
	b.place(d, parent, baseName(now.path))
	return true
}

// maxDepth bounds how many folders lie above a folder.
const maxDepth = 4096

// place sets the path of a folder to the path of an entry of a located folder.
func (b *batch) place(d, parent *folder, name string) {
	if parent.isOutside {
		b.folders.setOutside(d)
		return
	}
	b.folders.set(d, joinPath(parent.path, name))
}

// follow applies the event at a position to the paths of folders.
func (b *batch) follow(at int) {
	e := &b.events[at]
	if e.target == nil {
		return
	}
	switch {
	case e.mask&unix.FAN_RENAME != 0:
		if !b.followMoves(at) {
			return
		}
		b.place(e.target, e.newDir, e.newName)
	case e.mask&unix.FAN_CREATE != 0:
		b.place(e.target, e.dir, e.name)
	}
}

// followMoves applies the rename of a folder to the paths below it. It reports whether one of the places is below the folder of
// all drives.
func (b *batch) followMoves(at int) bool {
	e := &b.events[at]
	m := move{}
	if !e.dir.isOutside {
		m.from = joinPath(e.dir.path, e.name)
	}
	if !e.newDir.isOutside {
		m.to = joinPath(e.newDir.path, e.newName)
	}
	switch {
	case m == (move{}):
		return false
	case at > 0 && b.isExchange(at-1):
	case b.isExchange(at):
		b.folders.addMove(move{m.from, exchanged})
		b.folders.addMove(move{m.to, m.from})
		b.folders.addMove(move{exchanged, m.to})
	default:
		b.folders.addMove(m)
	}
	return true
}

// exchanged is a path that no folder has.
const exchanged = "\x00"

// isExchange reports whether the events at a position and after it are the two halves of an exchange of two folders.
func (b *batch) isExchange(at int) bool {
	if at+1 >= len(b.events) {
		return false
	}
	e, f := &b.events[at], &b.events[at+1]
	return e.mask&f.mask&unix.FAN_RENAME != 0 && e.pid == f.pid && e.file != f.file &&
		e.dir == f.newDir && e.newDir == f.dir && e.name == f.newName && e.newName == f.name
}

func baseName(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}
