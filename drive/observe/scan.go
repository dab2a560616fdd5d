package observe

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// scanDelay is the time from the moment when changes were missed to the scan, in which more may be missed.
	scanDelay = 500 * time.Millisecond
	// scanPause is the least time between two scans of a drive, and scanShare the least ratio of the time between them to the
	// duration of one.
	scanPause = time.Second
	scanShare = 10
	// clockMargin is more than the kernel's clock for times of files is slow.
	clockMargin = 20 * time.Millisecond
	// rowMargin is more than a row can be later than its change and have been recorded before scan.since.
	rowMargin = 10 * time.Second
)

// A scan compares a drive with its sequence and records the changes that have no rows.
//
// It finds an entry that was created, written or moved since a time by its times of change, and compares it with the rows since
// then. A removed entry is found by its name, which the sequence knows, in a folder that has changed since. If a folder has
// changed and nothing else tells why, an entry without rows was removed from it: that is a summary row of the folder.
//
// A scan locks the paths that it compares. So a change through the drive's routes has its row by then, which is later than the
// change on disk, and is not recorded again.
type scan struct {
	observer    *Observer
	workspaceID string
	// since is the time since which changes may have no rows; changes after until are left to others; zero: there are none.
	since, until time.Time
	author       *activityv1.Author
	// visit is called with the path of each folder; it may be nil.
	visit    func(folder string)
	recorded int
	// times has the modification times of recently changed files of the drive.
	times *modificationTimes

	rows recentRows
	// candidates are changed entries that are compared next.
	candidates []candidate
	// folders are the changed folders with the times of their last changes, in milliseconds since the Unix epoch. explained are
	// folders with a known reason for the change.
	folders   map[string]int64
	explained map[string]bool
	// later are the folders that have changed after until, and perhaps before.
	later []string
	// suspects are the paths that are missing in such folders, although the sequence has them.
	suspects []suspect
}

// A candidate is an entry that was changed since the scan's time.
type candidate struct {
	path  string
	inode uint64
}

// run scans the drive. It returns the errors of the drive and of the activity. Changes that it has recorded by then stay recorded; a
// further scan does not record them again.
func (s *scan) run(ctx context.Context) error {
	err := s.compare(ctx)
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	s.observer.metrics.scans.WithLabelValues(outcome).Inc()
	return err
}

func (s *scan) compare(ctx context.Context) error {
	if s.times == nil {
		s.times = &modificationTimes{since: s.since}
	}
	s.rows = recentRows{observer: s.observer, workspaceID: s.workspaceID}
	if err := s.rows.load(ctx, s.since.Add(-rowMargin).UnixMilli()); err != nil {
		return err
	}
	s.folders, s.explained = map[string]int64{}, map[string]bool{}
	d, release, err := s.observer.drives.Open(ctx, s.workspaceID)
	if err != nil {
		return err
	}
	defer release()
	files, err := os.Open(s.observer.filesDir(s.workspaceID))
	if err != nil {
		return err
	}
	defer files.Close()
	err = d.Walk(ctx, func(path string, st *unix.Stat_t) error {
		isFolder := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if isFolder {
			if s.visit != nil {
				s.visit(path)
			}
			if s.isRecent(st.Mtim) {
				s.folders[path] = time.Unix(st.Mtim.Unix()).UnixMilli()
			} else if s.isLater(st.Mtim) {
				s.later = append(s.later, path)
			}
		}
		if path == "" || !s.isRecent(st.Ctim) || entity.CheckPath(path) != nil {
			return nil
		}
		s.candidates = append(s.candidates, candidate{path, st.Ino})
		if len(s.candidates) < maxOperations {
			return nil
		}
		return s.recordCandidates(ctx, d, files)
	})
	if err == nil {
		err = s.recordCandidates(ctx, d, files)
	}
	if err != nil {
		return err
	}
	if err := s.recordAllRemoved(ctx, d, files); err != nil {
		return err
	}
	return s.findSuspects(ctx, files)
}

func (s *scan) isRecent(t unix.Timespec) bool {
	at := time.Unix(t.Unix())
	return !at.Before(s.since.Add(-clockMargin)) && !s.isLater(t)
}

// isLater reports whether a time is after the changes that the scan records.
func (s *scan) isLater(t unix.Timespec) bool {
	return !s.until.IsZero() && !time.Unix(t.Unix()).Before(s.until.Add(-clockMargin))
}

