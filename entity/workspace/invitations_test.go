package workspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func newInvite(id, email, secretOf string) *workspacev1.Invite {
	return &workspacev1.Invite{
		InvitationId: id, Email: email, Role: editor, SecretSha256: secret(secretOf), Inviter: somebody("ann"),
	}
}

func TestInvite(t *testing.T) {
	w := newReadyWorld(t)
	reply, _ := w.must(person("ann"), newInvite("inv_1", "Bob@Example.COM", "x"))
	first := &workspacev1.Invitation{
		Id: "inv_1", Email: "bob@example.com", Role: editor, CreatedAt: noon.UnixMilli(),
		ExpiresAt: noon.Add(7 * day).UnixMilli(), Inviter: somebody("ann"), SecretSha256: secret("x"), Position: 3,
	}
	if want := (&workspacev1.Invited{Invitation: first}); !proto.Equal(reply, want) {
		t.Fatalf("%v, want %v", reply, want)
	}
	w.now = w.now.Add(day)
	if again := w.mustNotChange(person("ann"), newInvite("inv_1", "bob@example.com", "x")); !proto.Equal(again, reply) {
		t.Errorf("sent again: %v", again)
	}
	renewal := newInvite("inv_2", "bob@example.com", "y")
	renewal.Role, renewal.Inviter = viewer, nil
	reply, _ = w.must(person("ann"), renewal)
	renewed := proto.CloneOf(first)
	renewed.Role, renewed.Inviter, renewed.SecretSha256 = viewer, nil, secret("y")
	renewed.ReplacedSha256 = [][]byte{secret("x")}
	renewed.ExpiresAt = noon.Add(8 * day).UnixMilli()
	if want := (&workspacev1.Invited{Invitation: renewed, Renewed: true}); !proto.Equal(reply, want) {
		t.Errorf("%v, want %v", reply, want)
	}
	w.now = w.now.Add(7 * day)
	reply, _ = w.must(person("ann"), newInvite("inv_3", "bob@example.com", "z"))
	if reply.(*workspacev1.Invited).GetRenewed() || len(w.s.GetInvitations()) != 2 {
		t.Errorf("an expired one is renewed: %v", reply)
	}
}

// grantedTo returns a principal of each kind of credential, of ann with all capabilities but one, which only credentials with grants lack.
func grantedTo(lacking string) map[*wirev1.Principal]bool {
	all := map[*wirev1.Principal]bool{}
	for kind := range wirev1.CredentialKind_name {
		p := &wirev1.Principal{
			Kind: wirev1.CredentialKind(kind), CredentialId: "credential_1", UserId: "ann", WorkspaceId: acme,
			Grants: slices.DeleteFunc(slices.Clone(entity.AllCapabilities()), func(c string) bool { return c == lacking }),
		}
		if p.GetKind() > wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM {
			all[p] = entity.HasGrants(p)
		}
	}
	return all
}

// TestInviteWithinGrants invites to each role with each kind of credential, and each set of grants that lacks at most one capability.
func TestInviteWithinGrants(t *testing.T) {
	for _, role := range []workspacev1.Role{editor, viewer} {
		for _, lacking := range append(slices.Clone(entity.AllCapabilities()), "") {
			for p, hasGrants := range grantedTo(lacking) {
				w := newReadyWorld(t)
				c := newInvite("inv_1", "bob@example.com", "x")
				c.Role = role
				if hasGrants && (lacking == entity.Members || slices.Contains(entity.Capabilities(person("ann"), role), lacking)) {
					w.mustRefuse(p, c, entity.Forbidden)
					continue
				}
				w.must(p, c)
				w.must(entity.Platform(), &workspacev1.EndInvitations{CredentialId: "credential_1"})
				isOfAgent := p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION // its credential ends with the turn
				if hasEnded := w.s.GetInvitations()["inv_1"].GetRevokedAt() != 0; hasEnded != (hasGrants && !isOfAgent) {
					t.Errorf("%s: the end of the credential has ended the invitation: %v", p.GetKind(), hasEnded)
				}
			}
		}
	}
}

