package node

import (
	"context"

	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/runner/tools"
)

// logPage is the number of lines of a log that are sent at once.
const logPage = 256

// appLogs implements api.AppLogs and tools.AppLogs with the logs of the supervisor.
type appLogs struct{ supervisor *apps.Supervisor }

// OpenLog implements api.AppLogs.
func (l appLogs) OpenLog(_ context.Context, workspaceID, appID string, isFollowed bool) (func(context.Context, uint64, func([]api.AppLine, bool) error) error, error) {
	// The log is opened to see whether it can be. follow opens it for as long as it lasts.
	_, release, err := l.supervisor.Logs(workspaceID, appID)
	if err != nil {
		return nil, err
	}
	release()
	return func(ctx context.Context, after uint64, send func([]api.AppLine, bool) error) error {
		read, release, err := l.supervisor.Logs(workspaceID, appID)
		if err != nil {
			return err
		}
		defer release()
		return sendLog(ctx, read, after, isFollowed, send)
	}, nil
}

// ReadLog implements tools.AppLogs.
func (l appLogs) ReadLog(_ context.Context, workspaceID, appID string, after uint64, limit int) (lines []tools.LogLine, missed bool, err error) {
	read, release, err := l.supervisor.Logs(workspaceID, appID)
	if err != nil {
		return nil, false, err
	}
	defer release()
	found := read(after, limit)
	for _, line := range found.Lines {
		lines = append(lines, tools.LogLine(line))
	}
	return lines, found.Missed, nil
}

// sendLog sends the lines of a log after a position, and then, if the log is followed, each further line, until ctx ends or send fails.
func sendLog(
	ctx context.Context, read func(uint64, int) apps.Lines, after uint64, isFollowed bool, send func([]api.AppLine, bool) error,
) error {
	// The log may grow faster than the client reads.
	last := read(after, 0).Last
	for {
		found := read(after, logPage)
		if len(found.Lines) > 0 {
			lines := make([]api.AppLine, len(found.Lines))
			for i, line := range found.Lines {
				lines[i] = api.AppLine{Seq: line.Seq, At: line.At, Stream: line.Stream, Text: line.Text}
			}
			if err := send(lines, found.Missed); err != nil {
				return err
			}
			after = lines[len(lines)-1].Seq
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
