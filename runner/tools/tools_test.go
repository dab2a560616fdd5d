package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/tools"
)

func TestEachCallerHasItsTools(t *testing.T) {
	w := newAppWorld(t, func(o *tools.Options) { o.Files = newFiles() })
	both := []string{
		"list_apps", "register_app", "update_app", "restart_app", "read_app_logs",
		"start_session", "await_sessions", "message_session", "read_session", "list_sessions", "read_activity", "last_writers",
	}
	for name, one := range map[string]struct {
		caller tools.Caller
		want   []string
	}{
		"session":   {agent("ses_1", nil), append([]string{"ask", "sleep_until", "report_progress"}, both...)},
		"elsewhere": {person, append([]string{"list_workspaces", "read_file", "write_file", "list_files"}, both...)},
	} {
		found, err := w.client(one.caller).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range found.Tools {
			names = append(names, tool.Name)
			if tool.Description == "" || tool.OutputSchema == nil || tool.Annotations == nil {
				t.Errorf("%s: %s is not described", name, tool.Name)
			}
			checkBounds(t, tool, one.caller.Session == nil)
		}
		slices.Sort(names)
		slices.Sort(one.want)
		if !slices.Equal(names, one.want) {
			t.Errorf("%s: tools are %v, want %v", name, names, one.want)
		}
	}
}