func TestInviteIsRefused(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newInvite("inv_1", "bob@example.com", "x"))
	w.must(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_1"})
	changed := func(change func(*workspacev1.Invite)) *workspacev1.Invite {
		c := newInvite("inv_2", "cat@example.com", "x")
		change(c)
		return c
	}
	for name, test := range map[string]struct {
		c    *workspacev1.Invite
		code entity.Code
	}{
		"a member":         {newInvite("inv_2", "ANN@example.com", "x"), entity.AlreadyMember},
		"as owner":         {changed(func(c *workspacev1.Invite) { c.Role = owner }), entity.InvalidRequest},
		"without role":     {changed(func(c *workspacev1.Invite) { c.Role = 0 }), entity.InvalidRequest},
		"no address":       {changed(func(c *workspacev1.Invite) { c.Email = "" }), entity.InvalidRequest},
		"not of ASCII":     {changed(func(c *workspacev1.Invite) { c.Email = "\u212aat@example.com" }), entity.InvalidRequest},
		"a named address":  {changed(func(c *workspacev1.Invite) { c.Email = "Cat <cat@example.com>" }), entity.InvalidRequest},
		"a long address":   {changed(func(c *workspacev1.Invite) { c.Email = strings.Repeat("c", 255) + "@example.com" }), entity.InvalidRequest},
		"no id":            {changed(func(c *workspacev1.Invite) { c.InvitationId = "" }), entity.InvalidRequest},
		"another's id":     {changed(func(c *workspacev1.Invite) { c.InvitationId = "inv_1" }), entity.InvalidRequest},
		"a short checksum": {changed(func(c *workspacev1.Invite) { c.SecretSha256 = []byte{1} }), entity.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.mustRefuse(person("ann"), test.c, test.code)
		})
	}
}

func TestInvitationsAreBounded(t *testing.T) {
	s := open()
	add := func(n int, i *workspacev1.Invitation) {
		for range n {
			one := proto.CloneOf(i)
			one.Id = fmt.Sprintf("inv_x%d", len(s.Invitations))
			one.Email = address(one.Id)
			s.Invitations[one.Id] = one
		}
	}
	clear(s.Invitations)
	waiting := &workspacev1.Invitation{Role: editor, ExpiresAt: noon.UnixMilli() + 1}
	revoked := &workspacev1.Invitation{Role: editor, ExpiresAt: noon.UnixMilli() + 1, RevokedAt: noon.UnixMilli() - 1}
	forgotten := &workspacev1.Invitation{Role: editor, ExpiresAt: noon.Add(-31 * day).UnixMilli()}
	add(workspace.MaxPending-1, waiting)
	add(1000, forgotten)
	add(workspace.MaxInvitations-workspace.MaxPending, revoked)
	if code := decide(person("owner"), s, newInvite("inv_9", "y@example.com", "y")); code != "" {
		t.Fatalf("the last one: %q", code)
	}
	add(1, revoked)
	if code := decide(person("owner"), s, newInvite("inv_9", "y@example.com", "y")); code != entity.LimitReached {
		t.Errorf("too many in all: %q", code)
	}
	clear(s.Invitations)
	add(workspace.MaxPending, waiting)
	if code := decide(person("owner"), s, newInvite("inv_9", "y@example.com", "y")); code != entity.LimitReached {
		t.Errorf("too many pending: %q", code)
	}
	if code := decide(person("owner"), s, newInvite("inv_9", address("inv_x0"), "y")); code != "" {
		t.Errorf("a renewal among many: %q", code)
	}
}

