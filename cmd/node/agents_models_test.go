package node

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/race"
)

// operatorKey is the key of the models' server.
const operatorKey = "sk-operator-5up3r-53cr37"

// A modelSite is an agentSite with agents that use the models of a scripted server.
type modelSite struct {
	*agentSite
	models *modeltest.Server
	logs   *nodetest.Log
}

// modelTiers has a tier for each wire format.
var modelTiers = map[model.Wire]string{model.Chat: "balanced", model.Responses: "openai-frontier", model.Anthropic: "anthropic-frontier"}

// newModelSite starts a node with a tier for each wire format, a tier without a running server (openai-max), and budgets.
// Agents end after they have been idle for a time; 0: a default.
func newModelSite(t *testing.T, budgets string, idle time.Duration, changes ...func(*Options)) *modelSite {
	t.Helper()
	s := &modelSite{models: modeltest.New(t), logs: &nodetest.Log{}}
	s.models.WithoutTools(modeltest.Reply{Text: []string{"A short title"}, Usage: model.Usage{Input: 2, Output: 2}})
	gone := modeltest.New(t)
	config := fmt.Sprintf(`
models:
  chat: {wire: chat, baseUrl: %[1]s/v1, model: test-chat, keyFile: key}
  responses: {wire: responses, baseUrl: %[1]s/v1, model: test-responses, keyFile: key}
  anthropic: {wire: anthropic, baseUrl: %[1]s/v1, model: test-anthropic, keyFile: key}
  gone: {wire: chat, baseUrl: %[2]s/nowhere/v1, model: test-gone, keyFile: key}
tiers:
  balanced: {model: chat}
  openai-frontier: {model: responses}
  anthropic-frontier: {model: anthropic}
  openai-max: {model: gone}
%[3]s`, s.models.URL, gone.URL, budgets)
	gone.Respond(func(modeltest.Request) modeltest.Reply {
		return modeltest.Reply{Status: http.StatusUnauthorized, Message: operatorKey}
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "agents.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(operatorKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.agentSite = newAgentSite(t, append(changes, func(o *Options) {
		o.Agents, o.Sessions.IdleTimeout = file, idle
		o.Log = slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})...)
	return s
}

// shell returns a call of the tool shell.
func shell(id, command string) model.Call {
	return call(id, "shell", fmt.Sprintf(`{"command":%q}`, command))
}

func call(id, name, arguments string) model.Call {
	return model.Call{ID: "call_" + id, Name: name, Arguments: arguments}
}

// asked returns the requests with tools, which are the requests of turns, from the index after on.
func (s *modelSite) asked(after int) []modeltest.Request {
	var all []modeltest.Request
	for _, r := range s.models.Requests() {
		if len(r.Tools) > 0 {
			all = append(all, r)
		}
	}
	return all[min(after, len(all)):]
}

// choose answers the question of a session with the option that has a label.
func (s *agentSite) choose(id, label string) {
	s.Helper()
	asked := s.describe(id).Ask
	if asked == nil {
		s.Fatalf("the session %s asks nothing", id)
	}
	i := slices.IndexFunc(asked.Options, func(o option) bool { return o.Label == label })
	if i < 0 {
		s.Fatalf("the question %+v has no option %q", asked, label)
	}
	s.send(id, "answer", fields{"optionId": asked.Options[i].ID})
}

// TestModelsInModeConfirm runs a whole turn with each wire format: text that is streamed, a command and a file that need
// permission, and the end.
func TestModelsInModeConfirm(t *testing.T) { testModelsInModeConfirm(t, modelTiers) }

