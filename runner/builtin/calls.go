package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
)

const (
	defaultTimeout = 2 * time.Minute
	longestTimeout = time.Hour
	searchTimeout  = 30 * time.Second
	maxPlan        = 50
)

// A toolset has the tools of a session by the names that the model knows.
type toolset struct {
	order  []model.Tool
	remote map[string]remoteTool
}

type remoteTool struct {
	server *server
	tool   *mcp.Tool
}

func (s toolset) tools() []model.Tool { return s.order }

// callResult is the result of a call, for the model.
type callResult struct {
	text     string
	isError  bool
	endsTurn bool
}

func succeeded(text string) callResult { return callResult{text: text} }
func refused(err error) callResult     { return callResult{text: err.Error(), isError: true} }

// toolset returns the agent's own tools and the tools of the MCP servers.
func (s *session) toolset() toolset {
	set := toolset{order: s.ownTools(), remote: map[string]remoteTool{}}
	names := map[string]bool{}
	for _, t := range set.order {
		names[t.Name] = true
	}
	for _, one := range s.servers.all {
		for _, tool := range one.tools {
			name := toolName(one.name, tool.Name)
			if names[name] || len(set.order) == maxTools {
				continue // the first of a name is used
			}
			names[name] = true
			set.order = append(set.order, model.Tool{Name: name, Description: tool.Description, Schema: tool.InputSchema})
			set.remote[name] = remoteTool{one, tool}
		}
	}
	return set
}

// arguments has the arguments of all of the agent's own tools.
type arguments struct {
	Command        string     `json:"command"`
	TimeoutSeconds int64      `json:"timeoutSeconds"`
	Path           string     `json:"path"`
	FirstLine      int        `json:"firstLine"`
	Lines          int        `json:"lines"`
	Text           string     `json:"text"`
	Old            string     `json:"old"`
	New            string     `json:"new"`
	All            bool       `json:"all"`
	Depth          int        `json:"depth"`
	Pattern        string     `json:"pattern"`
	Glob           string     `json:"glob"`
	Steps          []planStep `json:"steps"`
}

type planStep struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

// call carries out a call.
func (t *turn) call(ctx context.Context, available toolset, c model.Call, isTruncated bool) callResult {
	if remote, found := available.remote[c.Name]; found {
		return t.callRemote(ctx, remote, c)
	}
	var a arguments
	if err := json.Unmarshal([]byte(c.Arguments), &a); err != nil {
		if isTruncated {
			return refused(errors.New("the call was cut off, because the reply became too long: write less at once"))
		}
		return refused(fmt.Errorf("the arguments are no JSON of the tool's schema: %w", err))
	}
	switch c.Name {
	case "shell":
		return t.callShell(ctx, a)
	case "write_file":
		if err := t.write(ctx, a.Path, a.Text); err != nil {
			return refused(err)
		}
		return succeeded(fmt.Sprintf("%s was written.", a.Path))
	case "edit_file":
		return t.callEdit(ctx, a)
	case "read_file":
		return t.look(c.Name, "Read "+a.Path, acp.ToolKindRead, a.Path, func() (string, error) {
			return t.session.drive.Read(a.Path, a.FirstLine, a.Lines)
		})
	case "list_files":
		a.Path = cmp.Or(a.Path, ".")
		return t.look(c.Name, "List "+a.Path, acp.ToolKindRead, a.Path, func() (string, error) {
			return t.session.drive.List(ctx, a.Path, a.Depth)
		})
	case "search":
		a.Path = cmp.Or(a.Path, ".")
		return t.look(c.Name, "Search "+a.Pattern, acp.ToolKindSearch, a.Path, func() (string, error) {
			ctx, cancel := context.WithTimeout(ctx, searchTimeout)
			defer cancel()
			return t.session.drive.Search(ctx, a.Pattern, a.Path, a.Glob)
		})
	case "plan":
		return t.plan(a.Steps)
	}
	return refused(fmt.Errorf("there is no tool %q", c.Name))
}

func (t *turn) callShell(ctx context.Context, a arguments) callResult {
	if a.Command == "" {
		return refused(errors.New("the command is empty"))
	}
	timeout := defaultTimeout
	if a.TimeoutSeconds > 0 {
		timeout = min(time.Duration(min(a.TimeoutSeconds, 1<<20))*time.Second, longestTimeout)
	}
	result, err := t.shell(ctx, a.Command, t.session.agent.environ, timeout)
	switch {
	case err != nil:
		return refused(err)
	case result.IsTimedOut:
		return callResult{text: fmt.Sprintf("%s\n[the command was ended after %s]", result.Output, timeout), isError: true}
	case result.Status != 0:
		return callResult{text: fmt.Sprintf("%s\n[exit status %d]", result.Output, result.Status), isError: true}
	}
	return succeeded(cmp.Or(result.Output, "[no output]"))
}

func (t *turn) callEdit(ctx context.Context, a arguments) callResult {
	relative, err := t.session.drive.Path(a.Path)
	if err != nil {
		return refused(err)
	}
	absolute := t.session.drive.Absolute(relative)
	call := t.start("Edit "+a.Path, acp.ToolKindEdit, []string{absolute}, map[string]any{"path": absolute})
	if err = t.session.checkTool("edit_file"); err == nil {
		err = t.permit(ctx, "files", call.started)
	}
	n := 0
	if err == nil {
		n, err = t.session.drive.Edit(a.Path, a.Old, a.New, a.All)
	}
	if err != nil {
		call.fail(err.Error())
		return refused(err)
	}
	call.changed(absolute, a.Old, a.New, true)
	return succeeded(fmt.Sprintf("%d replaced in %s.", n, a.Path))
}

