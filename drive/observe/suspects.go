package observe

import (
	"context"
	"os"

	"github.com/atelier-run/atelier/drive"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A suspect is a path that the sequence has and that is missing on disk, in a folder that has changed after the end of a scan's time.
// Either the event of its removal was missed, or the event was queued or in the table when the scan compared the path. The flight
// after the scan has the changes of all events that were queued by then: if the sequence still has the path after them, no event of
// its removal comes any more.
type suspect struct {
	path   string
	author *activityv1.Author
}

// findSuspects looks for missing paths in the folders that have changed after the scan's time. The time of a folder says only when the
// folder has changed last, so that the scan cannot tell whether it has changed before, too. Entries of generated folders have no
// names in the sequence.
func (s *scan) findSuspects(ctx context.Context, files *os.File) error {
	for _, folder := range s.later {
		if s.observer.drives.GeneratedTree(joinPath(folder, "entry")) != "" {
			continue
		}
		names, err := s.knownNames(ctx, folder)
		if err != nil {
			return err
		}
		for name := range names {
			path := joinPath(folder, name)
			if at, err := handleAt(int(files.Fd()), path, 0); err == nil && at == "" {
				s.suspects = append(s.suspects, suspect{path, s.author})
			}
		}
	}
	return nil
}

// recordSuspects records the removals of the suspects that the changes of the flight do not explain. A deferred rename from a path decides
// itself what becomes of the path.
func (f *flight) recordSuspects(ctx context.Context, deferred []*change) error {
	renamed := map[string]bool{}
	for _, c := range deferred {
		renamed[c.from] = true
	}
	for _, one := range f.suspects {
		if renamed[one.path] {
			continue
		}
		s := &scan{observer: f.observer, workspaceID: f.workspaceID, author: one.author}
		err := f.retry(ctx, func(d *drive.Drive, files *os.File) error {
			_, err := s.recordMissing(ctx, d, files, one.path)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
