package runner

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

const (
	// maxToolOutput is the maximum length of the output of a tool in a row, in bytes.
	maxToolOutput = 64 << 10
	// maxTools is the maximum number of tool calls that may run at the same time; beyond it, the oldest call is forgotten.
	maxTools = 256
	// maxTitle, maxPaths and maxSteps bound the fields of the rows of tools and plans.
	maxTitle = 500
	maxPaths = 64
	maxSteps = 100
	// maxStep is the maximum length of a step of a plan.
	maxStep = 2000
	// maxPath is the maximum length of a path in bytes; longer paths are omitted.
	maxPath = 4096
)

// updates translates the updates of an agent into rows.
type updates struct {
	out *output
	// home is the path of the drive in the computer.
	home string
	// token is the agent's secret; it is redacted, because commands such as env print it.
	token string

	mu    sync.Mutex
	calls []*sessionv1.Tool
	// ended has the ids of the last calls that have ended. A later update of an ended call must not begin the call again.
	ended []string
}

// handle handles an update. It may wait until the session has recorded earlier updates.
func (u *updates) handle(update acp.SessionUpdate) {
	switch {
	case update.AgentMessageChunk != nil:
		u.out.write(u.redacted(textOf(update.AgentMessageChunk.Content)), false)
	case update.AgentThoughtChunk != nil:
		u.out.write(u.redacted(textOf(update.AgentThoughtChunk.Content)), true)
	case update.ToolCall != nil:
		c := update.ToolCall
		u.tool(acp.SessionToolCallUpdate{
			ToolCallId: c.ToolCallId, Title: &c.Title, Kind: &c.Kind, Status: &c.Status,
			Content: c.Content, Locations: c.Locations, RawOutput: c.RawOutput,
		}, true)
	case update.ToolCallUpdate != nil:
		u.tool(*update.ToolCallUpdate, false)
	case update.Plan != nil:
		u.plan(update.Plan.Entries)
	case update.SessionInfoUpdate != nil:
		if title := update.SessionInfoUpdate.Title; title != nil && *title != "" {
			u.out.set(false, func(r *sessionv1.RecordRows) { r.Title = limit(u.redacted(*title), maxTitleOfSession) })
		}
	}
}

// redacted returns a text without the token of the agent. It does not find a token that is split between two updates.
func (u *updates) redacted(text string) string {
	return strings.ReplaceAll(text, u.token, redactedToken)
}

// redactedToken stands for the token of an agent in rows and logs.
const redactedToken = "[token]"

// maxTitleOfSession is the maximum length of a session's title in characters.
const maxTitleOfSession = 200