// checkBounds checks that each argument has a description and a limit, and that callers elsewhere name the workspace.
func checkBounds(t *testing.T, tool *mcp.Tool, elsewhere bool) {
	t.Helper()
	text, err := json.Marshal(tool.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.AdditionalProperties == nil {
		t.Errorf("%s accepts unknown arguments", tool.Name)
	}
	if named := slices.Contains(schema.Required, "workspace"); named != (elsewhere && tool.Name != "list_workspaces") {
		t.Errorf("%s: the workspace is required: %v", tool.Name, named)
	}
	for name, p := range schema.Properties {
		if p.Description == "" || !isBounded(p) {
			t.Errorf("%s: %s has no description or no limit: %s", tool.Name, name, text)
		}
	}
}

func isBounded(s *jsonschema.Schema) bool {
	switch s.Type {
	case "string":
		return s.MaxLength != nil || len(s.Enum) > 0
	case "integer":
		return s.Minimum != nil && s.Maximum != nil
	case "array":
		return s.MaxItems != nil && isBounded(s.Items)
	case "":
		return slices.Equal(s.Types, []string{"integer", "string"}) // the time of sleep_until
	}
	return s.Type == "boolean"
}

func TestArgumentsAreValidated(t *testing.T) {
	w := newWorld(t)
	c := w.client(agent("ses_1", nil))
	for _, one := range []struct {
		tool string
		in   arguments
		want string
	}{
		{"start_session", arguments{}, "prompt"},
		{"start_session", arguments{"prompt": ""}, "minLength"},
		{"start_session", arguments{"prompt": "x", "tier": "best"}, "enum"},
		{"start_session", arguments{"prompt": "x", "other": 1}, "other"},
		{"start_session", arguments{"prompt": strings.Repeat("x", 200_001)}, "maxLength"},
		{"start_session", arguments{"prompt": "x", "requestId": "a b"}, "requestId"},
		{"start_session", arguments{"prompt": "x", "workspace": "acme"}, "workspace"},
		{"await_sessions", arguments{"sessionIds": []string{}}, "minItems"},
		{"await_sessions", arguments{"sessionIds": nil}, "sessionIds"},
		{"await_sessions", arguments{"timeoutSeconds": 301}, "maximum"},
		{"await_sessions", arguments{"timeoutSeconds": 1.5}, "timeoutSeconds"},
		{"read_activity", arguments{"limit": 101}, "maximum"},
		{"read_activity", arguments{"path": "a/../b"}, "path"},
		{"last_writers", arguments{"names": []string{"a/b"}}, "names"},
		{"ask", arguments{"text": "Which?", "options": slices.Repeat([]string{"1"}, 17)}, "maxItems"},
		{"sleep_until", arguments{"at": true}, "at"},
	} {
		if got := c.call(one.tool, one.in, nil); !strings.HasPrefix(got, "invalid_request: ") || !strings.Contains(got, one.want) {
			t.Errorf("%s %.80v: %q, want invalid_request with %s", one.tool, one.in, got, one.want)
		}
	}
	if len(w.asked) > 0 {
		t.Errorf("invalid arguments caused %d commands", len(w.asked))
	}
}

func TestErrorsHaveNoInternalDetails(t *testing.T) {
	for _, one := range []struct {
		err  error
		want string
	}{
		{entity.Errorf(entity.Forbidden, "the credential may not do this"), "forbidden: the credential may not do this"},
		{&entity.Error{Code: entity.Unavailable, Message: "busy", RetryAfter: time.Second}, "unavailable: busy (try again in 1s)"},
		{context.DeadlineExceeded, "unavailable: the server did not answer in time"},
		{errors.New("secret detail"), "internal: the server failed; its log has the reason"},
		{entity.Errorf(entity.Internal, "secret detail"), "internal: the server failed; its log has the reason"},
	} {
		w := newWorld(t)
		w.failure = one.err
		if got := w.client(person).call("read_activity", arguments{"workspace": slugName}, nil); got != one.want {
			t.Errorf("%v: %q, want %q", one.err, got, one.want)
		}
	}
}

func TestUnknownWorkspace(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"elsewhere", "No Slug", "x"} {
		got := w.client(person).call("read_activity", arguments{"workspace": name}, nil)
		if !strings.HasPrefix(got, "not_found: ") {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestListWorkspaces(t *testing.T) {
	var out struct{ Workspaces []tools.WorkspaceView }
	newWorld(t).client(person).must("list_workspaces", nil, &out)
	if len(out.Workspaces) != 1 || out.Workspaces[0].Slug != slugName || out.Workspaces[0].Role != "editor" {
		t.Errorf("workspaces are %+v", out.Workspaces)
	}
}

func TestReadActivity(t *testing.T) {
	c := newWorld(t).client(agent("ses_1", nil))
	var seqs []uint64
	for since := uint64(0); ; {
		var out struct {
			Rows    []tools.ActivityRow
			NextSeq uint64
			More    bool
		}
		c.must("read_activity", arguments{"sinceSeq": since, "limit": 100}, &out)
		for _, row := range out.Rows {
			seqs = append(seqs, row.Seq)
		}
		if since = out.NextSeq; !out.More {
			break
		}
	}
	if len(seqs) != 40 || seqs[0] != 1 || seqs[39] != 40 || !slices.IsSorted(seqs) {
		t.Errorf("seqs are %v", seqs)
	}
	var writers struct{ Writers []tools.WriterView }
	c.must("last_writers", arguments{"dir": "a", "names": []string{"b", "b"}}, &writers)
	if want := (tools.WriterView{Path: "a/b", Actor: "terminal", LastWriteAt: 7}); len(writers.Writers) != 1 || writers.Writers[0] != want {
		t.Errorf("writers are %+v", writers)
	}
}

// turn records what the tools report to the runner.
type turn struct {
	ask   []string
	until time.Time
	step  string
	done  [2]uint64
	err   error
}

func (t *turn) Ask(_ context.Context, text string, options []string) error {
	t.ask = append([]string{text}, options...)
	return t.err
}

func (t *turn) SleepUntil(_ context.Context, at time.Time) error { t.until = at; return t.err }

func (t *turn) Progress(_ context.Context, step string, completed, total uint64) error {
	t.step, t.done = step, [2]uint64{completed, total}
	return t.err
}

func TestTurn(t *testing.T) {
	one := &turn{}
	c := newWorld(t).client(agent("ses_1", one))
	var told struct{ Message string }
	c.must("ask", arguments{"text": "Which?", "options": []string{"red", "blue"}}, &told)
	if !slices.Equal(one.ask, []string{"Which?", "red", "blue"}) || !strings.Contains(told.Message, "End your turn now") {
		t.Errorf("asked %v, told %q", one.ask, told.Message)
	}
	for _, sleep := range []struct {
		in   arguments
		want time.Time
		err  string
	}{
		{arguments{"seconds": 60}, now.Add(time.Minute), ""},
		{arguments{"at": now.Add(time.Hour).UnixMilli()}, now.Add(time.Hour), ""},
		{arguments{"at": now.Add(time.Hour).Format(time.RFC3339)}, now.Add(time.Hour), ""},
		{arguments{}, time.Time{}, "required"},
		{arguments{"at": "tomorrow"}, time.Time{}, "must be a time"},
		{arguments{"at": now.UnixMilli()}, time.Time{}, "later than now"},
		{arguments{"at": now.Add(400 * 24 * time.Hour).UnixMilli()}, time.Time{}, "within a year"},
		{arguments{"at": now.Add(time.Hour).UnixMilli(), "seconds": 1}, time.Time{}, "exclude"},
	} {
		one.until = time.Time{}
		failed := c.call("sleep_until", sleep.in, nil)
		if !one.until.Equal(sleep.want) || (sleep.err == "") != (failed == "") || !strings.Contains(failed, sleep.err) {
			t.Errorf("%v: sleeps until %v, %q", sleep.in, one.until, failed)
		}
	}
	c.must("report_progress", arguments{"step": "reading", "completed": 1, "total": 3}, nil)
	if one.step != "reading" || one.done != [2]uint64{1, 3} {
		t.Errorf("progress is %+v", one)
	}
	for _, wrong := range []arguments{{}, {"completed": 2, "total": 1}} {
		if got := c.call("report_progress", wrong, nil); !strings.HasPrefix(got, "invalid_request") {
			t.Errorf("%v: %q", wrong, got)
		}
	}
	one.err = entity.Errorf(entity.NotFound, "the turn has ended")
	if got := c.call("ask", arguments{"text": "Which?"}, nil); got != "not_found: the turn has ended" {
		t.Error(got)
	}
}

func TestStartSession(t *testing.T) {
	w := newWorld(t)
	var root, again, child struct {
		SessionID string
		Created   bool
	}
	in := arguments{"workspace": slugName, "prompt": "Do it", "cwd": "a/b/../c", "tier": "openai-max", "mode": "confirm", "requestId": "r1"}
	w.client(person).must("start_session", in, &root)
	w.client(person).must("start_session", in, &again)
	if !root.Created || again.Created || root.SessionID != again.SessionID {
		t.Errorf("started %+v and %+v", root, again)
	}
	in["prompt"] = "Do something else"
	if got := w.client(person).call("start_session", in, nil); !strings.HasPrefix(got, "request_id_reused") {
		t.Error(got)
	}
	s := w.state(root.SessionID)
	if s.GetCwd() != "a/c" || s.GetTitle() != "Do it" || s.GetTurn().GetTier() != workspacev1.Tier_TIER_OPENAI_MAX || s.GetCreatorUserId() != "usr_1" {
		t.Errorf("session is %v", s)
	}

	c := w.client(agent(root.SessionID, nil))
	c.must("start_session", arguments{"prompt": "A part", "title": "Part"}, &child)
	s = w.state(child.SessionID)
	if s.GetParentId() != root.SessionID || s.GetCwd() != "a/c" || s.GetTitle() != "Part" || s.GetMode() != sessionv1.Mode_MODE_CONFIRM ||
		s.GetCreatedBy().GetKind() != sessionv1.SenderKind_SENDER_KIND_SESSION || s.GetCreatedBy().GetId() != root.SessionID {
		t.Errorf("child is %v", s)
	}
	if w.state(root.SessionID).GetChildren() != 1 {
		t.Error("the parent has not admitted the child")
	}
	if got := c.call("start_session", arguments{"prompt": "A part", "mode": "auto"}, nil); !strings.HasPrefix(got, "forbidden") {
		t.Errorf("a session in mode confirm has started one in mode auto: %q", got)
	}
	for cwd, reason := range map[string]string{
		"..": "outside_drive", "../x": "outside_drive", "a/../../x": "outside_drive", "/x": "invalid_path", "none": "not_found",
	} {
		got := c.call("start_session", arguments{"prompt": "A part", "cwd": cwd}, nil)
		if !strings.HasPrefix(got, "invalid_cwd: ") || !strings.HasSuffix(got, "(reason: "+reason+")") {
			t.Errorf("%s: %q", cwd, got)
		}
	}
	if got := c.call("start_session", arguments{"prompt": " "}, nil); !strings.HasPrefix(got, "invalid_request") {
		t.Errorf("a blank prompt: %q", got)
	}
	if n := w.state(root.SessionID).GetChildren(); n != 1 {
		t.Errorf("the parent has %d children after refused starts", n)
	}
	if got := c.call("start_session", arguments{"prompt": "A part", "agentId": "agt_2"}, nil); !strings.HasPrefix(got, "invalid_request: agentId") {
		t.Error(got)
	}
	var listed struct{ Sessions []tools.SessionView }
	c.must("list_sessions", arguments{"bucket": "running"}, &listed)
	if len(listed.Sessions) != 2 {
		t.Errorf("sessions are %+v", listed.Sessions)
	}
}

// TestSessionOfAgent expects that the AGENT.md is read again: it has another tier than the workspace has stored.
func TestSessionOfAgent(t *testing.T) {
	w := newWorld(t)
	w.agentTier, w.agentText.Tier = workspacev1.Tier_TIER_OPENAI_MAX, workspacev1.Tier_TIER_FRONTIER
	var out struct{ SessionID string }
	w.client(person).must("start_session", arguments{"workspace": slugName, "prompt": "Do it", "agentId": "agt_1"}, &out)
	s := w.state(out.SessionID)
	if s.GetCwd() != "agents/one" || s.GetTurn().GetTier() != workspacev1.Tier_TIER_FRONTIER || s.GetMode() != sessionv1.Mode_MODE_AUTO {
		t.Errorf("session is %v", s)
	}
}

func TestMessageSession(t *testing.T) {
	w := newWorld(t)
	id := w.started()
	c := w.client(agent("ses_01j00000000000000000000009", nil))
	var first, again struct{ InputSeq uint64 }
	in := arguments{"sessionId": id, "text": "Faster", "behavior": "follow_up", "requestId": "m"}
	c.must("message_session", arguments{"sessionId": id, "text": "Earlier", "requestId": "mm"}, nil)
	c.must("message_session", in, &first)
	clear(w.replies) // the outcome of the command is forgotten after some time; the row is not
	c.must("message_session", in, &again)
	if first != again || first.InputSeq == 0 {
		t.Errorf("sent %+v and %+v", first, again)
	}
	for range 2 { // the second time without the outcome of the command
		// Agents choose the same ids and texts, such as "1" and "done". Another sender's message is no repetition.
		for _, other := range []tools.Caller{agent("ses_01j00000000000000000000008", nil), agent("ses_01j00000000000000000000007", nil)} {
			if got := w.client(other).call("message_session", in, nil); !strings.HasPrefix(got, "request_id_reused") {
				t.Errorf("another sender: %q", got)
			}
		}
		clear(w.replies)
	}
	in["text"] = "Slower"
	if got := c.call("message_session", in, nil); !strings.HasPrefix(got, "request_id_reused") {
		t.Error(got)
	}
	for _, unknown := range []string{"ses_01j99999999999999999999999", "nonsense"} {
		if got := c.call("message_session", arguments{"sessionId": unknown, "text": "x"}, nil); got != "not_found: no such session" {
			t.Errorf("%s: %q", unknown, got)
		}
	}
	var read struct {
		Rows         []tools.RowView
		NextAfterSeq uint64
	}
	c.must("read_session", arguments{"sessionId": id, "limit": 2}, &read)
	if len(read.Rows) != 2 || read.Rows[0].Input != "prompt" || read.Rows[1].Text != "Earlier" || read.NextAfterSeq == 0 {
		t.Fatalf("rows are %+v", read)
	}
	c.must("read_session", arguments{"sessionId": id, "afterSeq": read.NextAfterSeq}, &read)
	if len(read.Rows) != 1 || read.Rows[0].Seq != first.InputSeq || read.Rows[0].Sender.Kind != "session" {
		t.Errorf("rows are %+v", read)
	}
}

// started starts a session of a person and returns its id.
func (w *world) started() string {
	w.Helper()
	var out struct{ SessionID string }
	w.client(person).must("start_session", arguments{"workspace": slugName, "prompt": "Do it"}, &out)
	return out.SessionID
}

func TestLongRowsAreCut(t *testing.T) {
	w := newWorld(t)
	id := w.started()
	for range 5 {
		w.end(id, strings.Repeat("\x01", 100_000), &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE})
		w.client(person).must("message_session", arguments{"workspace": slugName, "sessionId": id, "text": "Again"}, nil)
	}
	texts := 0
	for after := uint64(0); ; {
		var read struct {
			Rows         []tools.RowView
			NextAfterSeq uint64
		}
		w.client(person).must("read_session", arguments{"workspace": slugName, "sessionId": id, "afterSeq": after}, &read)
		for _, row := range read.Rows {
			if row.Kind == "text" && row.Truncated {
				texts++
			}
		}
		if after = read.NextAfterSeq; after == 0 {
			break
		}
	}
	if texts != 5 {
		t.Errorf("%d cut texts, want 5", texts)
	}
}

// TestBatchAfterWhiteSpace expects that no amount of white space hides a batch of messages.
func TestBatchAfterWhiteSpace(t *testing.T) {
	w := newWorld(t)
	body := strings.Repeat(" ", tools.MaxRequest) + `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2025-03-26")
	answer := httptest.NewRecorder()
	w.tools.ServeTools(answer, r, person)
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "a batch of messages is not supported") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
