package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/skill"
	"github.com/atelier-run/atelier/entity/workspace"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// registered returns the command that registers the agent agt_<anchor id>.
func registered(anchorID, path, slug string) *workspacev1.RegisterAgent {
	return &workspacev1.RegisterAgent{AnchorId: anchorID, Path: path, Agent: &workspacev1.Agent{
		Id: "agt_" + anchorID, Slug: slug, Name: "Notes", Description: "Writes notes.", Tier: workspacev1.Tier_TIER_BALANCED,
	}}
}

func TestRegisterAgent(t *testing.T) {
	w, ann := newReadyWorld(t), person("ann")
	register := registered("anc_1", "agents/notes", "notes")
	register.Seq = 7
	reply, _ := w.must(ann, register)
	want := &workspacev1.Anchor{
		Id: "anc_1", Path: "agents/notes", Kind: agent, State: active, Agent: register.GetAgent(),
		CreatedAt: noon.UnixMilli(), UpdatedAt: noon.UnixMilli(), Position: 3, Seq: 7,
	}
	if !proto.Equal(reply, want) {
		t.Errorf("%v, want %v", reply, want)
	}
	w.checkAnchor("anc_1", "agents/notes", active, "anchor.created", &auditv1.Provenance{
		AnchorId: "anc_1", Path: "agents/notes", Kind: "agent", Slug: "notes",
	})
	for _, query := range []*workspacev1.DescribeAgent{{Slug: "notes"}, {AgentId: "agt_anc_1"}} {
		if described := w.mustNotChange(ann, query); !proto.Equal(described, want) {
			t.Errorf("%v, want %v", described, want)
		}
	}
	w.mustRefuse(ann, &workspacev1.DescribeAgent{}, entity.NotFound)
	w.mustRefuse(ann, &workspacev1.DescribeAgent{AgentId: "agt_none"}, entity.NotFound)

	// An agent follows its folder as every anchor does.
	w.must(entity.Platform(), &workspacev1.MoveAnchor{AnchorId: "anc_1", FromPath: "agents/notes", ToPath: "writer"})
	if moved := w.s.GetAnchors()["anc_1"]; moved.GetPath() != "writer" || moved.GetAgent().GetSlug() != "notes" {
		t.Errorf("%v", moved)
	}
	w.must(ann, registered("anc_2", "agents/notes", "docs")) // a reserved word for workspaces only
	for _, removed := range []bool{true, false} {
		reply, _ := w.must(ann, &workspacev1.RemoveAgent{Slug: "notes"})
		if reply.(*workspacev1.Removed).GetRemoved() != removed {
			t.Errorf("%v, want %v", reply, removed)
		}
	}
	if last := w.lastAudit(); last.GetEvent() != "anchor.removed" || last.GetProvenance().GetSlug() != "notes" {
		t.Errorf("%v", last)
	}
	w.must(ann, registered("anc_3", "again", "notes"))
}

func TestRegisterAgentIsRefused(t *testing.T) {
	w, ann := newReadyWorld(t), person("ann")
	w.must(ann, registered("anc_1", "a", "notes"))
	w.must(entity.Platform(), anchoredAt("anc_2", "b", agent))
	w.mustRefuse(ann, registered("anc_3", "c", "notes"), entity.SlugTaken)
	w.mustRefuse(ann, registered("anc_3", "c", "root"), entity.SlugTaken)
	w.mustRefuse(ann, registered("anc_3", "a", "writer"), entity.AnchorConflict)
	w.mustRefuse(ann, registered("anc_3", "b", "writer"), entity.AnchorConflict)
	for name, change := range map[string]func(*workspacev1.RegisterAgent){
		"no anchor id":     func(c *workspacev1.RegisterAgent) { c.AnchorId = "" },
		"no agent":         func(c *workspacev1.RegisterAgent) { c.Agent = nil },
		"no path":          func(c *workspacev1.RegisterAgent) { c.Path = "" },
		"path outside":     func(c *workspacev1.RegisterAgent) { c.Path = "../c" },
		"short slug":       func(c *workspacev1.RegisterAgent) { c.Agent.Slug = "ab" },
		"capital slug":     func(c *workspacev1.RegisterAgent) { c.Agent.Slug = "Writer" },
		"no name":          func(c *workspacev1.RegisterAgent) { c.Agent.Name = "" },
		"long name":        func(c *workspacev1.RegisterAgent) { c.Agent.Name = strings.Repeat("a", skill.MaxName+1) },
		"no description":   func(c *workspacev1.RegisterAgent) { c.Agent.Description = "" },
		"long description": func(c *workspacev1.RegisterAgent) { c.Agent.Description = strings.Repeat("a", skill.MaxDescription+1) },
		"unknown tier":     func(c *workspacev1.RegisterAgent) { c.Agent.Tier = 99 },
	} {
		c := registered("anc_3", "c", "writer")
		change(c)
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.mustRefuse(ann, c, entity.InvalidRequest)
		})
	}
	w.t = t
	for i := len(w.s.GetAnchors()); i < workspace.MaxAnchors; i++ {
		id := fmt.Sprintf("anc_x%d", i)
		w.must(entity.Platform(), anchoredAt(id, id, publish))
	}
	w.mustRefuse(ann, registered("anc_3", "c", "writer"), entity.LimitReached)
}

