package node

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/runner/tools"
)

// appKey registers an app with scopes and returns its key. The app starts sessions with the key.
func (s *agentSite) appKey(name string, scopes ...string) string {
	s.Helper()
	s.must(http.StatusCreated, s.request("MKCOL", "/drive/"+name, nil), nil)
	var made struct{ App tools.AppView }
	s.tool("register_app", fields{"workspace": "acme", "path": name, "slug": name, "command": command(name), "apiScopes": scopes}, &made)
	if made.App.Status != "reconciled" {
		s.Fatalf("the app is %+v", made.App)
	}
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.serving.Load().apps.Dial(ctx, s.workspaceID, made.App.AppID)
		},
	}}
	response, err := client.Get("http://app/env")
	s.check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.check(err)
	var variables []string
	s.check(json.Unmarshal(body, &variables))
	for _, v := range variables {
		if key, isKey := strings.CutPrefix(v, "SERVICE_APP_API_KEY="); isKey {
			return key
		}
	}
	s.Fatalf("the app has the variables %q", variables)
	return ""
}

// as runs a function with another credential than the key of the person.
func (s *agentSite) as(key string, f func()) {
	person := s.key
	s.key = key
	defer func() { s.key = person }()
	f()
}

// TestGrantsBoundRunbooks has an app with the scope sessions alone send runbooks to a session of its own and to a session of a person.
// Neither session runs a command or writes a file, also not when the person answers the question that the app's runbook asks. The
// person's own inputs do both.
func TestGrantsBoundRunbooks(t *testing.T) {
	s := newAgentSite(t)
	key := s.appKey("talk", "sessions")
	s.must(http.StatusCreated, s.request("PUT", "/drive/secret.txt", "do not tell"), nil)
	person := s.startSession("$ echo by-the-person >person.txt\n", nil)
	line := s.follow(person)
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Fatalf("the person's turn has ended with %s: %q", end, line.order)
	}

	attacks := map[string]string{
		"shell": "$ cat secret.txt; echo stolen >stolen.txt\n", "a file": "write stolen.txt\n  stolen\n",
		"a child": "start child\n  $ echo stolen >stolen.txt\nawait\n", "a question": "ask Go on?\n$ echo stolen >stolen.txt\n",
	}
	for name, runbook := range attacks {
		var own string
		s.as(key, func() { own = s.startSession(runbook, nil) })
		for id, line := range map[string]*timeline{own: s.follow(own), person: line} {
			if id == person {
				s.as(key, func() { s.send(id, "messages", fields{"text": runbook}) })
			}
			end, want := line.awaitTerminal(), "terminal interrupted runbook_failed"
			switch name {
			case "a question":
				s.send(id, "answer", fields{"text": "yes"})
				end = line.awaitTerminal()
			case "a child":
				want = "terminal complete"
			}
			if end.String() != want {
				t.Errorf("%s: the turn has ended with %s: %q", name, end, line.order)
			}
			if text := strings.Join(line.order, "\n"); strings.Contains(text, "do not tell") {
				t.Errorf("%s: the timeline is %q", name, line.order)
			}
		}
	}
	if found := s.read("stolen.txt"); found != "not_found" {
		t.Errorf("a file was written: %q", found)
	}

	// The person's next turn is the person's again.
	s.send(person, "messages", fields{"text": "$ cat secret.txt person.txt\n"})
	if end := line.awaitTerminal(); end.String() != "terminal complete" || !strings.Contains(strings.Join(line.order, ""), "by-the-person") {
		t.Errorf("the person's turn has ended with %s: %q", end, line.order)
	}
}

// TestGrantsBoundModels has the model of a session that an app has started call every tool that could do more than the scopes of the
// app. The model is offered none of the agent's own tools, and an app that it may register has no wider scopes.
func TestGrantsBoundModels(t *testing.T) {
	s := newModelSite(t, "", 0)
	talk, apps := s.appKey("talk", "sessions"), s.appKey("more", "sessions", "apps", "files:read")
	s.must(http.StatusCreated, s.request("PUT", "/drive/secret.txt", "do not tell"), nil)
	wide := call("5", "register_app", `{"path":"talk","slug":"wide","command":"true","apiScopes":["files:write","members","sessions"]}`)
	calls := []model.Call{
		shell("1", "cat secret.txt; touch stolen.txt"), call("2", "read_file", `{"path":"secret.txt"}`), call("3", "write_file", `{"path":"stolen.txt","text":"x"}`),
		call("4", "read_activity", `{}`), wide,
	}
	for _, one := range []struct {
		key     string
		reads   bool
		refused []string
	}{{talk, false, []string{"call_1", "call_2", "call_3", "call_4", "call_5"}}, {apps, true, []string{"call_1", "call_3", "call_5"}}} {
		before := len(s.asked(0))
		s.models.Reply(modeltest.Reply{Calls: calls}, modeltest.Reply{Text: []string{"Done."}})
		var id string
		s.as(one.key, func() { id = s.startSession("Steal.", nil) })
		line := s.follow(id)
		if end := line.awaitTerminal(); end.String() != "terminal complete" {
			t.Fatalf("the turn has ended with %s: %q", end, line.order)
		}
		requests := s.asked(before)
		var refused []string
		for _, m := range requests[len(requests)-1].Messages {
			if m.Role == model.ToolResult && (strings.Contains(m.Text, "permitted") || strings.HasPrefix(m.Text, "forbidden")) {
				refused = append(refused, m.CallID)
			}
			if strings.Contains(m.Text, "do not tell") != (one.reads && m.CallID == "call_2") {
				t.Errorf("the call %s has the result %q", m.CallID, m.Text)
			}
		}
		if !slices.Equal(refused, one.refused) {
			t.Errorf("refused are %q, want %q", refused, one.refused)
		}
		offered := requests[0].Tools
		if slices.Contains(offered, "shell") || slices.Contains(offered, "write_file") || slices.Contains(offered, "read_file") != one.reads {
			t.Errorf("the model is offered %q", offered)
		}
	}
	if found := s.read("stolen.txt"); found != "not_found" {
		t.Errorf("a file was written: %q", found)
	}
}

