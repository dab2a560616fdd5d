package builtin

import (
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/tools"
)

const (
	maxCallTitle = 200      // characters
	maxDiff      = 64 << 10 // bytes of a file that is shown before and after a change
)

// A toolCall is a tool call that the client sees.
type toolCall struct {
	updates *updates
	id      acp.ToolCallId
	// started is the update that has announced the call.
	started acp.SessionUpdate
}

// start announces a call.
func (t *turn) start(title string, kind acp.ToolKind, paths []string, arguments any) *toolCall {
	if runes := []rune(title); len(runes) > maxCallTitle {
		title = string(runes[:maxCallTitle]) + "…"
	}
	c := &toolCall{updates: t.updates, id: acp.ToolCallId(t.session.agent.nextID("call"))}
	var locations []acp.ToolCallLocation
	for _, path := range paths {
		locations = append(locations, acp.ToolCallLocation{Path: path})
	}
	c.started = acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: c.id, Title: title, Kind: kind, Status: acp.ToolCallStatusPending, Locations: locations, RawInput: arguments,
	}}
	t.updates.send(c.started)
	return c
}

// progress says that the call runs, with its output so far.
func (c *toolCall) progress(output string) {
	c.update(acp.ToolCallStatusInProgress, textContent(output))
}

// complete ends the call.
func (c *toolCall) complete(output string) {
	c.update(acp.ToolCallStatusCompleted, textContent(output))
}

// fail ends the call without success.
func (c *toolCall) fail(output string) { c.update(acp.ToolCallStatusFailed, textContent(output)) }

// changed ends a call that has changed a file.
func (c *toolCall) changed(path, before, after string, existed bool) {
	switch {
	case len(before)+len(after) > maxDiff:
		c.complete(fmt.Sprintf("%s has %d bytes now", path, len(after)))
	case existed:
		c.update(acp.ToolCallStatusCompleted, []acp.ToolCallContent{acp.ToolDiffContent(path, after, before)})
	default:
		c.update(acp.ToolCallStatusCompleted, []acp.ToolCallContent{acp.ToolDiffContent(path, after)})
	}
}

func (c *toolCall) update(status acp.ToolCallStatus, content []acp.ToolCallContent) {
	c.updates.send(acp.UpdateToolCall(c.id, acp.WithUpdateStatus(status), acp.WithUpdateContent(content)))
}

// textContent returns a text as the content of a call, at most tools.MaxOutput bytes.
func textContent(text string) []acp.ToolCallContent {
	if text == "" {
		return nil
	}
	return []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(bounded(text)))}
}

// bounded returns a text of at most tools.MaxOutput bytes.
func bounded(text string) string {
	const mark = "\n[the rest is left out]"
	if len(text) <= tools.MaxOutput {
		return text
	}
	end := tools.MaxOutput - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 { // within a character
		end--
	}
	return text[:end] + mark
}
