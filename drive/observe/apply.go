package observe

import (
	"time"

	"golang.org/x/sys/unix"
)

// A spot is an entry of a watched drive.
type spot struct {
	drive *watched
	path  string
}

// spotOf returns the entry of a located folder. ok is false if it is on no watched drive.
func (r *reader) spotOf(dir *folder, name string) (spot, bool) {
	if dir.isOutside {
		return spot{}, false
	}
	workspaceID, folder, ok := splitDrive(dir.path)
	if !ok {
		return spot{}, false
	}
	d := r.drives[workspaceID]
	if d == nil {
		return spot{}, false
	}
	if d.table.isEmpty() {
		d.tableSince = r.drainedAt
	}
	return spot{d, joinPath(folder, name)}, true
}

// applyEvent folds one event. Its folders are located as of the event.
func (r *reader) applyEvent(b *batch, at int, e *event, isOwn bool, now time.Time) {
	here, onDrive := r.spotOf(e.dir, e.name)
	var there spot
	arrives := false
	if e.newDir != nil {
		there, arrives = r.spotOf(e.newDir, e.newName)
	}
	switch {
	case !onDrive && !arrives:
		r.observer.metrics.events.WithLabelValues("elsewhere").Inc()
		return
	case isOwn:
		r.observer.metrics.events.WithLabelValues("own").Inc()
		if arrives && len(there.drive.installed) < maxTimes {
			there.drive.installed = append(there.drive.installed, installation{there.path, now})
		}
		return
	case e.mask&unix.FAN_RENAME != 0:
		r.applyRename(b, at, e, here, there, now)
		return
	}
	s := seen{at: now, author: r.author(here.drive, e.pid), path: here.path, file: e.file, folder: e.isFolder()}
	t := &here.drive.table
	creates, removes := e.mask&unix.FAN_CREATE != 0, e.mask&unix.FAN_DELETE != 0
	if creates && removes && !s.folder {
		// The kernel has merged events, and does not tell which came last.
		removes = !r.exists(here, e.file)
	}
	if creates {
		t.create(s)
	}
	switch {
	case s.folder:
	case e.mask&unix.FAN_MODIFY != 0:
		t.write(s, e.mask&unix.FAN_CLOSE_WRITE != 0)
	case e.mask&unix.FAN_CLOSE_WRITE != 0 && !creates:
		t.close(s)
	}
	if removes {
		t.remove(s)
	}
}

// exists reports whether the entry at a path is the entry with a handle.
func (r *reader) exists(at spot, file handle) bool {
	found, err := handleAt(r.group.mount, at.drive.workspaceID+"/files/"+at.path, 0)
	return err == nil && found == file
}

// applyRename folds a rename on a drive, onto a drive or from a drive.
func (r *reader) applyRename(b *batch, at int, e *event, from, to spot, now time.Time) {
	s := seen{at: now, file: e.file, folder: e.isFolder()}
	if from.drive != nil && from.drive == to.drive {
		s.author, s.path = r.author(to.drive, e.pid), to.path
		t := &to.drive.table
		switch {
		case !s.folder && b.isExchange(at):
			// Two files were exchanged: both have new content, and none has gone.
			t.write(s, true)
			s.path, s.file = from.path, b.events[at+1].file
			t.write(s, true)
		case !s.folder && at > 0 && b.isExchange(at-1):
		default:
			t.rename(s, from.path)
		}
		return
	}
	if from.drive != nil {
		s.author, s.path = r.author(from.drive, e.pid), from.path
		from.drive.table.depart(s)
	}
	if to.drive != nil {
		s.author, s.path = r.author(to.drive, e.pid), to.path
		to.drive.table.arrive(s)
	}
}