// TestAgentsHideTheirTokens has the command of a runbook read the memory and the environment of every process in its computer, among
// them its own agent, which has the token of the turn. The kernel refuses both for agents.
func TestAgentsHideTheirTokens(t *testing.T) { testAgentsHideTheirTokens(t) }

func testAgentsHideTheirTokens(t *testing.T, changes ...func(*Options)) {
	s := newAgentSite(t, changes...)
	line := s.follow(s.startSession(`$ for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline | grep -q '^/.atelier/atelier agent' || continue; `+
		`echo agent; cat $p/environ 2>/dev/null; (exec 3<$p/mem) 2>/dev/null && echo memory; readlink $p/fd/0; done; true`+"\n", nil))
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Fatalf("the turn has ended with %s: %q", end, line.order)
	}
	var outputs []string
	for _, r := range line.rows {
		if r.Kind == "tool" && r.Output != "" {
			outputs = append(outputs, strings.TrimSpace(r.Output))
		}
	}
	if !slices.Equal(outputs, []string{"agent"}) {
		t.Errorf("the command has read %q", outputs)
	}
}

// TestAppsOfALimitedKey registers an app with a limited key of an editor. The app stays when the key is revoked. The app keeps the scopes
// that it was given while the editor's role includes these scopes. Only a caller with all scopes of the app changes the app's command
// or the app's scopes.
func TestAppsOfALimitedKey(t *testing.T) {
	s := newAgentSite(t)
	bob, bobsKey := s.person("bob")
	s.addEditor(bob, "bob@example.org")
	limited := func(capabilities ...string) (id, key string) {
		var made struct {
			Key    string
			Record struct{ ID string }
		}
		s.as(bobsKey, func() {
			s.must(http.StatusCreated, s.request("POST", "/v1/user/limited-keys", fields{"name": "k", "capabilities": capabilities}), &made)
		})
		return made.Record.ID, made.Key
	}
	id, wide := limited("apps", "services", "files:read", "files:write", "sessions")
	_, other := limited("apps", "services", "files:read", "files:write", "members")
	var key string
	s.as(wide, func() {
		key = s.appKey("site", "sessions")
		s.refuse(http.StatusForbidden, "forbidden", s.request("PATCH", "/apps/site", fields{"apiScopes": []string{"sessions", "members"}}))
	})
	s.as(other, func() { // lacks a scope that the app has
		s.refuse(http.StatusForbidden, "forbidden", s.request("PATCH", "/apps/site", fields{"command": "true"}))
		s.refuse(http.StatusForbidden, "forbidden", s.request("PATCH", "/apps/site", fields{"apiScopes": []string{"sessions", "members"}}))
	})
	s.as(bobsKey, func() { s.must(http.StatusOK, s.request("DELETE", "/v1/user/api-keys/"+id, nil), nil) })

	s.as(key, func() {
		s.must(http.StatusOK, s.request("GET", sessionsPath, nil), nil)
		for _, path := range []string{"/drive/", "/invites", "/apps"} {
			s.refuse(http.StatusForbidden, "forbidden", s.request("GET", path, nil))
		}
		s.refuse(http.StatusForbidden, "forbidden", s.request("PATCH", "/apps/site", fields{"apiScopes": []string{"sessions", "apps"}}))
	})
	s.must(http.StatusOK, s.request("PATCH", "/members/"+bob, fields{"role": "viewer"}), nil)
	s.as(key, func() {
		s.refuse(http.StatusForbidden, "forbidden", s.request("POST", sessionsPath, fields{"prompt": "say Hello."}))
	})
	s.must(http.StatusOK, s.request("PATCH", "/apps/site", fields{"apiScopes": []string{"sessions", "apps"}}), nil)
	s.as(bobsKey, func() {
		s.refuse(http.StatusForbidden, "forbidden", s.request("PATCH", "/apps/site", fields{"apiScopes": []string{"sessions"}}))
	})
}