// look carries out a call of a tool that changes nothing.
func (t *turn) look(tool, title string, kind acp.ToolKind, path string, read func() (string, error)) callResult {
	relative, err := t.session.drive.Path(path)
	if err != nil {
		return refused(err)
	}
	call := t.start(title, kind, []string{t.session.drive.Absolute(relative)}, nil)
	var text string
	if err = t.session.checkTool(tool); err == nil {
		text, err = read()
	}
	if err != nil {
		call.fail(err.Error())
		return refused(err)
	}
	call.complete(text)
	return succeeded(cmp.Or(text, "[the file is empty]"))
}

// plan shows the model's plan.
func (t *turn) plan(steps []planStep) callResult {
	if len(steps) > maxPlan {
		return refused(fmt.Errorf("a plan has at most %d steps", maxPlan))
	}
	entries := []acp.PlanEntry{}
	for _, step := range steps {
		status := acp.PlanEntryStatus(step.Status)
		switch status {
		case acp.PlanEntryStatusPending, acp.PlanEntryStatusInProgress, acp.PlanEntryStatusCompleted:
		default:
			return refused(fmt.Errorf("the status %q is not pending, in_progress or completed", step.Status))
		}
		entries = append(entries, acp.PlanEntry{Content: step.Text, Status: status, Priority: acp.PlanEntryPriorityMedium})
	}
	t.updates.send(acp.UpdatePlan(entries...))
	return succeeded("The plan is shown.")
}

// callRemote calls a tool of an MCP server.
func (t *turn) callRemote(ctx context.Context, remote remoteTool, c model.Call) callResult {
	var values map[string]any
	if err := json.Unmarshal([]byte(c.Arguments), &values); err != nil {
		return refused(fmt.Errorf("the arguments are no JSON object: %w", err))
	}
	isPlatform := remote.server.name == meta.PlatformServer
	call := t.start(cmp.Or(remote.tool.Title, c.Name), acp.ToolKindOther, nil, values)
	if needsPermission(remote.tool.Annotations, isPlatform) {
		if err := t.permit(ctx, "mcp:"+c.Name, call.started); err != nil {
			call.fail(err.Error())
			return refused(err)
		}
	}
	answer, err := remote.server.call(ctx, remote.tool.Name, values)
	if err != nil {
		remote.server.reset(ctx, err)
		call.fail(err.Error())
		return refused(err)
	}
	text := textOf(answer)
	if answer.IsError {
		call.fail(text)
		return callResult{text: text, isError: true}
	}
	call.complete(text)
	name := remote.tool.Name
	return callResult{text: text, endsTurn: isPlatform && (name == meta.ToolAsk || name == meta.ToolSleep)}
}

// needsPermission reports whether the calls of a tool need a person's permission in the mode confirm: a tool of the
// platform if it may destroy something, such as a tool that runs commands of apps; every other tool if it may change something.
func needsPermission(about *mcp.ToolAnnotations, isPlatform bool) bool {
	switch {
	case about == nil:
		return !isPlatform
	case about.ReadOnlyHint:
		return false
	case isPlatform:
		return about.DestructiveHint == nil || *about.DestructiveHint
	default:
		return true
	}
}

// ownTools are the agent's own tools.
var ownTools = []model.Tool{
	{Name: "shell", Description: "Run a command with /bin/sh in the working directory and return its output (standard output " +
		"and standard error) and its exit status. Processes that it starts in the background go on; redirect their output to a file.",
		Schema: schema("command", property{"command", "string", "the command"},
			property{"timeoutSeconds", "integer", "when the command is ended; by default 120, at most 3600"})},
	{Name: "read_file", Description: "Return the text of a file.",
		Schema: schema("path", property{"path", "string", "the file"},
			property{"firstLine", "integer", "the first line, from 1"}, property{"lines", "integer", "the number of lines"})},
	{Name: "write_file", Description: "Replace the whole content of a file, or make the file and its folders.",
		Schema: schema("path text", property{"path", "string", "the file"}, property{"text", "string", "its new content"})},
	{Name: "edit_file", Description: "Replace an exact text in a file, which must occur once, or, with all, every occurrence.",
		Schema: schema("path old new", property{"path", "string", "the file"}, property{"old", "string", "the text to replace"},
			property{"new", "string", "the text instead"}, property{"all", "boolean", "replace every occurrence"})},
	{Name: "list_files", Description: "List a folder; names of folders end with a slash.",
		Schema: schema("", property{"path", "string", "the folder; by default the working directory"},
			property{"depth", "integer", "how many levels to list; by default 1, at most 8"})},
	{Name: "search", Description: "Return the lines of text files that match a regular expression (RE2). Generated folders " +
		"such as node_modules are left out, unless they are named.",
		Schema: schema("pattern", property{"pattern", "string", "the expression"},
			property{"path", "string", "the folder or file; by default the working directory"},
			property{"glob", "string", "which names of files to search, such as *.go"})},
	{Name: "plan", Description: "Show your plan to the people, or replace it: all steps, with their status.",
		Schema: map[string]any{"type": "object", "required": []string{"steps"}, "properties": map[string]any{
			"steps": map[string]any{"type": "array", "items": map[string]any{
				"type": "object", "required": []string{"text", "status"}, "properties": map[string]any{
					"text":   map[string]any{"type": "string"},
					"status": map[string]any{"type": "string", "enum": []string{"pending", "in_progress", "completed"}},
				},
			}},
		}}},
}
