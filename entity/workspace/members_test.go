package workspace_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	owner  = workspacev1.Role_ROLE_OWNER
	editor = workspacev1.Role_ROLE_EDITOR
	viewer = workspacev1.Role_ROLE_VIEWER
)

func TestChangeRole(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", editor)
	reply, events := w.must(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: owner})
	want := &workspacev1.Membership{
		UserId: "bob", Role: owner, JoinedAt: noon.UnixMilli(), Email: address("bob"), Name: "Name of bob", Position: 4,
	}
	if !proto.Equal(reply, want) || len(events) != 1 {
		t.Errorf("%v, %v", reply, events)
	}
	w.mustNotChange(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: owner})
	w.mustNotChange(person("bob"), &workspacev1.ChangeRole{UserId: "ann", Role: owner})
	w.mustRefuse(person("bob"), &workspacev1.ChangeRole{UserId: "ann", Role: viewer}, entity.BillingUser)
	w.mustRefuse(entity.Platform(), &workspacev1.ChangeRole{UserId: "ann", Role: viewer}, entity.BillingUser)
	w.mustRefuse(person("ann"), &workspacev1.ChangeRole{UserId: "eve", Role: viewer}, entity.NotFound)
	for _, role := range []workspacev1.Role{0, 4, -1} {
		w.mustRefuse(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: role}, entity.InvalidRequest)
	}
	w.must(person("bob"), &workspacev1.ChangeRole{UserId: "bob", Role: viewer})
	w.mustRefuse(person("bob"), &workspacev1.ChangeRole{UserId: "bob", Role: owner}, entity.Forbidden)
}

// TestChangeRoleWithinGrants changes to each role with each kind of credential, and each set of grants that lacks at most one capability.
// Apps, agents and computers never have admin.
func TestChangeRoleWithinGrants(t *testing.T) {
	for _, role := range []workspacev1.Role{owner, editor, viewer} {
		for _, lacking := range append(slices.Clone(entity.AllCapabilities()), "") {
			for p, hasGrants := range grantedTo(lacking) {
				w := newReadyWorld(t)
				w.join("bob", map[bool]workspacev1.Role{true: viewer, false: editor}[role != viewer])
				c := &workspacev1.ChangeRole{UserId: "bob", Role: role}
				isBeyond := hasGrants && (lacking == entity.Admin || slices.Contains(entity.Capabilities(person("ann"), role), lacking))
				if isBeyond || !slices.Contains(workspaceCapabilities(w, p), entity.Admin) {
					w.mustRefuse(p, c, entity.Forbidden)
					continue
				}
				w.must(p, c)
			}
		}
	}
}

// workspaceCapabilities returns the capabilities of a principal.
func workspaceCapabilities(w *world, p *wirev1.Principal) []string {
	access, err := authorize(w.call(p), w.s, entity.Need{})
	if err != nil {
		w.t.Fatal(err)
	}
	return access.GetCapabilities()
}

func TestRemoveMember(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", owner)
	w.mustRefuse(person("bob"), &workspacev1.RemoveMember{UserId: "ann"}, entity.BillingUser)
	for _, removed := range []bool{true, false} {
		reply, _ := w.must(person("ann"), &workspacev1.RemoveMember{UserId: "bob"})
		if reply.(*workspacev1.Removed).GetRemoved() != removed {
			t.Errorf("%v, want %v", reply, removed)
		}
	}
	w.mustRefuse(person("bob"), &workspacev1.DescribeWorkspace{}, entity.NotFound)
}

