package api

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// AppLine is a line of the output of an app's processes.
type AppLine struct {
	// Seq is the number of the line in the log of the app.
	Seq uint64 `json:"seq"`
	// At is the time in milliseconds since the Unix epoch.
	At int64 `json:"at"`
	// Stream is install, stdout, stderr or platform.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// AppLogs has the output of the processes of apps.
type AppLogs interface {
	// OpenLog opens the log of an app and returns the function that reads it. read calls send with the lines with a Seq greater than after,
	// in order, then, if the log is followed, with each further line, until ctx ends (nil) or send fails. missed is set if lines before the
	// first one are not available any more. Errors: *entity.Error.
	OpenLog(ctx context.Context, workspaceID, appID string, isFollowed bool) (read func(ctx context.Context, after uint64, send func(lines []AppLine, missed bool) error) error, err error)
}

var (
	errNoLogs = entity.Errorf(entity.Unavailable, "the server runs no apps")
	errFollow = server.Invalid("follow must be true or false")
)

// A logRequest says which lines of a log are requested.
type logRequest struct {
	// cursor is the position after which they begin; empty: all.
	cursor     string
	isFollowed bool
}

func decodeLogRequest(c *server.Call) (logRequest, error) {
	cursor, q, err := decodeStreamQuery(c, "follow")
	if err != nil {
		return logRequest{}, err
	}
	switch follow := q.Text("follow"); {
	case q.Has("follow") && follow != "true" && follow != "false":
		return logRequest{}, errFollow
	default:
		return logRequest{cursor, follow != "false"}, nil
	}
}

// followLog sends the lines of the log of the app in the path as server-sent events. It requires the right to change apps, because programs
// write secrets to their output. If the log is not followed, the stream ends after the lines that there are, with an event of its own. The
// event tells the client that it has all lines. Package server describes the flow of a stream.
func (a apps) followLog(c *server.Call) error {
	in, err := ofApp(a, decodeLogRequest)(c)
	if err != nil {
		return c.Withhold(err)
	}
	if err := c.Authorize(); err != nil {
		return err
	}
	id, err := a.pathApp(c)
	if err != nil {
		return err
	}
	binding, after := server.Binding("app log", c.Workspace.ID, id), uint64(0)
	if in.cursor != "" {
		position, err := c.OpenCursor(in.cursor, binding)
		if err != nil {
			return err
		}
		if after, err = strconv.ParseUint(position, 10, 64); err != nil {
			return server.ErrInvalidCursor
		}
	}
	if a.Logs == nil {
		return errNoLogs
	}
	return c.StreamWithAccess(func(ctx context.Context, client server.StreamClient) (func(context.Context) error, error) {
		read, err := a.Logs.OpenLog(ctx, c.Workspace.ID, id, in.isFollowed)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			err := read(ctx, after, func(lines []AppLine, missed bool) error {
				frames, err := encodeLines(lines, missed, func(seq uint64) string { return c.SealCursor(strconv.FormatUint(seq, 10), binding) })
				if err != nil || len(frames) == 0 {
					return err
				}
				return client.Send(frames)
			})
			if err != nil || in.isFollowed || ctx.Err() != nil {
				return err
			}
			return client.Send(appendFrame(nil, "", "end", []byte("{}")))
		}, nil
	})
}

// encodeLines encodes lines as server-sent events, after one that says that earlier lines are missing.
func encodeLines(lines []AppLine, missed bool, cursor func(seq uint64) string) ([]byte, error) {
	var frames []byte
	if missed {
		frames = appendFrame(frames, "", "missed", []byte("{}"))
	}
	for _, line := range lines {
		data, err := json.Marshal(line)
		if err != nil {
			return nil, err
		}
		frames = appendFrame(frames, cursor(line.Seq), "line", data)
	}
	return frames, nil
}
