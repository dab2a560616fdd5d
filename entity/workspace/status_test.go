package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestRename(t *testing.T) {
	w := newReadyWorld(t)
	long := strings.Repeat("é", 200)
	for _, step := range []struct{ slug, name, toSlug, toName string }{
		{"apex", "", "apex", "Acme"}, {"", "Apex", "apex", "Apex"}, {"acme", long, "acme", long},
	} {
		from := w.s.GetSlug()
		reply, events := w.must(person("ann"), &workspacev1.RenameWorkspace{Slug: step.slug, Name: step.name})
		shown := reply.(*workspacev1.Description).GetWorkspace()
		if shown.GetSlug() != step.toSlug || shown.GetName() != step.toName || w.s.GetSlug() != step.toSlug {
			t.Errorf("%v: %v", step, shown)
		}
		want := &workspacev1.WorkspaceRenamed{OldSlug: from, NewSlug: step.toSlug, Name: step.toName, At: noon.UnixMilli()}
		if !proto.Equal(events[0], want) {
			t.Errorf("%v, want %v", events, want)
		}
		logged := &auditv1.Provenance{
			OldSlug: from, NewSlug: step.toSlug, Name: step.toName, Acknowledged: true, BreaksPublicUrls: from != step.toSlug,
		}
		if last := w.lastAudit(); last.GetEvent() != "workspace.renamed" || !proto.Equal(last.GetProvenance(), logged) {
			t.Errorf("%v", last)
		}
		w.mustNotChange(person("ann"), &workspacev1.RenameWorkspace{Slug: step.toSlug, Name: step.toName})
	}
	w.mustRefuse(person("ann"), &workspacev1.RenameWorkspace{Slug: "apex", Name: "Late", NameOnly: true}, entity.Unavailable)
	if _, events := w.must(person("ann"), &workspacev1.RenameWorkspace{Slug: "acme", Name: "In time", NameOnly: true}); len(events) != 1 {
		t.Errorf("its name alone: %v", events)
	}
	w.mustNotChange(person("ann"), &workspacev1.RenameWorkspace{})
	for _, name := range []string{strings.Repeat("é", 201), "a\tb", "\xff"} {
		w.mustRefuse(person("ann"), &workspacev1.RenameWorkspace{Name: name}, entity.InvalidRequest)
	}
}

func TestChangeStatus(t *testing.T) {
	const (
		provisioning = workspacev1.Status_STATUS_PROVISIONING
		up           = workspacev1.Status_STATUS_ACTIVE
		unhealthy    = workspacev1.Status_STATUS_UNHEALTHY
		archived     = workspacev1.Status_STATUS_ARCHIVED
		retired      = workspacev1.Status_STATUS_RETIRED
		deleted      = workspacev1.Status_STATUS_DELETED
	)
	for _, test := range []struct {
		from, to workspacev1.Status
		code     entity.Code
	}{
		{provisioning, archived, ""}, {provisioning, deleted, ""}, {provisioning, up, entity.InvalidRequest},
		{up, up, ""}, {up, archived, ""}, {up, retired, ""}, {unhealthy, up, ""}, {archived, up, ""}, {retired, up, ""},
		{archived, retired, ""}, {deleted, deleted, ""}, {deleted, up, entity.WorkspaceClosed}, {deleted, retired, entity.WorkspaceClosed},
		{up, unhealthy, entity.InvalidRequest}, {up, provisioning, entity.InvalidRequest}, {up, 0, entity.InvalidRequest}, {up, 9, entity.InvalidRequest},
	} {
		w := newReadyWorld(t)
		w.s.Status = test.from
		changes := len(w.events)
		reply, events, err := w.send(entity.Platform(), &workspacev1.ChangeStatus{Status: test.to})
		if err != nil || test.code != "" {
			if err == nil || !strings.HasPrefix(err.Error(), string(test.code)) {
				t.Errorf("%v to %v: %v, want %q", test.from, test.to, err, test.code)
			}
			continue
		}
		if got := reply.(*workspacev1.Description).GetWorkspace().GetStatus(); got != test.to || w.s.GetStatus() != test.to {
			t.Errorf("%v to %v: %v", test.from, test.to, got)
		}
		if test.from == test.to {
			continue
		}
		want := &workspacev1.StatusChanged{Status: test.to, At: noon.UnixMilli(), Slug: "acme", BillingUserId: "ann"}
		if test.to != workspacev1.Status_STATUS_ACTIVE {
			want.SessionStopId = fmt.Sprintf("stop.%d", changes+1)
		}
		if len(events) != 1 || !proto.Equal(events[0], want) || len(w.events) != changes+1 {
			t.Errorf("%v, want %v", events, want)
		}
	}
}

func TestReports(t *testing.T) {
	w := newWorld(t)
	w.must(entity.Platform(), &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "ann"})
	logged := func(previous, now string) {
		t.Helper()
		want := &auditv1.Provenance{PreviousStatus: previous, Action: now}
		if last := w.lastAudit(); last.GetEvent() != "workspace.status_changed" || last.GetActorId() != "system" ||
			!proto.Equal(last.GetProvenance(), want) {
			t.Errorf("%v, want %v", last, want)
		}
	}
	w.mustNotChange(entity.Platform(), &workspacev1.ReportUnhealthy{})
	w.must(entity.Platform(), &workspacev1.ReportReady{})
	logged("provisioning", "active")
	w.must(entity.Platform(), &workspacev1.ReportUnhealthy{})
	logged("active", "unhealthy")
	w.must(entity.Platform(), &workspacev1.ReportReady{})
	logged("unhealthy", "active")
	w.must(entity.Platform(), &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ARCHIVED})
	logged("active", "archived")
	w.mustNotChange(entity.Platform(), &workspacev1.ReportUnhealthy{})
	w.mustNotChange(entity.Platform(), &workspacev1.ReportReady{})
}