// testModelsInModeConfirm is TestModelsInModeConfirm for some tiers.
func testModelsInModeConfirm(t *testing.T, tiers map[model.Wire]string, changes ...func(*Options)) {
	s := newModelSite(t, "", 0, changes...)
	for wire, tier := range tiers {
		t.Run(string(wire), func(t *testing.T) {
			s.home.T = t
			before := len(s.asked(0))
			hold := make(chan struct{})
			file := string(wire) + ".txt"
			s.models.Reply(
				modeltest.Reply{Text: []string{"Let me ", "look."}, Calls: []model.Call{shell("1", "env; cat /proc/$PPID/environ; echo seen > "+file)}, Hold: hold},
				modeltest.Reply{Calls: []model.Call{call("2", "write_file", `{"path":"made-`+file+`","text":"by a model"}`)}},
				modeltest.Reply{Thoughts: []string{"Hm."}, Text: []string{"All ", "done."}},
			)
			id := s.startSession("Look around.", fields{"mode": "confirm", "tier": tier})
			line := s.follow(id)
			for text := ""; !strings.Contains(text, "Let me look."); text = strings.Join(line.deltas, "") {
				if line.next() != "delta" && slices.ContainsFunc(line.rows, func(r row) bool { return r.Kind == "text" }) {
					t.Fatalf("a text is durable before it is whole: %q", line.order)
				}
			}
			close(hold)
			line.awaitTerminal()
			processes := s.running()
			s.choose(id, "Allow once")
			line.awaitTerminal()
			if now := s.running(); len(now) != 1 || len(processes) != 1 || now[0].GetId() != processes[0].GetId() {
				t.Errorf("the processes were %v and are %v", processes, now)
			}
			if content := s.read("made-" + file); content != "not_found" {
				t.Errorf("the file was written without permission: %s", content)
			}
			s.choose(id, "Allow for this session")
			if end := line.awaitTerminal(); end.String() != "terminal complete" {
				t.Errorf("the turn has ended with %s", end)
			}
			line.expect("text thought terminal", "text Let me look.", "terminal ask", "terminal ask", "thought Hm.", "text All done.", "terminal complete")
			if content := s.read("made-" + file); content != "by a model" {
				t.Errorf("the file has %q", content)
			}
			s.expectWriter(id, file, "made-"+file)
			s.expectSecrets(line, wire, before)
			if d := s.describe(id); d.Title != "A short title" || d.Usage.InputTokens != 32 || d.Usage.OutputTokens != 17 {
				t.Errorf("the session is %+v", d)
			}
			s.must(http.StatusNoContent, s.request("DELETE", sessionPath(id), nil), nil)
			s.until(func() bool { return len(s.running()) == 0 })
		})
	}
	s.home.T = t
}

// expectWriter fails the test unless a session has written the files, for the person.
func (s *agentSite) expectWriter(id string, paths ...string) {
	s.Helper()
	s.until(func() bool {
		var page struct {
			Items []struct {
				Event struct{ Path, Actor, UserID string }
			}
		}
		s.must(http.StatusOK, s.request("GET", "/file-activity/feed?limit=100&order=desc", nil), &page)
		left := slices.Clone(paths)
		for _, item := range page.Items {
			if !slices.Contains(paths, item.Event.Path) {
				continue
			}
			if item.Event.Actor != "session:"+id || item.Event.UserID != s.userID {
				s.Fatalf("%s is the work of %s for %s", item.Event.Path, item.Event.Actor, item.Event.UserID)
			}
			left = slices.DeleteFunc(left, func(p string) bool { return p == item.Event.Path })
		}
		return len(left) == 0
	})
}

