package apps

import "context"

// page is the number of lines of a log that are sent at once.
const page = 256

// OpenLog opens the log of an app and returns the function that reads it. follow calls send with the lines after a position (0: the
// beginning), in order; then, if the log is followed, with each further line, until ctx ends or send fails. missed is set if lines
// before the first one are not available any more. Errors: not_found.
func (s *Supervisor) OpenLog(workspaceID, appID string, isFollowed bool) (follow Follow, err error) {
	// The log is opened to see whether it can be. follow opens it for as long as it lasts.
	_, release, err := s.Logs(workspaceID, appID)
	if err != nil {
		return nil, err
	}
	release()
	return func(ctx context.Context, after uint64, send func([]Line, bool) error) error {
		read, release, err := s.Logs(workspaceID, appID)
		if err != nil {
			return err
		}
		defer release()
		return sendLog(ctx, read, after, isFollowed, send)
	}, nil
}

// Follow reads a log; see OpenLog.
type Follow func(ctx context.Context, after uint64, send func(lines []Line, missed bool) error) error

// ReadLog returns the lines of the log of an app after a position (0: the beginning), in order, and at most limit lines. missed
// is set if lines between the position and the first line are not available any more. Errors: not_found.
func (s *Supervisor) ReadLog(workspaceID, appID string, after uint64, limit int) (lines []Line, missed bool, err error) {
	read, release, err := s.Logs(workspaceID, appID)
	if err != nil {
		return nil, false, err
	}
	defer release()
	found := read(after, limit)
	return found.Lines, found.Missed, nil
}

// sendLog sends the lines of a log after a position, and then, if the log is followed, each further line, until ctx ends or send fails.
func sendLog(ctx context.Context, read func(uint64, int) Lines, after uint64, isFollowed bool, send func([]Line, bool) error) error {
	// The log may grow faster than the client reads.
	last := read(after, 0).Last
	for {
		found := read(after, page)
		if len(found.Lines) > 0 {
			if err := send(found.Lines, found.Missed); err != nil {
				return err
			}
			after = found.Lines[len(found.Lines)-1].Seq
		}
		if !isFollowed && after >= last {
			return nil
		}
		select {
		case <-found.News:
		case <-ctx.Done():
			return nil
		}
	}
}
