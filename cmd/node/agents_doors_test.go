package node

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service"
)

// A door starts sessions: the API or the tools for agents, which have the same names for the fields of a start.
type door struct {
	name string
	// below is the parent of the sessions that the door starts; empty: they have no parent.
	below string
	// start returns the id of the session, or the code of the refusal and its reason.
	start func(in fields) (id, code, reason string)
}

// doors returns each door for sessions with and without a parent.
func (s *agentSite) doors(parent string) []door {
	s.Helper()
	owner := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: s.userID}
	agent := tools.SessionCaller(s.workspaceID, parent, s.userID, entity.AgentCapabilities(), &sessionv1.Participant{UserId: s.userID}, nil)
	return []door{
		{"the API", "", s.overAPI(sessionsPath)},
		{"the API, a child", parent, s.overAPI(sessionPath(parent) + "/sessions")},
		{"a tool elsewhere", "", s.connect(tools.Caller{Caller: service.Caller{Principal: owner}}).start},
		{"a tool of an agent", parent, s.connect(agent).start},
	}
}

func (s *agentSite) overAPI(path string) func(fields) (id, code, reason string) {
	return func(in fields) (id, code, reason string) {
		s.Helper()
		r := s.request("POST", path, in)
		var answer struct{ SessionID, Error, Reason string }
		s.check(json.Unmarshal(r.body, &answer))
		if (r.status == http.StatusCreated) != (answer.Error == "") {
			s.Errorf("%s: %d %s", r.request, r.status, r.body)
		}
		return answer.SessionID, answer.Error, answer.Reason
	}
}

// start calls start_session.
func (c toolClient) start(in fields) (id, code, reason string) {
	c.Helper()
	result, _ := c.call("start_session", in)
	if !result.IsError {
		return result.StructuredContent.(map[string]any)["sessionId"].(string), "", ""
	}
	code, message, _ := strings.Cut(result.Content[0].(*mcp.TextContent).Text, ": ")
	if _, after, has := strings.Cut(message, " (reason: "); has {
		reason = strings.TrimSuffix(after, ")")
	}
	return "", code, reason
}

// session returns the state of a session.
func (s *agentSite) session(id string) *sessionv1.Session {
	s.Helper()
	reply := s.platform(entity.KindSession, session.Identity(s.workspaceID, id), &sessionv1.DescribeSession{})
	return reply.(*sessionv1.Description).GetSession()
}

// onDisk returns the path of a file of the drive on this machine.
func (s *agentSite) onDisk(path string) string {
	return filepath.Join(s.Drives.Dir(), s.workspaceID, "files", path)
}

// TestWorkingDirectoriesThroughEachDoor expects one rule for working directories: real folders without links, and a reason for each
// refusal, which leaves no child.
func TestWorkingDirectoriesThroughEachDoor(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.HoldTurns = true })
	s.makeFolder("docs")
	s.makeFolder("docs/notes")
	s.check(os.WriteFile(s.onDisk("file"), nil, 0o600))
	s.check(os.Symlink("docs", s.onDisk("link")))
	s.check(os.Symlink("/etc", s.onDisk("out")))
	parent := s.startSession("say Hello.", fields{"cwd": "docs"})
	started := uint64(0)
	for _, d := range s.doors(parent) {
		for in, want := range map[string]string{
			".": "", "docs/notes/..": "docs", "./docs//notes": "docs/notes", "link": "docs", "link/notes": "docs/notes",
		} {
			id, code, _ := d.start(fields{"prompt": "say Hello.", "cwd": in})
			if code != "" {
				t.Errorf("%s, %s: %s", d.name, in, code)
				continue
			}
			if at := s.session(id); at.GetCwd() != want || at.GetParentId() != d.below {
				t.Errorf("%s, %s: the session below %q works in %q, want %q", d.name, in, at.GetParentId(), at.GetCwd(), want)
			}
			if d.below != "" {
				started++
			}
		}
		for in, want := range map[string]string{
			"/docs": "invalid_path", "/": "invalid_path", "..": "outside_drive", "docs/../..": "outside_drive", "out": "outside_drive",
			"none": "not_found", "file": "not_a_directory", "a\x00": "invalid_path",
		} {
			if _, code, reason := d.start(fields{"prompt": "say Hello.", "cwd": in}); code != "invalid_cwd" || reason != want {
				t.Errorf("%s, %q: %q with the reason %q, want invalid_cwd with %q", d.name, in, code, reason, want)
			}
		}
	}
	if n := uint64(s.session(parent).GetChildren()); n != started {
		t.Errorf("the parent has admitted %d children, want %d", n, started)
	}
}