// expectSecrets fails the test unless the operator's key has reached the server of the models, and nothing else.
func (s *modelSite) expectSecrets(line *timeline, wire model.Wire, before int) {
	s.Helper()
	for _, r := range s.asked(before) {
		sent := r.Header.Get("Authorization")
		if wire == model.Anthropic {
			sent = r.Header.Get("X-Api-Key")
		}
		if strings.TrimPrefix(sent, "Bearer ") != operatorKey || r.Model != "test-"+string(wire) || r.Wire != wire {
			s.Errorf("the model %q was asked in the format %s with the headers %v", r.Model, r.Wire, r.Header)
		}
		if strings.Contains(string(r.Body), operatorKey) || strings.Contains(fmt.Sprint(r.Header), "atr_") {
			s.Errorf("a request has a credential that it should not have: %v %s", r.Header, r.Body)
		}
	}
	output := ""
	for _, r := range line.rows {
		if r.Kind == "tool" {
			output += r.Output
		}
	}
	if !strings.Contains(output, "PATH=") {
		s.Errorf("the command has not shown its environment: %s", output)
	}
	for name, text := range map[string]string{"environment": output, "log": s.logs.String()} {
		if strings.Contains(text, operatorKey) || strings.Contains(text, "atr_") || strings.Contains(text, "ATELIER_AGENT_") {
			s.Errorf("the %s has a credential: %s", name, text)
		}
	}
}

// TestModelsThatFail has servers of models limit, cut off and refuse requests.
func TestModelsThatFail(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	s := newModelSite(t, "", 0)
	for wire, tier := range modelTiers {
		for _, test := range []struct {
			name     string
			replies  []modeltest.Reply
			requests int
			want     []string
		}{
			{"rate limited", []modeltest.Reply{{Status: 429, RetryAfter: 1, Message: "slow down"}, {Text: []string{"At last."}}}, 2,
				[]string{"text At last.", "terminal complete"}},
			{"cut off", []modeltest.Reply{{Text: []string{"The be", "ginning", " of it"}, CutAfter: 4}}, 1,
				[]string{"text The be", "terminal interrupted model_error"}},
			{"malformed", []modeltest.Reply{{Text: []string{"The be", "ginning"}, MalformedAfter: 1}}, 1,
				[]string{"terminal interrupted model_error"}},
			{"unknown", []modeltest.Reply{{Status: 404, Message: "no such model"}}, 1, []string{"terminal interrupted model_unavailable"}},
			{"not authorized", []modeltest.Reply{{Status: 401, Message: "the key " + operatorKey + " is unknown"}}, 1,
				[]string{"terminal interrupted model_unavailable"}},
		} {
			t.Run(string(wire)+"/"+test.name, func(t *testing.T) {
				s.home.T = t
				before := len(s.asked(0))
				s.models.Reply(test.replies...)
				id := s.startSession("Hello", fields{"tier": tier})
				line := s.follow(id)
				end := line.awaitTerminal()
				got := line.of("text", "terminal")
				if len(got) > len(test.want) {
					got = got[len(got)-len(test.want):]
				}
				for i, want := range test.want {
					if i >= len(got) || !strings.HasPrefix(got[i], want) {
						t.Errorf("the timeline ends with %q, want %q", got, test.want)
						break
					}
				}
				if n := len(s.asked(before)); n != test.requests {
					t.Errorf("the model was asked %d times, want %d", n, test.requests)
				}
				if strings.Contains(end.Error.Message, operatorKey) || strings.Contains(s.logs.String(), operatorKey) {
					t.Errorf("the key is in the timeline or the log: %+v", end)
				}
				// The next turn goes on.
				s.models.Reply(modeltest.Reply{Text: []string{"Again."}})
				s.send(id, "messages", fields{"text": "Once more"})
				if end := line.awaitTerminal(); end.String() != "terminal complete" {
					t.Errorf("the next turn has ended with %s", end)
				}
			})
		}
	}
	s.home.T = t
	before := len(s.models.Requests())
	for _, tier := range []string{"openai-max", "frontier", "anthropic-max"} { // refused by its server, and not configured
		id := s.startSession("Hello", fields{"tier": tier})
		line := s.follow(id)
		if end := line.awaitTerminal(); end.String() != "terminal interrupted model_unavailable" || strings.Contains(end.Error.Message, operatorKey) {
			t.Errorf("%s has ended with %+v", tier, end)
		}
		line.expect("text")
	}
	if n := len(s.models.Requests()) - before; n != 0 {
		t.Errorf("another model was asked %d times", n)
	}
}