// TestOutdatedInvitationsAreRemoved checks that the next invitation removes the invitations that ended 30 days ago from
// the state and, with world.check, from the list.
func TestOutdatedInvitationsAreRemoved(t *testing.T) {
	w := newReadyWorld(t)
	for _, id := range []string{"bob", "cat", "dan", "eve"} {
		w.must(person("ann"), newInvite("inv_"+id, address(id), "x"))
	}
	w.must(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_bob"})
	w.must(person("cat"), &workspacev1.AcceptInvitation{InvitationId: "inv_cat", Person: somebody("cat")})
	w.now = noon.Add(6 * day)
	w.must(person("ann"), newInvite("inv_x", address("eve"), "y"))
	for _, step := range []struct {
		after time.Duration
		want  int
	}{
		{30 * day, 5}, {30*day + time.Millisecond, 4}, {37*day + time.Millisecond, 4}, {43*day + time.Millisecond, 4},
	} {
		w.now = noon.Add(step.after)
		w.must(person("ann"), newInvite("inv_f"+step.after.String(), fmt.Sprintf("f%d@example.com", step.after), "x"))
		if n := len(w.s.GetInvitations()); n != step.want {
			t.Errorf("after %v: %d, want %d", step.after, n, step.want)
		}
	}
}

func TestRevokeInvitation(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newInvite("inv_1", address("bob"), "x"))
	w.must(person("ann"), newInvite("inv_2", address("cat"), "x"))
	w.must(person("cat"), &workspacev1.AcceptInvitation{InvitationId: "inv_2", Person: somebody("cat")})
	first, _ := w.must(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_1"})
	w.now = w.now.Add(time.Hour)
	again := w.mustNotChange(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_1"})
	if first.(*workspacev1.Invitation).GetRevokedAt() != noon.UnixMilli() || !proto.Equal(first, again) {
		t.Errorf("%v, again %v", first, again)
	}
	w.mustRefuse(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_2"}, entity.InvitationConsumed)
	w.mustRefuse(person("ann"), &workspacev1.RevokeInvitation{InvitationId: "inv_3"}, entity.NotFound)
	w.mustRefuse(person("bob"), &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("bob")}, entity.InvitationRevoked)
}

func TestAcceptInvitation(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newInvite("inv_1", address("bob"), "x"))
	accept := &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("bob")}
	reply, _ := w.must(person("bob"), accept)
	where := &workspacev1.Description{Workspace: &workspacev1.Workspace{Id: acme, Slug: "acme"}}
	if !proto.Equal(reply, where) {
		t.Errorf("%v", reply)
	}
	if m := w.s.GetMembers()["bob"]; m.GetRole() != editor || m.GetPosition() != 4 || m.GetJoinedAt() != noon.UnixMilli() {
		t.Errorf("%v", m)
	}
	w.now = w.now.Add(10 * day)
	if again := w.mustNotChange(person("bob"), accept); !proto.Equal(again, where) {
		t.Errorf("again: %v", again)
	}
	w.must(entity.Platform(), &workspacev1.RenameWorkspace{Slug: "apex"})
	w.must(person("ann"), &workspacev1.RemoveMember{UserId: "bob"})
	if again := w.mustNotChange(person("bob"), accept); !proto.Equal(again, where) {
		t.Errorf("again, once renamed: %v", again)
	}
	w.must(person("ann"), newInvite("inv_2", "boss@example.com", "x"))
	alike := &workspacev1.AcceptInvitation{InvitationId: "inv_2", Person: somebody("eve")}
	alike.Person.Email = "bo\u017fs@example.com" // which case folding takes for an s
	w.mustRefuse(person("eve"), alike, entity.NotFound)
	other := &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("eve")}
	other.Person.Email = address("bob")
	w.mustRefuse(person("eve"), other, entity.NotFound)
}

// TestAcceptedWithoutSlug checks that only a member learns the slug if the invitation was accepted before AcceptedSlug
// existed.
func TestAcceptedWithoutSlug(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newInvite("inv_1", address("bob"), "x"))
	w.s = workspace.Evolve(w.s, &workspacev1.InvitationAccepted{InvitationId: "inv_1", Person: somebody("bob"), Role: editor, At: 1})
	accept := &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("bob")}
	for _, want := range []string{"acme", ""} {
		reply := workspace.Reply(w.call(person("bob")), w.s, accept, nil).(*workspacev1.Description)
		if reply.GetWorkspace().GetSlug() != want || reply.GetWorkspace().GetId() != acme {
			t.Errorf("%v, want %q", reply, want)
		}
		w.s = workspace.Evolve(w.s, &workspacev1.MemberRemoved{UserId: "bob", At: 2})
	}
}

func TestAcceptInvitationIsRefused(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newInvite("inv_1", address("bob"), "x"))
	bob := func(id string) *workspacev1.AcceptInvitation {
		return &workspacev1.AcceptInvitation{InvitationId: id, Person: somebody("bob")}
	}
	for _, p := range []*wirev1.Principal{
		nil, person("eve"), {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "bob"},
		{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "bob", WorkspaceId: acme},
	} {
		w.mustRefuse(p, bob("inv_1"), entity.Forbidden)
	}
	w.mustRefuse(entity.Platform(), &workspacev1.AcceptInvitation{InvitationId: "inv_1"}, entity.Forbidden)
	w.mustRefuse(person("bob"), bob("inv_2"), entity.NotFound)
	w.mustRefuse(person("eve"), &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("eve")}, entity.NotFound)
	w.must(person("ann"), &workspacev1.Suspend{})
	w.mustRefuse(person("bob"), bob("inv_1"), entity.WorkspaceSuspended)
	w.must(person("ann"), &workspacev1.Resume{})
	w.now = noon.Add(7 * day)
	w.mustRefuse(person("bob"), bob("inv_1"), entity.InvitationExpired)
	w.now = w.now.Add(-time.Millisecond)
	w.must(entity.Platform(), bob("inv_1"))
}

