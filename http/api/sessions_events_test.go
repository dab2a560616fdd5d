package api

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// maxEvent is the greatest length of an event of a session's stream, which the reference states (followSession) and the Go client accepts.
const maxEvent = 4 << 20

// TestGreatestEvents encodes the rows with the most content, of characters that JSON escapes with six bytes.
func TestGreatestEvents(t *testing.T) {
	path := strings.Repeat("\x01", entity.MaxPathBytes)
	attachments, paths, steps := make([]*sessionv1.Attachment, session.MaxAttachments), make([]string, 64), make([]*sessionv1.PlanStep, 100)
	for i := range attachments {
		attachments[i] = &sessionv1.Attachment{Path: path, Name: path[:entity.MaxSegmentBytes]}
	}
	for i := range paths {
		paths[i] = path
	}
	for i := range steps {
		steps[i] = &sessionv1.PlanStep{Text: path[:2000]}
	}
	for name, row := range map[string]*sessionv1.Row{
		"input": {Input: &sessionv1.Input{Text: strings.Repeat("\u2028", session.MaxText), Attachments: attachments}},
		"tool":  {Tool: &sessionv1.Tool{Title: "\u0085", Output: path + strings.Repeat("\x1b", 60<<10), Paths: paths}},
		"plan":  {Plan: &sessionv1.Plan{Steps: steps}},
	} {
		frames, err := encodeFrames(entity.TimelineBatch{
			Rows:   []entity.TimelineRow{{Version: 1, Event: &sessionv1.RowAdded{Row: row}}},
			Passed: []proto.Message{&sessionv1.PublishDelta{Text: "a\u2029b"}},
		}, func(uint64) string { return "cursor" })
		if err != nil || len(frames) > maxEvent {
			t.Errorf("%s: %d bytes, want at most %d, %v", name, len(frames), maxEvent, err)
		}
		if bytes.ContainsAny(frames, "\u0085\u2028\u2029") {
			t.Errorf("%s: the frames have ends of lines: %.200q", name, frames)
		}
	}
}
