package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/atelier-run/atelier/entity"
)

// AppLogs has the output of the processes of apps.
type AppLogs interface {
	// ReadLog returns the lines of the log of an app after a position, in order, and at most limit of them. Position 0 is the
	// beginning. missed is set if lines between the position and the first of these are not available any more. The caller is authorized.
	// Errors: *entity.Error.
	ReadLog(ctx context.Context, workspaceID, appID string, after uint64, limit int) (lines []LogLine, missed bool, err error)
}

// LogLine is a line of the log of an app.
type LogLine struct {
	// Seq is the number of the line in the log.
	Seq uint64 `json:"seq"`
	// At is the time in milliseconds since the Unix epoch.
	At int64 `json:"at"`
	// Stream is install, stdout, stderr or platform.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// LogView is a part of the log of an app.
type LogView struct {
	Lines []LogLine `json:"lines"`
	// Next is the position after the lines, and More reports that there are further lines.
	Next uint64 `json:"next"`
	More bool   `json:"more"`
	// Missed reports that lines between the position and the first of these are not available any more.
	Missed bool `json:"missed"`
}

const (
	// maxLogRead is more than the number of lines that a log has in memory.
	maxLogRead = 5000
	// tailLines and maxTailText limit the number of lines with a result that has failed, and their texts in bytes.
	tailLines, maxTailText = 20, 1000
	// defaultLines is the number of lines of a part without a limit.
	defaultLines = 100
)

type readAppLogsIn struct {
	App   string `json:"app" jsonschema:"the slug of the app" bounds:"1:30"`
	After uint64 `json:"after,omitzero" jsonschema:"only lines after this position, the next of an earlier result; 0 or omitted: the last lines" bounds:"0:9007199254740991"`
	Limit int    `json:"limit,omitzero" jsonschema:"the number of lines, 100 if omitted" bounds:"1:500"`
}

type readAppLogsOut struct {
	LogView
	// Status and Reason belong to the app; see register_app.
	Status string `json:"status"`
	Reason string `json:"reason,omitzero"`
}

var errNoAppLogs = entity.Errorf(entity.Unavailable, "the server runs no apps")

// readAppLogs reads a part of the log of an app. It requires the right to change apps, because programs write secrets to their output.
// Errors: not_found, forbidden.
func readAppLogs(ctx context.Context, c *call, in readAppLogsIn) (readAppLogsOut, error) {
	if err := c.authorize(ctx, entity.Apps, true); err != nil {
		return readAppLogsOut{}, err
	}
	described, err := c.appRequest().Describe(ctx, in.App)
	if err != nil {
		return readAppLogsOut{}, err
	}
	if c.Apps.Logs == nil {
		return readAppLogsOut{}, errNoAppLogs
	}
	id := described.GetApp().GetId()
	out := readAppLogsOut{
		Status: appStatusNames[described.GetApp().GetRuntimeStatus()], Reason: clip(described.GetApp().GetReconciliationError(), maxListReason),
	}
	limit := cmp.Or(in.Limit, defaultLines)
	if in.After == 0 {
		out.LogView, err = c.readTail(ctx, id, limit, maxRows, maxRows)
		return out, err
	}
	lines, missed, err := c.Apps.Logs.ReadLog(ctx, c.WorkspaceID, id, in.After, limit+1)
	if err != nil {
		return readAppLogsOut{}, err
	}
	out.LogView = LogView{Lines: firstLines(lines, limit, maxRows), Next: in.After, Missed: missed}
	if n := len(out.Lines); n > 0 {
		out.Next = out.Lines[n-1].Seq
	}
	out.More = len(out.Lines) < len(lines)
	return out, nil
}

// firstLines returns the first lines, at most limit of them with at most a number of bytes of JSON. A line is always smaller, because
// logs cut lines.
func firstLines(lines []LogLine, limit, most int) []LogLine {
	found, size := []LogLine{}, 0
	for _, line := range lines[:min(limit, len(lines))] {
		if size += jsonSize(line); size > most {
			break
		}
		found = append(found, line)
	}
	return found
}

// readTail returns the last lines of a log, at most limit of them with at most a number of bytes of JSON. Of each text, it has at most
// a number of bytes.
func (c *call) readTail(ctx context.Context, appID string, limit, most, mostOfText int) (LogView, error) {
	lines, _, err := c.Apps.Logs.ReadLog(ctx, c.WorkspaceID, appID, 0, maxLogRead)
	if err != nil {
		return LogView{}, err
	}
	lines = slices.Clone(lines[max(0, len(lines)-limit):])
	for i := range lines {
		lines[i].Text = clip(lines[i].Text, mostOfText)
	}
	slices.Reverse(lines)
	last := firstLines(lines, limit, most)
	slices.Reverse(last)
	view := LogView{Lines: last}
	if n := len(last); n > 0 {
		view.Next = last[n-1].Seq
	}
	return view, nil
}

// lastLines returns the end of the log of an app after a change that has not succeeded; nil if there is none. The change is durable: an
// error of the log is no error of the call.
func (c *call) lastLines(ctx context.Context, appID string) *LogView {
	if c.Apps.Logs == nil {
		return nil
	}
	view, err := c.readTail(ctx, appID, tailLines, maxLogTail, maxTailText)
	if err != nil {
		c.Log.Warn("cannot read the log of an app", "request", c.RequestID, "app", appID, "error", err)
		return nil
	}
	return &view
}

func jsonSize(line LogLine) int {
	encoded, err := json.Marshal(line)
	must(err)
	return len(encoded) + 1
}