// TestAgentsThroughEachDoor expects that a start reads the AGENT.md again.
func TestAgentsThroughEachDoor(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.HoldTurns = true })
	s.makeFolder("helper")
	write := func(tier string) {
		text := "---\nname: Helper\ndescription: Helps.\ntier: " + tier + "\n---\nHelp.\n"
		s.check(os.WriteFile(s.onDisk("helper/AGENT.md"), []byte(text), 0o600))
	}
	write("balanced")
	var registered struct{ Agent struct{ ID string } }
	s.must(http.StatusCreated, s.request("POST", "/agents", fields{"path": "helper"}), &registered)
	tiers := []workspacev1.Tier{
		workspacev1.Tier_TIER_FRONTIER, workspacev1.Tier_TIER_OPENAI_MAX, workspacev1.Tier_TIER_ANTHROPIC_MAX, workspacev1.Tier_TIER_OPENAI_FRONTIER,
	}
	for i, d := range s.doors(s.startSession("say Hello.", nil)) {
		write(entity.TierNames[tiers[i]])
		id, code, _ := d.start(fields{"prompt": "say Hello.", "agentId": registered.Agent.ID})
		if code != "" {
			t.Errorf("%s: %s", d.name, code)
		} else if got := s.session(id).GetTurn().GetTier(); got != tiers[i] {
			t.Errorf("%s: the tier is %v, want %v", d.name, got, tiers[i])
		}
		if _, code, _ := d.start(fields{"prompt": "say Hello.", "agentId": "agt_none"}); code != "invalid_request" {
			t.Errorf("%s: an unknown agent: %q", d.name, code)
		}
	}
}

// TestChildrenOfAConfirmingSession expects that a session that confirms gets no child that does not, through no door, and that a refused
// start leaves no child.
func TestChildrenOfAConfirmingSession(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.HoldTurns = true })
	for _, i := range []int{1, 3} { // the doors with a parent
		parent := s.startSession("say Hello.", fields{"mode": "confirm"})
		d := s.doors(parent)[i]
		for _, one := range []struct {
			in   fields
			code string
		}{
			{fields{"prompt": "say Hello.", "mode": "auto"}, "forbidden"},
			{fields{"prompt": " "}, "invalid_request"},
			{fields{"prompt": "say Hello.", "agentId": "agt_none"}, "invalid_request"},
		} {
			if _, code, _ := d.start(one.in); code != one.code {
				t.Errorf("%s, %v: %q, want %s", d.name, one.in, code, one.code)
			}
		}
		if n := s.session(parent).GetChildren(); n != 0 {
			t.Errorf("%s: %d children after refused starts", d.name, n)
		}
		for _, in := range []fields{{"prompt": "say Hello."}, {"prompt": "say Hello.", "mode": "confirm"}} {
			if id, code, _ := d.start(in); code != "" || s.session(id).GetMode() != sessionv1.Mode_MODE_CONFIRM {
				t.Errorf("%s, %v: %q, mode %v", d.name, in, code, s.session(id).GetMode())
			}
		}
		if n := s.session(parent).GetChildren(); n != 2 {
			t.Errorf("%s: %d children, want 2", d.name, n)
		}
	}
}