// TestMemberKeepsRoleOnAccept checks a person who accepts an invitation and is already a member.
func TestMemberKeepsRoleOnAccept(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", owner)
	joined := w.s.GetMembers()["bob"]
	w.must(person("ann"), newInvite("inv_1", "b@example.com", "x"))
	w.must(person("bob"), &workspacev1.AcceptInvitation{
		InvitationId: "inv_1", Person: &workspacev1.Person{UserId: "bob", Email: "b@example.com"},
	})
	if m := w.s.GetMembers()["bob"]; !proto.Equal(m, joined) {
		t.Errorf("%v, was %v", m, joined)
	}
	if got := w.lastAudit().GetProvenance().GetRole(); got != "owner" {
		t.Errorf("the log says %s", got)
	}
}

func TestDescribeInvitation(t *testing.T) {
	w := newReadyWorld(t)
	invited, _ := w.must(person("ann"), newInvite("inv_1", address("bob"), "x"))
	described := w.mustNotChange(entity.Platform(), &workspacev1.DescribeInvitation{InvitationId: "inv_1"})
	if !proto.Equal(described, invited.(*workspacev1.Invited).GetInvitation()) {
		t.Errorf("%v", described)
	}
	w.mustRefuse(entity.Platform(), &workspacev1.DescribeInvitation{InvitationId: "inv_2"}, entity.NotFound)
}

// An invitation ends when its inviter loses the right to invite, by the same command, and is in the audit log.
func TestInvitationsEndWithTheRightToInvite(t *testing.T) {
	for name, lose := range map[string]workspacev1.Command{
		"removed":  &workspacev1.RemoveMember{UserId: "bob"},
		"demoted":  &workspacev1.ChangeRole{UserId: "bob", Role: viewer},
		"disabled": &workspacev1.SetMemberDisabled{UserId: "bob", Disabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReadyWorld(t)
			w.join("bob", editor)
			ofBob := func(id string) *workspacev1.Invite {
				c := newInvite(id, address(id), "x")
				c.Inviter = somebody("bob")
				return c
			}
			w.must(person("bob"), ofBob("one"))
			w.must(person("bob"), ofBob("renewed"))
			w.must(person("ann"), newInvite("other", address("renewed"), "y"))
			w.must(person("bob"), ofBob("consumed"))
			w.must(person("consumed"), &workspacev1.AcceptInvitation{InvitationId: "consumed", Person: somebody("consumed")})
			_, events := w.must(entity.Platform(), lose)
			if len(events) != 2 || events[1].(*workspacev1.InvitationRevoked).GetInvitationId() != "one" {
				t.Fatalf("%v", events)
			}
			w.mustRefuse(person("one"), &workspacev1.AcceptInvitation{InvitationId: "one", Person: somebody("one")}, entity.InvitationRevoked)
			w.must(person("renewed"), &workspacev1.AcceptInvitation{InvitationId: "renewed", Person: somebody("renewed")})
			w.mustNotChange(entity.Platform(), lose)
		})
	}
	w := newReadyWorld(t)
	w.join("bob", owner)
	c := newInvite("one", address("one"), "x")
	c.Inviter = somebody("bob")
	w.must(person("bob"), c)
	w.must(person("ann"), &workspacev1.ChangeRole{UserId: "bob", Role: editor}) // an editor may invite
	w.must(person("one"), &workspacev1.AcceptInvitation{InvitationId: "one", Person: somebody("one")})
}

// Earlier versions left the invitations of former inviters pending. They cannot be accepted.
func TestInvitationOfAFormerInviter(t *testing.T) {
	w := newReadyWorld(t)
	c := newInvite("one", address("one"), "x")
	c.Inviter = somebody("bob")
	w.must(entity.Platform(), c)
	w.mustRefuse(person("one"), &workspacev1.AcceptInvitation{InvitationId: "one", Person: somebody("one")}, entity.InvitationRevoked)
}