// recordCandidates records the candidates that no row covers.
func (s *scan) recordCandidates(ctx context.Context, d *drive.Drive, files *os.File) error {
	if len(s.candidates) == 0 {
		return nil
	}
	paths := make([]string, len(s.candidates))
	for i, c := range s.candidates {
		paths[i] = c.path
	}
	release, err := d.Hold(ctx, paths...)
	if err != nil {
		return err
	}
	defer release()
	if err := s.rows.refresh(ctx); err != nil {
		return err
	}
	var operations []*activityv1.Operation
	modified := map[string]time.Time{}
	for _, c := range s.candidates {
		op, err := s.operation(ctx, int(files.Fd()), c, modified)
		if err != nil {
			return err
		}
		if op != nil {
			operations = append(operations, op)
		}
	}
	s.candidates = s.candidates[:0]
	s.recorded += len(operations)
	if err := s.observer.record(ctx, s.workspaceID, operations); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	for _, op := range operations {
		s.times.set(op.GetPath(), modified[op.GetPath()], now)
	}
	return nil
}

// operation returns the operation that a candidate needs, and adds its modification time to times; nil: none.
func (s *scan) operation(ctx context.Context, files int, c candidate, times map[string]time.Time) (*activityv1.Operation, error) {
	var st unix.Statx_t
	err := unix.Statx(files, c.path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil || st.Ino != c.inode {
		return nil, nil // it was removed or replaced meanwhile, which is another change
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !folder && st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil, nil
	}
	changed, modified, born := timeOf(st.Ctime), timeOf(st.Mtime), timeOf(st.Btime)
	above := dirName(c.path)
	// A stand is newer than the indexes, which isKnown is answered from.
	stand, isKnown := s.rows.stands[c.path]
	newer, isOwn := s.times.isNewer(c.path, modified, stand.at)
	if !(isOwn && newer) && s.rows.covers(c.path, changed.UnixMilli()) {
		s.explain(above)
		return nil, nil
	}
	if !(isOwn && newer) && isKnown && stand.exists && stand.at >= modified.UnixMilli() {
		return nil, nil // its permissions have changed
	}
	isNew := st.Mask&unix.STATX_BTIME != 0 && !born.Before(s.since.Add(-clockMargin))
	known := isKnown && stand.exists
	tree := s.observer.drives.GeneratedTree(c.path)
	if !isKnown && tree == "" {
		if known, err = s.observer.isKnown(ctx, s.workspaceID, c.path); err != nil {
			return nil, err
		}
	}
	kind := activityv1.Kind_KIND_WRITE
	switch {
	case folder && (known || !isNew && !changed.After(modified)):
		return nil, nil // entries in it have changed
	case folder, !known && (isNew || tree == "" && modified.Before(s.since.Add(-clockMargin))):
		kind = activityv1.Kind_KIND_CREATE
		s.explain(above)
	case modified.Before(s.since.Add(-clockMargin)) && !isNew:
		return nil, nil // its permissions have changed
	}
	times[c.path] = modified
	op := &activityv1.Operation{Kind: kind, Path: c.path, Author: s.author, Tree: tree}
	if kind == activityv1.Kind_KIND_CREATE {
		op.EntryKind = activityv1.EntryKind_ENTRY_KIND_FILE
		if folder {
			op.EntryKind = activityv1.EntryKind_ENTRY_KIND_FOLDER
			s.explain(c.path) // it is new, and nothing with a row was removed from it
		}
	}
	return op, nil
}

// explain notes that it is known why a folder has changed.
func (s *scan) explain(folder string) { s.explained[folder] = true }

func timeOf(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func dirName(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// recordAllRemoved records the removed entries of changed folders. A folder with a row that is later than its change, of itself or
// of an entry, has changed for that reason.
func (s *scan) recordAllRemoved(ctx context.Context, d *drive.Drive, files *os.File) error {
	for path, stand := range s.rows.stands {
		for _, folder := range []string{path, dirName(path)} {
			if changed, ok := s.folders[folder]; ok && stand.at >= changed {
				s.explain(folder)
			}
		}
	}
	for folder := range s.folders {
		if err := s.recordRemoved(ctx, d, files, folder, s.explained[folder]); err != nil {
			return err
		}
	}
	return nil
}

// recordRemoved records the entries that the sequence knows and that are missing in a folder.
func (s *scan) recordRemoved(ctx context.Context, d *drive.Drive, files *os.File, folder string, explained bool) error {
	if s.observer.drives.GeneratedTree(joinPath(folder, "entry")) != "" {
		return s.recordUnexplained(ctx, folder, explained)
	}
	names, err := s.knownNames(ctx, folder)
	if err != nil {
		return err
	}
	for name := range names {
		path := joinPath(folder, name)
		if at, err := handleAt(int(files.Fd()), path, 0); err != nil || at != "" {
			continue
		}
		removed, err := s.recordMissing(ctx, d, files, path)
		if err != nil {
			return err
		}
		explained = explained || removed
	}
	return s.recordUnexplained(ctx, folder, explained)
}

// knownNames returns the names of the entries of a folder that the sequence has, or had when the scan read it.
func (s *scan) knownNames(ctx context.Context, folder string) (map[string]bool, error) {
	names := map[string]bool{}
	for path, stand := range s.rows.stands {
		if stand.exists && dirName(path) == folder {
			names[baseName(path)] = true
		}
	}
	for after := ""; ; {
		page, err := entity.ReplyAs[*activityv1.Names](
			s.observer.ask(ctx, s.workspaceID, "", &activityv1.ReadNames{Dir: folder, After: after, Limit: 1000}))
		if err != nil {
			return nil, err
		}
		for _, name := range page.GetNames() {
			names[name] = true
		}
		if len(page.GetNames()) == 0 {
			return names, nil
		}
		after = page.GetNames()[len(page.GetNames())-1]
	}
}

// recordMissing records the removal of a path that is missing, unless the sequence has it. It reports whether the sequence says
// since when it is missing.
func (s *scan) recordMissing(ctx context.Context, d *drive.Drive, files *os.File, path string) (explained bool, err error) {
	release, err := d.Hold(ctx, path)
	if err != nil {
		return false, err
	}
	defer release()
	if at, err := handleAt(int(files.Fd()), path, 0); err != nil || at != "" {
		return true, nil
	}
	last, err := s.observer.lastRow(ctx, s.workspaceID, path)
	if err != nil || last == nil || last.Event.Kind == "restore" {
		return false, err
	}
	if !last.leaves(path) {
		return last.Event.At >= s.since.UnixMilli(), nil
	}
	for above := dirName(path); above != ""; above = dirName(above) {
		row, err := s.observer.lastRow(ctx, s.workspaceID, above)
		if err != nil {
			return false, err
		}
		if row != nil && row.Seq > last.Seq && (!row.leaves(above) || row.Event.Kind == "restore" || row.Event.EntryKind == "folder") {
			return false, nil // it went with the folder above, which is a newer one
		}
	}
	s.recorded++
	return true, s.observer.record(ctx, s.workspaceID, []*activityv1.Operation{{
		Kind: activityv1.Kind_KIND_DELETE, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE, Path: path, Author: s.author,
	}})
}

// recordUnexplained records a summary for a folder that has changed for an unknown reason: an entry without rows was removed.
func (s *scan) recordUnexplained(ctx context.Context, folder string, explained bool) error {
	if explained || folder == "" || entity.CheckPath(folder) != nil {
		return nil
	}
	s.recorded++
	return s.observer.record(ctx, s.workspaceID, []*activityv1.Operation{{
		Kind: activityv1.Kind_KIND_DELETE, Path: folder, Tree: folder, Author: s.author,
	}})
}

// startScan scans a drive in the background. The changes before the last flight have their rows; later changes are in the
// drive's table.
func (r *reader) startScan(d *watched, now time.Time) {
	s := &scan{observer: r.observer, workspaceID: d.workspaceID, since: d.scanSince, author: d.onlyAuthor(), times: &d.times}
	switch {
	case r.hints != nil:
		r.hints.beginScan(d.workspaceID)
		s.visit = func(folder string) { r.hints.add(r.observer, d.workspaceID, folder) }
	case d.table.isEmpty():
		s.until = r.drainedAt
	default:
		s.until = d.flushedAt
	}
	since := d.scanSince
	d.scanSince, d.isBusy = time.Time{}, true
	r.inBackground(func() {
		err := s.run(r.running)
		r.finished(func() { r.scanned(d, s, since, now, err) })
	})
}

// scanned ends a scan that began at a time.
func (r *reader) scanned(d *watched, s *scan, since, began time.Time, err error) {
	d.isBusy = false
	if len(s.suspects) > 0 {
		d.suspects = append(d.suspects, s.suspects...)
		r.drainAgain(d) // the next flight then has all events from before the paths were seen to be missing
	}
	next := time.Now().Add(max(scanPause, scanShare*time.Since(began)))
	switch {
	case err == nil:
		if r.hints != nil {
			d.lastScan = began
			d.checkpoint(began)
		}
	case entity.IsRefusal(err):
		r.log.Warn("cannot scan a drive; changes by processes may be missing in its activity",
			slog.String("workspace", d.workspaceID), slog.Any("error", err))
		d.err = errRefused
	default:
		r.log.Warn("cannot scan a drive yet", slog.String("workspace", d.workspaceID), slog.Any("error", err))
		d.requestScan(since)
		d.retryAt = time.Now().Add(scanPause)
	}
	d.scanAt = next
}

// onlyAuthor returns the author of all watches of the drive, or the system if they have several.
func (d *watched) onlyAuthor() *activityv1.Author {
	var only *activityv1.Author
	for w := range d.watches {
		if only != nil && !sameAuthor(only, w.author) {
			return system
		}
		only = w.author
	}
	if only == nil {
		return system
	}
	return only
}