func TestSetDefaultModel(t *testing.T) {
	w := newReadyWorld(t)
	c := &workspacev1.SetDefaultModel{Tier: workspacev1.Tier_TIER_OPENAI_FRONTIER}
	reply, _ := w.must(person("ann"), c)
	if got := reply.(*workspacev1.Description).GetWorkspace().GetDefaultTier(); got != c.GetTier() {
		t.Errorf("%v", got)
	}
	if last := w.lastAudit(); last.GetEvent() != "default_model.changed" || last.GetProvenance().GetTier() != "openai-frontier" {
		t.Errorf("%v", last)
	}
	w.mustNotChange(person("ann"), c)
	for _, tier := range []workspacev1.Tier{0, 7, -1} {
		w.mustRefuse(person("ann"), &workspacev1.SetDefaultModel{Tier: tier}, entity.InvalidRequest)
	}
}

// TestAuditOfMembers checks the actor and the member in the audit events of members and invitations.
func TestAuditOfMembers(t *testing.T) {
	w := newReadyWorld(t)
	ann := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: "ann", ImpersonatorId: "root"}
	expected := func(event, actor string, want *auditv1.Provenance) {
		t.Helper()
		last := w.lastAudit()
		if last.GetEvent() != event || last.GetActorId() != actor || last.GetAt() != noon.UnixMilli() || !proto.Equal(last.GetProvenance(), want) {
			t.Errorf("%v, want %s by %s: %v", last, event, actor, want)
		}
	}
	expected("workspace.status_changed", "system", &auditv1.Provenance{PreviousStatus: "provisioning", Action: "active"})
	w.must(ann, newInvite("inv_1", address("bob"), "x"))
	expected("invitation.created", "ann", &auditv1.Provenance{
		Actor: "root", TargetEmail: address("bob"), Role: "editor", ExpiresAt: noon.Add(7 * day).UnixMilli(),
	})
	w.must(ann, newInvite("inv_2", address("cat"), "x"))
	w.must(ann, &workspacev1.RevokeInvitation{InvitationId: "inv_2"})
	expected("invitation.revoked", "ann", &auditv1.Provenance{Actor: "root", TargetEmail: address("cat"), Role: "editor"})
	w.must(entity.Platform(), &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: somebody("bob")})
	expected("invitation.accepted", "bob", &auditv1.Provenance{MemberUserId: "bob", TargetEmail: address("bob"), Role: "editor"})
	w.must(ann, &workspacev1.ChangeRole{UserId: "bob", Role: viewer})
	expected("member.role_changed", "ann", &auditv1.Provenance{Actor: "root", MemberUserId: "bob", Role: "viewer", OldRole: "editor"})
	w.must(ann, &workspacev1.RemoveMember{UserId: "bob"})
	expected("member.removed", "ann", &auditv1.Provenance{
		Actor: "root", MemberUserId: "bob", TargetEmail: address("bob"), OldRole: "viewer",
	})
}

func TestAuditOfCreation(t *testing.T) {
	w := newWorld(t)
	w.must(entity.Platform(), &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "ann"})
	if last := w.lastAudit(); last.GetEvent() != "workspace.created" || last.GetActorId() != "ann" ||
		!proto.Equal(last.GetProvenance(), &auditv1.Provenance{Slug: "acme", Name: "Acme"}) {
		t.Errorf("%v", last)
	}
}

func TestRecordAudit(t *testing.T) {
	w := newReadyWorld(t)
	given := &auditv1.Event{
		Id: "aud_other", Event: "api_key.created", ActorId: "bob", At: noon.UnixMilli() + 5,
		Provenance: &auditv1.Provenance{Name: "laptop", Prefix: "atl_12345678"},
	}
	w.must(entity.Platform(), &workspacev1.RecordAudit{Event: given})
	last := proto.CloneOf(w.lastAudit())
	if !strings.HasPrefix(last.GetId(), "aud_") || last.GetId() == given.GetId() {
		t.Errorf("id %s", last.GetId())
	}
	last.Id = given.GetId()
	if !proto.Equal(last, given) {
		t.Errorf("%v, want %v", last, given)
	}
	w.now = w.now.Add(day)
	w.must(entity.Platform(), &workspacev1.RecordAudit{Event: &auditv1.Event{Event: "backup.created"}})
	if last := w.lastAudit(); last.GetAt() != w.now.UnixMilli() || last.GetActorId() != "system" {
		t.Errorf("%v", last)
	}
	for _, e := range []*auditv1.Event{nil, {}, {Event: "a.b", At: -1}, {Event: "a.b", At: 1 << 53}} {
		w.mustRefuse(entity.Platform(), &workspacev1.RecordAudit{Event: e}, entity.InvalidRequest)
	}
}