// limit returns the first n characters of a text.
func limit(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// textOf returns the text of a content block. For content without text, it returns a name of the content.
func textOf(block acp.ContentBlock) string {
	switch {
	case block.Text != nil:
		return block.Text.Text
	case block.ResourceLink != nil:
		return "[" + block.ResourceLink.Name + "](" + block.ResourceLink.Uri + ")"
	case block.Image != nil:
		return "[image]"
	case block.Audio != nil:
		return "[audio]"
	case block.Resource != nil && block.Resource.Resource.TextResourceContents != nil:
		return block.Resource.Resource.TextResourceContents.Text
	}
	return ""
}

var toolKinds = []acp.ToolKind{
	acp.ToolKindRead, acp.ToolKindEdit, acp.ToolKindDelete, acp.ToolKindMove, acp.ToolKindSearch, acp.ToolKindExecute,
	acp.ToolKindThink, acp.ToolKindFetch, acp.ToolKindOther,
}

var toolStatuses = []acp.ToolCallStatus{
	acp.ToolCallStatusPending, acp.ToolCallStatusInProgress, acp.ToolCallStatusCompleted, acp.ToolCallStatusFailed,
}

func isFinal(status string) bool {
	return status == string(acp.ToolCallStatusCompleted) || status == string(acp.ToolCallStatusFailed)
}

// tool adds a row for the start of a tool call, and a row for the final status.
func (u *updates) tool(c acp.SessionToolCallUpdate, isStart bool) {
	u.mu.Lock()
	id := limit(string(c.ToolCallId), maxTitle)
	i := slices.IndexFunc(u.calls, func(t *sessionv1.Tool) bool { return t.GetToolCallId() == id })
	if i < 0 && slices.Contains(u.ended, id) && (c.Status == nil || !isFinal(string(*c.Status))) && !isStart {
		u.mu.Unlock()
		return
	}
	isNew := i < 0
	if isNew {
		if len(u.calls) >= maxTools {
			u.calls = slices.Delete(u.calls, 0, 1)
		}
		i = len(u.calls)
		u.calls = append(u.calls, &sessionv1.Tool{ToolCallId: id, ToolKind: string(acp.ToolKindOther), Status: string(acp.ToolCallStatusPending)})
	}
	call := u.calls[i]
	u.apply(call, c)
	isEnd := isFinal(call.GetStatus())
	if isEnd {
		u.calls = slices.Delete(u.calls, i, i+1)
		u.ended = append(u.ended[max(len(u.ended)-maxTools+1, 0):], id)
	}
	row := cloneTool(call)
	u.mu.Unlock()
	if isNew || isEnd {
		u.out.add(&sessionv1.Row{Tool: row})
	}
}

func cloneTool(t *sessionv1.Tool) *sessionv1.Tool {
	return &sessionv1.Tool{
		ToolCallId: t.GetToolCallId(), Title: t.GetTitle(), ToolKind: t.GetToolKind(), Status: t.GetStatus(),
		Paths: slices.Clone(t.GetPaths()), Output: t.GetOutput(),
	}
}

// apply changes a call by an update. The lists and the output of the update replace the lists and the output of the call.
func (u *updates) apply(call *sessionv1.Tool, c acp.SessionToolCallUpdate) {
	if c.Title != nil && *c.Title != "" {
		call.Title = limit(u.redacted(*c.Title), maxTitle)
	}
	if c.Kind != nil && slices.Contains(toolKinds, *c.Kind) {
		call.ToolKind = string(*c.Kind)
	}
	if c.Status != nil && slices.Contains(toolStatuses, *c.Status) {
		call.Status = string(*c.Status)
	}
	if c.Locations != nil {
		call.Paths = nil
		for _, l := range c.Locations {
			u.addPath(call, l.Path)
		}
	}
	if c.Content != nil {
		call.Output = u.outputOf(call, c.Content)
	} else if c.RawOutput != nil && call.GetOutput() == "" {
		call.Output = middle(u.redacted(rawOutput(c.RawOutput)), maxToolOutput)
	}
}

func (u *updates) addPath(call *sessionv1.Tool, at string) {
	if at = u.relative(at); at != "" && len(at) <= maxPath && len(call.Paths) < maxPaths && !slices.Contains(call.Paths, at) {
		call.Paths = append(call.Paths, at)
	}
}

// relative returns the path relative to the drive for a path that an agent has sent; empty if the path is not below the drive.
func (u *updates) relative(at string) string {
	if at = path.Clean(at); path.IsAbs(at) {
		below, ok := strings.CutPrefix(at, u.home+"/")
		if !ok {
			return ""
		}
		at = below
	}
	if at == "." || at == ".." || strings.HasPrefix(at, "../") {
		return ""
	}
	return at
}

// outputOf returns the text of the contents of a call, and adds the paths of the diffs in contents to call. Because a message can have very many
// contents, the text is shortened only when it is much too long.
func (u *updates) outputOf(call *sessionv1.Tool, contents []acp.ToolCallContent) string {
	var output []byte
	for _, content := range contents {
		var text string
		switch {
		case content.Content != nil:
			text = u.redacted(textOf(content.Content.Content))
		case content.Diff != nil:
			u.addPath(call, content.Diff.Path)
		}
		if text == "" {
			continue
		}
		if len(output) > 0 {
			output = append(output, '\n')
		}
		if output = append(output, text...); len(output) > 4*maxToolOutput {
			output = append(output[:0], middle(string(output), maxToolOutput)...)
		}
	}
	return middle(string(output), maxToolOutput)
}

// rawOutput returns the output of a tool that an agent reports as JSON without a standard form.
func rawOutput(raw any) string {
	switch raw := raw.(type) {
	case string:
		return raw
	case map[string]any:
		for _, name := range []string{"formatted_output", "aggregated_output", "output", "stdout", "content"} {
			if text, ok := raw[name].(string); ok && text != "" {
				return text
			}
		}
	}
	encoded, err := json.Marshal(raw)
	if err != nil {
		return ""
	}
	return string(encoded)
}

const omission = "\n[…]\n"

// middle returns a text of at most n bytes, without its middle if it is longer.
func middle(text string, n int) string {
	if len(text) <= n {
		return text
	}
	half := (n - len(omission)) / 2
	end := len(text) - half
	for !utf8.RuneStart(text[end]) {
		end++
	}
	return cut(text, half) + omission + text[end:]
}

func (u *updates) plan(entries []acp.PlanEntry) {
	plan := &sessionv1.Plan{}
	for _, e := range entries[:min(len(entries), maxSteps)] {
		status := string(e.Status)
		if status != "in_progress" && status != "completed" {
			status = "pending"
		}
		plan.Steps = append(plan.Steps, &sessionv1.PlanStep{Text: limit(u.redacted(e.Content), maxStep), Status: status})
	}
	u.out.add(&sessionv1.Row{Plan: plan})
}

// endCalls adds a failed row for each tool call that has no final status, because its turn has ended.
func (u *updates) endCalls() {
	u.mu.Lock()
	calls := u.calls
	u.calls = nil
	u.mu.Unlock()
	for _, c := range calls {
		c.Status = string(acp.ToolCallStatusFailed)
		u.out.addLast(&sessionv1.Row{Tool: c})
	}
}
