package skills_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/skills"
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// fakeWorkspace is a workspace with one agent.
type fakeWorkspace struct {
	path    string
	agent   *workspacev1.Agent
	failure error
	updated *workspacev1.UpdateAgent
}

func (w *fakeWorkspace) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *workspacev1.DescribeAgent:
		if w.failure != nil {
			return nil, w.failure
		}
		if m.GetAgentId() != w.agent.GetId() || c.Identity != ws || !entity.IsPlatform(c.Principal) {
			return nil, entity.Errorf(entity.NotFound, "no such agent")
		}
		return &workspacev1.Anchor{Id: "anc_1", Path: w.path, Agent: w.agent}, nil
	case *workspacev1.UpdateAgent:
		w.updated = m
		return w.agent, nil
	}
	return nil, fmt.Errorf("unexpected %T", c.Message)
}

func TestInstructions(t *testing.T) {
	d := newDisk(t)
	w := &fakeWorkspace{path: "notes", agent: &workspacev1.Agent{Id: "agt_1", Name: "Old", Description: "Old."}}
	instructions := skills.NewInstructions(d.Reader, w)
	read := func(agentID, cwd string) string {
		t.Helper()
		text, err := instructions.Read(t.Context(), ws, agentID, cwd)
		d.check(err)
		if !strings.Contains(text, "`sleep_until`") || strings.Contains(text, "---\nname") {
			t.Errorf("the built-in skills are missing, or have front matter: %s", text)
		}
		return text
	}
	d.write("notes/AGENT.md", "---\nname: Notes\ndescription: Writes notes.\ntier: balanced\n---\nRead the commits.\n")
	d.skill("src/.agents/skills/a", "release")
	d.skill(".agents/skills/b", "style")

	text := read("agt_1", "src")
	want := "You are the agent \"Notes\": Writes notes.\n\nRead the commits.\n\nSkills of this workspace."
	list := "- release (src/.agents/skills/a/SKILL.md): In src/.agents/skills/a.\n- style (.agents/skills/b/SKILL.md): In .agents/skills/b.\n\n<skill name=\"platform-tools\">\n"
	if !strings.HasPrefix(text, want) || !strings.Contains(text, list) {
		t.Errorf("%s", text)
	}
	if want := (&workspacev1.UpdateAgent{AnchorId: "anc_1", Path: "notes", Name: "Notes", Description: "Writes notes.", Tier: workspacev1.Tier_TIER_BALANCED}); !proto.Equal(w.updated, want) {
		t.Errorf("%v, want %v", w.updated, want)
	}
	if text := read("", ""); strings.Contains(text, "You are") || strings.Contains(text, "release (") || !strings.Contains(text, "- style (") {
		t.Errorf("without an agent, in the root: %s", text)
	}
	if text := read("agt_1", "gone"); !strings.Contains(text, "- style (") {
		t.Errorf("in a folder that is gone: %s", text)
	}
	if text := read("agt_2", ""); strings.Contains(text, "You are") {
		t.Errorf("a removed agent: %s", text)
	}

	// Without a readable file, the agent does not change.
	w.updated = nil
	d.write("notes/AGENT.md", "malformed")
	if text := read("agt_1", ""); !strings.HasPrefix(text, "You are the agent \"Old\": Old.\n\nSkills") || w.updated != nil {
		t.Errorf("%s, %v", text, w.updated)
	}
	d.check(os.RemoveAll(filepath.Join(d.dir, "notes")))
	if text := read("agt_1", ""); !strings.HasPrefix(text, "You are the agent \"Old\"") || w.updated != nil {
		t.Errorf("%s, %v", text, w.updated)
	}

	w.failure = entity.Errorf(entity.Unavailable, "busy")
	if text, err := instructions.Read(t.Context(), ws, "agt_1", ""); !errors.Is(err, w.failure) {
		t.Errorf("%s, %v", text, err)
	}
}

// nobody is the id of the user and the group without rights.
const nobody = 65534

// TestInstructionsWithoutPermission has an AGENT.md and a working directory that the server may not read: processes in a computer
// can have another account than the server.
func TestInstructionsWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 { // which may read all files
		again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		again.Dir, again.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if output, err := again.CombinedOutput(); err != nil {
			t.Errorf("as another user: %v\n%s", err, output)
		}
		return
	}
	d := newDisk(t)
	w := &fakeWorkspace{path: "notes", agent: &workspacev1.Agent{Id: "agt_1", Name: "Old", Description: "Old."}}
	d.write("notes/AGENT.md", "---\nname: Notes\ndescription: Writes notes.\n---\n")
	d.write("closed/src/a.txt", "a")
	d.skill(".agents/skills/b", "style")
	closed := filepath.Join(d.dir, "closed")
	d.check(os.Chmod(closed, 0))
	t.Cleanup(func() { d.check(os.Chmod(closed, 0o700)) })
	d.check(os.Chmod(filepath.Join(d.dir, "notes/AGENT.md"), 0))
	text, err := skills.NewInstructions(d.Reader, w).Read(t.Context(), ws, "agt_1", "closed/src")
	d.check(err)
	if !strings.HasPrefix(text, "You are the agent \"Old\"") || !strings.Contains(text, "- style (") || w.updated != nil {
		t.Errorf("%s, %v", text, w.updated)
	}
}

// TestInstructionsAreBounded checks that many skills with long descriptions do not fill the context of a model.
func TestInstructionsAreBounded(t *testing.T) {
	d := newDisk(t)
	for i := range 100 {
		d.write(fmt.Sprintf(".agents/skills/s%03d/SKILL.md", i), "---\nname: s\ndescription: "+strings.Repeat("x", 4000)+"\n---\n")
	}
	text, err := skills.NewInstructions(d.Reader, &fakeWorkspace{}).Read(t.Context(), ws, "", "")
	if err != nil || len(text) > 48<<10 || !strings.Contains(text, "s000/SKILL.md") || !strings.Contains(text, "write-a-runbook") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