func TestUpdateAgent(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	w.must(person("ann"), registered("anc_1", "a", "notes"))
	w.must(drive, anchoredAt("anc_2", "b", agent))
	w.now = w.now.Add(day)
	same := &workspacev1.UpdateAgent{AnchorId: "anc_1", Path: "a", Name: "Notes", Description: "Writes notes.", Tier: workspacev1.Tier_TIER_BALANCED}
	w.mustNotChange(drive, same)
	for _, late := range []*workspacev1.UpdateAgent{
		{AnchorId: "anc_1", Path: "b", Name: "x", Description: "y"}, {AnchorId: "anc_2", Path: "b", Name: "x", Description: "y"},
		{AnchorId: "anc_3", Path: "a", Name: "x", Description: "y"}, {},
	} {
		w.mustNotChange(drive, late)
	}
	w.mustRefuse(drive, &workspacev1.UpdateAgent{AnchorId: "anc_1", Path: "a", Name: "x"}, entity.InvalidRequest)
	w.must(drive, &workspacev1.UpdateAgent{AnchorId: "anc_1", Path: "a", Name: "New", Description: "New."})
	got, want := w.s.GetAnchors()["anc_1"], &workspacev1.Agent{Id: "agt_anc_1", Slug: "notes", Name: "New", Description: "New."}
	if !proto.Equal(got.GetAgent(), want) || got.GetUpdatedAt() != w.now.UnixMilli() {
		t.Errorf("%v", got)
	}
}

// defaultOf returns the default session in a reply.
func defaultOf(reply proto.Message) string { return reply.(*workspacev1.DefaultSession).GetSessionId() }

func TestDefaultSessions(t *testing.T) {
	w, ann := newReadyWorld(t), person("ann")
	w.must(ann, registered("anc_1", "a", "notes"))
	set := func(owner, id string) string {
		t.Helper()
		reply, _ := w.must(ann, &workspacev1.SetDefaultSession{Owner: owner, SessionId: id})
		return defaultOf(reply)
	}
	bind := func(owner, id string) string {
		t.Helper()
		reply, _ := w.must(ann, &workspacev1.BindDefaultSession{Owner: owner, SessionId: id})
		return defaultOf(reply)
	}
	for i, step := range []struct{ got, want string }{
		{bind("root", "ses_1"), "ses_1"},
		{bind("root", "ses_2"), "ses_1"},
		{bind("agt_anc_1", "ses_2"), "ses_2"},
		{set("root", "ses_2"), "ses_2"},
		{set("root", ""), ""},
		{bind("root", "ses_3"), "ses_3"},
		{set("root", "ses_2"), "ses_2"},
	} {
		if step.got != step.want {
			t.Errorf("step %d: %q, want %q", i, step.got, step.want)
		}
	}
	all := w.mustNotChange(ann, &workspacev1.ReadDefaultSessions{}).(*workspacev1.DefaultSessions).GetSessions()
	if len(all) != 2 || all["root"] != "ses_2" || all["agt_anc_1"] != "ses_2" {
		t.Errorf("%v", all)
	}
	w.mustNotChange(entity.Platform(), &workspacev1.ClearDefaultSession{SessionId: "ses_1"})
	w.mustNotChange(entity.Platform(), &workspacev1.ClearDefaultSession{})
	w.must(entity.Platform(), &workspacev1.ClearDefaultSession{SessionId: "ses_2"})
	if len(w.s.GetDefaultSessions()) != 0 {
		t.Errorf("%v", w.s.GetDefaultSessions())
	}
	for _, c := range []workspacev1.Command{
		&workspacev1.SetDefaultSession{Owner: "notes", SessionId: "ses_1"}, &workspacev1.BindDefaultSession{SessionId: "ses_1"},
		&workspacev1.SetDefaultSession{Owner: "agt_none"},
	} {
		w.mustRefuse(ann, c, entity.NotFound)
	}
	for _, c := range []workspacev1.Command{
		&workspacev1.SetDefaultSession{Owner: "root", SessionId: "a b"}, &workspacev1.BindDefaultSession{Owner: "root"},
	} {
		w.mustRefuse(ann, c, entity.InvalidRequest)
	}
}

// TestRemovedAgentHasNoDefaultSession checks that the pointer goes with the agent, and does not return with another agent of
// its slug.
func TestRemovedAgentHasNoDefaultSession(t *testing.T) {
	w, ann := newReadyWorld(t), person("ann")
	for _, remove := range []workspacev1.Command{&workspacev1.RemoveAgent{Slug: "notes"}, &workspacev1.RemoveAnchor{AnchorId: "anc_1"}} {
		w.must(ann, registered("anc_1", "a", "notes"))
		w.must(ann, &workspacev1.SetDefaultSession{Owner: "agt_anc_1", SessionId: "ses_1"})
		w.must(ann, &workspacev1.SetDefaultSession{Owner: "root", SessionId: "ses_1"})
		w.must(entity.Platform(), remove)
		if len(w.s.GetDefaultSessions()) != 1 || w.s.GetDefaultSessions()["root"] != "ses_1" {
			t.Errorf("%T: %v", remove, w.s.GetDefaultSessions())
		}
	}
}

func TestDescribeMembers(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", workspacev1.Role_ROLE_VIEWER)
	found := w.mustNotChange(person("bob"), &workspacev1.DescribeMembers{UserIds: []string{"bob", "eve", "ann"}}).(*workspacev1.Memberships)
	if len(found.GetMembers()) != 2 || !proto.Equal(found.GetMembers()[0], w.s.GetMembers()["bob"]) || found.GetMembers()[1].GetUserId() != "ann" {
		t.Errorf("%v", found)
	}
	w.mustNotChange(person("bob"), &workspacev1.DescribeMembers{UserIds: make([]string, workspace.MaxDescribedMembers)})
	w.mustRefuse(person("bob"), &workspacev1.DescribeMembers{UserIds: make([]string, workspace.MaxDescribedMembers+1)}, entity.InvalidRequest)
}