// The invitations of an OAuth grant or an app end with it; the invitations that the person has sent or renewed stay.
func TestInvitationsEndWithTheirProgram(t *testing.T) {
	for _, kind := range []wirev1.CredentialKind{wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP} {
		w := newReadyWorld(t)
		program := &wirev1.Principal{Kind: kind, UserId: "ann", WorkspaceId: acme, CredentialId: "program", Grants: entity.AllCapabilities()}
		w.must(program, newInvite("one", address("one"), "x"))
		w.must(program, newInvite("two", address("two"), "x"))
		w.must(person("ann"), newInvite("again", address("two"), "y"))
		w.must(person("ann"), newInvite("three", address("three"), "x"))
		for _, other := range []string{"", "another"} {
			w.mustNotChange(entity.Platform(), &workspacev1.EndInvitations{CredentialId: other})
		}
		_, events := w.must(entity.Platform(), &workspacev1.EndInvitations{CredentialId: "program"})
		if len(events) != 1 || events[0].(*workspacev1.InvitationRevoked).GetInvitationId() != "one" {
			t.Errorf("%v: %v", kind, events)
		}
	}
}

// The invitations of an app end in the decision that breaks its anchor, before the app learns of it. The app can invite for a moment after
// that, and nobody can accept its invitations.
func TestInvitationsEndWithTheFolderOfTheirApp(t *testing.T) {
	for name, end := range map[string]struct {
		c      workspacev1.Command
		events int
	}{
		"deleted":  {&workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "site"}, 2},
		"replaced": {&workspacev1.MoveAnchor{AnchorId: "anc_2", FromPath: "other", ToPath: "site"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReadyWorld(t)
			w.must(person("ann"), newApp("anc_1", "site", "site", 0))
			w.must(person("ann"), newApp("anc_2", "other", "other", 0))
			program := func(last string) *wirev1.Principal {
				return &wirev1.Principal{
					Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "ann", WorkspaceId: acme, CredentialId: appID(last), Grants: entity.AllCapabilities(),
				}
			}
			accept := func(id string) *workspacev1.AcceptInvitation {
				return &workspacev1.AcceptInvitation{InvitationId: id, Person: somebody(id)}
			}
			w.must(program("1"), newInvite("one", address("one"), "x"))
			w.must(program("2"), newInvite("two", address("two"), "x"))
			w.must(program("1"), newInvite("early", address("early"), "x"))
			w.must(person("early"), accept("early"))
			_, events := w.must(entity.Platform(), end.c)
			if len(events) != end.events || events[end.events-1].(*workspacev1.InvitationRevoked).GetInvitationId() != "one" {
				t.Errorf("the decision is %v", events)
			}
			w.mustRefuse(person("one"), accept("one"), entity.InvitationRevoked)
			w.must(program("1"), newInvite("late", address("late"), "x"))
			w.mustRefuse(person("late"), accept("late"), entity.InvitationRevoked)
			w.must(person("two"), accept("two"))
		})
	}
}

// An invitation that was sent with a limited key expires with the key at the latest; one that the person has renewed does not.
func TestInvitationsExpireWithTheirKey(t *testing.T) {
	for name, test := range map[string]struct{ lasts, want time.Duration }{
		"no end": {0, workspace.InvitationLifetime}, "sooner": {day, day}, "later": {30 * day, workspace.InvitationLifetime},
	} {
		w := newReadyWorld(t)
		key := &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, UserId: "ann", CredentialId: "key_1", Grants: entity.AllCapabilities(),
		}
		if test.lasts != 0 {
			key.ExpiresAt = w.now.Add(test.lasts).UnixMilli()
		}
		expires := func(want time.Time) {
			t.Helper()
			if got := time.UnixMilli(w.s.GetInvitations()["one"].GetExpiresAt()); !got.Equal(want) {
				t.Errorf("%s: expires at %v, want %v", name, got, want)
			}
		}
		w.must(key, newInvite("one", address("one"), "x"))
		end := w.now.Add(test.want)
		expires(end)
		w.mustNotChange(key, newInvite("two", address("one"), "x"))
		w.must(person("ann"), newInvite("two", address("one"), "y"))
		expires(w.now.Add(workspace.InvitationLifetime))
		w.must(key, newInvite("two", address("one"), "z"))
		expires(end)
		w.now = end
		w.mustRefuse(person("one"), &workspacev1.AcceptInvitation{InvitationId: "one", Person: somebody("one")}, entity.InvitationExpired)
	}
}
