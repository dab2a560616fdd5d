package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/tests/race"
)

// TestAgentRegistersAnApp has the agent of a session register an app that does not start, learn why, and repair it. In the mode
// confirm, a person permits the commands of the app first. The app then answers, and a caller elsewhere reads its log.
func TestAgentRegistersAnApp(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	s := newModelSite(t, "", 0)
	update, err := json.Marshal(map[string]any{"app": "site", "command": command("hello"), "apiScopes": []string{"files:read"}})
	s.check(err)
	s.models.Reply(
		modeltest.Reply{Calls: []model.Call{shell("1", "mkdir site")}},
		modeltest.Reply{Calls: []model.Call{call("2", "register_app", `{"path":"site","slug":"site","command":"echo broken; exit 3"}`)}},
		modeltest.Reply{Calls: []model.Call{call("3", "update_app", string(update))}},
		modeltest.Reply{Calls: []model.Call{call("4", "list_apps", `{}`)}},
		modeltest.Reply{Text: []string{"Served."}},
	)
	id := s.startSession("Serve the folder site.", fields{"mode": "confirm"})
	line := s.follow(id)
	for _, allows := range []string{"shell", "register_app", "update_app"} {
		if end := line.awaitTerminal(); end.String() != "terminal ask" {
			t.Fatalf("before %s the turn has ended with %s: %q", allows, end, line.order)
		}
		s.choose(id, "Allow once")
	}
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Fatalf("the turn has ended with %s: %q", end, line.order)
	}
	results := map[string]string{}
	for _, r := range s.asked(0) {
		for _, m := range r.Messages {
			if m.Role == model.ToolResult {
				results[m.CallID] = m.Text
			}
		}
	}
	var failed, repaired struct {
		App tools.AppView
		Log *tools.LogView
	}
	s.check(json.Unmarshal([]byte(results["call_2"]), &failed))
	if failed.App.Status != "reconcile_failed" || !strings.Contains(failed.App.Reason, "exit status 3") || failed.Log == nil ||
		!strings.Contains(fmt.Sprint(failed.Log.Lines), "stdout broken") {
		t.Errorf("the registration has the result %s", results["call_2"])
	}
	s.check(json.Unmarshal([]byte(results["call_3"]), &repaired))
	if repaired.App.Status != "reconciled" || repaired.App.CanonicalURL != "http://site--acme.localhost:8080/" || repaired.App.AppID != failed.App.AppID {
		t.Errorf("the repair has the result %s", results["call_3"])
	}
	if !strings.Contains(results["call_4"], `"canonicalUrl":"http://site--acme.localhost:8080/"`) {
		t.Errorf("the list is %s", results["call_4"])
	}

	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.apps.Dial(ctx, s.workspaceID, repaired.App.AppID)
		},
	}}
	response, err := client.Get("http://site/")
	s.check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.check(err)
	if string(body) != "hello" {
		t.Errorf("the app answers %q", body)
	}

	var log struct {
		tools.LogView
		Status string
	}
	s.tool("read_app_logs", fields{"workspace": "acme", "app": "site", "after": failed.Log.Next}, &log)
	if !strings.Contains(fmt.Sprint(log.Lines), "stdout listening") || log.Status != "reconciled" || log.Missed {
		t.Errorf("the log is %+v", log)
	}
	// The person of the session is the author of the registration.
	found, err := s.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindApp, Identity: app.Identity(s.workspaceID, repaired.App.AppID), Principal: entity.Platform(), Message: &appv1.DescribeApp{},
	})
	s.check(err)
	if creator := found.(*appv1.Description).GetApp().GetCreatedByUserId(); creator != s.userID {
		t.Errorf("%q has registered the app", creator)
	}
}

// tool calls a tool as a caller elsewhere, with the key of the person.
func (s *agentSite) tool(name string, in fields, out any) {
	s.Helper()
	message, err := json.Marshal(fields{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": fields{"name": name, "arguments": in}})
	s.check(err)
	r, err := http.NewRequestWithContext(s.Context(), "POST", s.url+"/mcp", bytes.NewReader(message))
	s.check(err)
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := http.DefaultClient.Do(r)
	s.check(err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	s.check(err)
	var answer struct {
		Result struct {
			IsError           bool
			StructuredContent json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &answer); err != nil || answer.Result.IsError || len(answer.Result.StructuredContent) == 0 {
		s.Fatalf("%s: %v %s", name, err, content)
	}
	s.check(json.Unmarshal(answer.Result.StructuredContent, out))
}