// An owner with a disabled account does not count as the last owner, and may lose the role.
func TestDisabledOwnersDoNotCount(t *testing.T) {
	for _, c := range []workspacev1.Command{
		&workspacev1.ChangeRole{UserId: "owner", Role: viewer}, &workspacev1.RemoveMember{UserId: "owner"},
	} {
		s := peopled()
		s.BillingUserId, s.Members["viewer"].Role, s.Members["viewer"].Disabled = "editor", owner, true
		if code := decide(person("owner"), s, c); code != entity.FinalOwner {
			t.Errorf("%T: %q", c, code)
		}
		s.Members["owner"].Disabled, s.Members["viewer"].Disabled = true, false
		if code := decide(person("viewer"), s, c); code != "" {
			t.Errorf("%T of a disabled owner: %q", c, code)
		}
	}
	w := newReadyWorld(t)
	w.join("bob", editor)
	w.must(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob", Disabled: true})
	w.mustNotChange(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob", Disabled: true})
	w.mustNotChange(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "eve", Disabled: true})
	w.must(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob"})
	if w.s.GetMembers()["bob"].GetDisabled() {
		t.Error("an enabled account is disabled")
	}
}

// A member with a disabled account becomes no owner until the account is enabled, and may get the other roles.
func TestDisabledMembersBecomeNoOwners(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", editor)
	w.must(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob", Disabled: true})
	w.mustRefuse(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: owner}, entity.InvalidRequest)
	w.must(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: viewer})
	w.must(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob"})
	w.must(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: owner})
	w.must(entity.Platform(), &workspacev1.SetMemberDisabled{UserId: "bob", Disabled: true})
	w.mustNotChange(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: owner})
}

// TestLastOwnerIsRequired removes the billing user first: normally the last owner is the billing user.
func TestLastOwnerIsRequired(t *testing.T) {
	s := peopled()
	s.BillingUserId = "editor"
	for _, c := range []workspacev1.Command{
		&workspacev1.ChangeRole{UserId: "owner", Role: viewer}, &workspacev1.RemoveMember{UserId: "owner"},
	} {
		if code := decide(person("owner"), s, c); code != entity.FinalOwner {
			t.Errorf("%T: %q", c, code)
		}
		two := peopled()
		two.BillingUserId, two.Members["viewer"].Role = "editor", owner
		if code := decide(person("owner"), two, c); code != "" {
			t.Errorf("%T of one of two: %q", c, code)
		}
	}
}

func TestUpdateMember(t *testing.T) {
	w := newReadyWorld(t)
	before := len(w.lists["audit"])
	w.must(entity.Platform(), &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "ann", Email: "a@example.com", Name: "Ann A."}})
	if m := w.s.GetMembers()["ann"]; m.GetEmail() != "a@example.com" || m.GetName() != "Ann A." || m.GetRole() != owner {
		t.Errorf("%v", m)
	}
	w.mustNotChange(entity.Platform(), &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "ann", Email: "a@example.com", Name: "Ann A."}})
	w.mustNotChange(entity.Platform(), &workspacev1.UpdateMember{Person: somebody("eve")})
	w.mustNotChange(entity.Platform(), &workspacev1.UpdateMember{})
	if len(w.lists["audit"]) != before {
		t.Error("the log says so")
	}
}

// TestEventsShareMembers checks that events that do not change the members do not copy them.
func TestEventsShareMembers(t *testing.T) {
	s := open()
	for i := range 10_000 {
		id := fmt.Sprintf("usr_%d", i)
		s.Members[id] = &workspacev1.Membership{UserId: id, Role: viewer, Email: address(id)}
	}
	for _, e := range []workspacev1.Event{
		&workspacev1.WorkspaceRenamed{NewSlug: "apex"}, &workspacev1.AuditRecorded{}, &workspacev1.WorkspaceResumed{At: 1},
		&workspacev1.InvitationCreated{Invitation: &workspacev1.Invitation{Id: "inv_2"}},
		&workspacev1.AnchorBroken{AnchorId: "anc_1"}, &workspacev1.DefaultModelChanged{},
		&workspacev1.InvitationAccepted{InvitationId: "inv_1", Person: &workspacev1.Person{UserId: "owner"}},
	} {
		if n := testing.AllocsPerRun(10, func() { workspace.Evolve(s, e) }); n > 20 {
			t.Errorf("%T: %v allocations", e, n)
		}
		next := workspace.Evolve(s, e)
		next.Members["probe"] = &workspacev1.Membership{}
		if _, shared := s.Members["probe"]; !shared {
			t.Errorf("%T copied the members", e)
		}
		delete(s.Members, "probe")
	}
}
