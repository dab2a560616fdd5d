package observe

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// maxTranslated bounds the moves of folders through which the paths of earlier changes are followed.
const maxTranslated = 64

// A verdict says what becomes of a change when it is compared with the disk.
type verdict int

const (
	// agrees: the disk is as the change says, or a later change explains why it is not.
	agrees verdict = iota
	// differs: the disk is different. An event that was not read yet, or a change through the drive's routes, is the reason.
	differs
	// isNothing: there is no change to record.
	isNothing
)

// A subject is a change with its path as of the end of its table.
type subject struct {
	*change
	now string
	// explained reports that a later change concerns the path, so that the disk need not be as this one says.
	explained bool
}

// subjects returns the changes of a table that are not void.
func (t *table) subjects() []subject {
	all := make([]subject, 0, t.live)
	later := map[string]bool{}
	gone := map[string]bool{}
	for i := len(t.changes) - 1; i >= 0; i-- {
		c := t.changes[i]
		if c.isVoid {
			continue
		}
		now, isKnown := t.translate(c.path, i)
		s := subject{change: c, now: now, explained: !isKnown || later[now] || len(gone) > 0 && isBelowAny(now, gone)}
		all = append(all, s)
		later[now] = true
		if c.folder && c.kind == activityv1.Kind_KIND_DELETE {
			gone[now] = true
		}
		if c.from != "" {
			from, _ := t.translate(c.from, i)
			later[from] = true
			if c.folder {
				gone[from] = true
			}
		}
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// translate follows a path of the change at a position through the moves of folders after it. isKnown is false if the path is
// not on the drive any more.
func (t *table) translate(path string, at int) (now string, isKnown bool) {
	first := len(t.moves)
	for first > 0 && t.moves[first-1].before > at+1 {
		first--
	}
	if len(t.moves)-first > maxTranslated {
		return path, false
	}
	for _, m := range t.moves[first:] {
		if m.from == "" || !within(path, m.from) {
			continue
		}
		if m.to == "" {
			return path, false
		}
		path = m.to + path[len(m.from):]
	}
	return path, true
}

func isBelowAny(path string, folders map[string]bool) bool {
	for {
		end := strings.LastIndexByte(path, '/')
		if end < 0 {
			return false
		}
		if path = path[:end]; folders[path] {
			return true
		}
	}
}

// A verifier compares changes with the files of a drive.
type verifier struct {
	// files is the open root folder of the drive.
	files int
	// times has the modification times of files as of the last change that was recorded.
	times *modificationTimes
	// modified has the modification times of the verified files, which are added to times once no attempt can fail any more.
	modified map[string]time.Time
}

// verify compares a change with the disk.
func (v verifier) verify(s subject) verdict {
	if s.explained {
		return agrees
	}
	at, err := handleAt(v.files, s.now, 0)
	if err != nil {
		return agrees // the path is too long for a system call
	}
	switch s.kind {
	case activityv1.Kind_KIND_DELETE:
		if at != "" {
			return differs
		}
		return agrees
	case activityv1.Kind_KIND_RENAME:
		if at != s.file {
			return differs
		}
		if s.from == s.path {
			return isNothing
		}
		return agrees
	}
	if at == "" || s.file != "" && at != s.file {
		if s.isSilent {
			return isNothing
		}
		return differs
	}
	return v.verifyContent(s)
}

// verifyContent verifies that an entry is content of a drive, and that a file that was only closed has been changed.
func (v verifier) verifyContent(s subject) verdict {
	var st unix.Stat_t
	if err := unix.Fstatat(v.files, s.now, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return differs
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return agrees
	case unix.S_IFREG, unix.S_IFLNK:
	default:
		return isNothing // pipes, sockets and devices are not content of a drive
	}
	modified := time.Unix(st.Mtim.Unix())
	if s.isSilent && !v.times.isNew(s.now, modified) {
		return isNothing
	}
	v.modified[s.now] = modified
	return agrees
}

// maxTimes bounds the number of remembered modification times. When there are more, all are forgotten.
const maxTimes = 1 << 13

// modificationTimes remembers the modification times of recently changed files. Only one goroutine uses it at a time.
type modificationTimes struct {
	since  time.Time
	byPath map[string]recordedTime
}

// A recordedTime is the modification time of a file when a change of it was recorded. recorded is a time after its row, in
// milliseconds since the Unix epoch; 0: it is not known.
type recordedTime struct {
	modified time.Time
	recorded int64
}

// isNew reports whether a file was modified since its last change was recorded, or since the observation began.
func (m *modificationTimes) isNew(path string, modified time.Time) bool {
	known, ok := m.byPath[path]
	if !ok {
		return modified.After(m.since)
	}
	return modified.After(known.modified)
}

func (m *modificationTimes) set(path string, modified time.Time, recorded int64) {
	if m.byPath == nil || len(m.byPath) >= maxTimes {
		m.byPath = map[string]recordedTime{}
	}
	m.byPath[path] = recordedTime{modified, recorded}
}

// isNewer reports whether a file was modified after its last row, which is of a time. known is false if the change of that
// row was not remembered. The kernel's clock for times of files is slow, so that comparing these times with the time of the
// row would miss a change immediately after it.
func (m *modificationTimes) isNewer(path string, modified time.Time, row int64) (newer, known bool) {
	last, ok := m.byPath[path]
	if !ok || last.recorded < row {
		return false, false
	}
	return modified.After(last.modified), true
}
