package node_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
)

const (
	alice     = "usr_01j0000000000000000000000a"
	bob       = "usr_01j0000000000000000000000b"
	workspace = "ws_01j00000000000000000000001"
	laptop    = "ABCDEFG"
)

// A scene is a node with two people, alice and bob, and a workspace of alice.
type scene struct {
	t    *testing.T
	node *node.Node
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{t, nodetest.Start(t, node.Start, node.Options{Dir: t.TempDir(), Wire: true})}
	for email, id := range map[string]string{"alice@example.com": alice, "bob@example.com": bob} {
		s.platform(entity.KindEmail, email, &emailv1.ClaimEmail{UserId: id})
	}
	s.platform(entity.KindSlug, "first", &slugv1.ClaimSlug{WorkspaceId: workspace, WorkspaceName: "First", CreatorId: alice, CreatorEmail: "alice@example.com"})
	return s
}

func person(id string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: id}
}

// ask sends a command and waits for its consequences: chains have at most four steps.
func (s scene) ask(p *wirev1.Principal, kind, identity string, m proto.Message) proto.Message {
	s.t.Helper()
	reply, err := s.node.Router.Ask(s.t.Context(), entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
	if err != nil {
		s.t.Fatalf("%T: %v", m, err)
	}
	for range 4 {
		for p := range s.node.Journal.Partitions() {
			if err := s.node.Router.SettleAll(s.t.Context(), persistence.Partition(p)); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return reply
}

func (s scene) platform(kind, identity string, m proto.Message) proto.Message {
	s.t.Helper()
	return s.ask(entity.Platform(), kind, identity, m)
}

// recorded returns the names of the workspace's audit events about a subject, newest first.
func (s scene) recorded(subject string) []string {
	s.t.Helper()
	page := s.ask(person(alice), entity.KindWorkspace, workspace, &wirev1.List{Name: "audit", Limit: 100}).(*wirev1.Page)
	var names []string
	for _, row := range page.GetRows() {
		var event auditv1.Event
		if err := proto.Unmarshal(row, &event); err != nil {
			s.t.Fatal(err)
		}
		if strings.HasPrefix(event.GetEvent(), subject+".") {
			names = append(names, event.GetEvent())
		}
	}
	return names
}

func TestKeyCreatesCredentialAndAuditEvents(t *testing.T) {
	s := newScene(t)
	key := "key_01j00000000000000000000001"
	s.ask(person(alice), entity.KindUser, alice, &userv1.IssueApiKey{KeyId: key, Name: "laptop", SecretSha256: make([]byte, 32)})
	credential := s.platform(entity.KindCredential, key, &credentialv1.DescribeCredential{}).(*credentialv1.Credential)
	if credential.GetUserId() != alice {
		t.Errorf("the credential is %v", credential)
	}
	s.ask(person(alice), entity.KindUser, alice, &userv1.RevokeApiKey{KeyId: key})
	credential = s.platform(entity.KindCredential, key, &credentialv1.DescribeCredential{}).(*credentialv1.Credential)
	if credential.GetRevokedAt() == 0 {
		t.Error("the credential of a revoked key is valid")
	}
	if log := s.recorded("api_key"); len(log) != 2 || log[0] != "api_key.revoked" || log[1] != "api_key.created" {
		t.Errorf("recorded %v", log)
	}
}

func TestRefusedRenameFreesSlug(t *testing.T) {
	s := newScene(t)
	claim := func(by string) *slugv1.ClaimSlug {
		return &slugv1.ClaimSlug{WorkspaceId: workspace, Rename: &slugv1.Rename{Id: "cmd_" + by, Principal: person(by)}}
	}
	s.platform(entity.KindSlug, "second", claim(bob))
	second := s.platform(entity.KindSlug, "second", &slugv1.ResolveSlug{}).(*slugv1.Slug)
	if second.GetWorkspaceId() != "" || second.GetReservedUntil() != 0 {
		t.Fatalf("after the refusal: %v", second)
	}
	s.platform(entity.KindSlug, "second", claim(alice))
	second = s.platform(entity.KindSlug, "second", &slugv1.ResolveSlug{}).(*slugv1.Slug)
	first := s.platform(entity.KindSlug, "first", &slugv1.ResolveSlug{}).(*slugv1.Slug)
	if second.GetWorkspaceId() != workspace || first.GetWorkspaceId() != "" || first.GetReservedFor() != workspace {
		t.Errorf("renamed: %v, %v", first, second)
	}
	described := s.ask(person(alice), entity.KindWorkspace, workspace, &workspacev1.DescribeWorkspace{}).(*workspacev1.Description)
	if described.GetWorkspace().GetSlug() != "second" {
		t.Errorf("the workspace is %v", described)
	}
}

func TestDeviceFollowsMachine(t *testing.T) {
	s := newScene(t)
	const machine = "mch_01j00000000000000000000001"
	s.platform(entity.KindDevice, laptop, &devicev1.ClaimDevice{UserId: "usr_nobody", MachineId: machine, Name: "n"})
	device := s.platform(entity.KindDevice, laptop, &devicev1.DescribeDevice{}).(*devicev1.Device)
	if device.GetUserId() != "" {
		t.Fatalf("the claim of an unknown user stays: %v", device)
	}
	for _, name := range []string{"laptop", "desk", "desk"} { // the last changes nothing
		s.platform(entity.KindDevice, laptop, &devicev1.ClaimDevice{UserId: alice, MachineId: machine, Name: name})
	}
	page := s.ask(person(alice), entity.KindUser, alice, &userv1.ListMachines{Limit: 10}).(*userv1.MachinePage)
	if len(page.GetMachines()) != 1 || page.GetMachines()[0].GetName() != "desk" {
		t.Fatalf("machines: %v", page)
	}
	s.ask(person(alice), entity.KindUser, alice, &userv1.RemoveMachine{MachineId: machine})
	device = s.platform(entity.KindDevice, laptop, &devicev1.DescribeDevice{}).(*devicev1.Device)
	if device.GetUserId() != "" {
		t.Errorf("the device of a removed machine is still claimed: %v", device)
	}
	want := []string{"sync_machine.removed", "sync_machine.registered", "sync_machine.registered"}
	if log := s.recorded("sync_machine"); !slices.Equal(log, want) {
		t.Errorf("recorded %v, want %v", log, want)
	}
}

// TestAuditNamesImpersonator verifies that the audit log names the operator behind each action as another person.
func TestAuditNamesImpersonator(t *testing.T) {
	s := newScene(t)
	const second = "ws_01j00000000000000000000002"
	s.platform(entity.KindSlug, "second", &slugv1.ClaimSlug{
		WorkspaceId: second, WorkspaceName: "Second", CreatorId: alice, CreatorEmail: "alice@example.com", ImpersonatorId: bob,
	})
	s.computerDone(second)
	s.platform(entity.KindDevice, laptop, &devicev1.ClaimDevice{
		UserId: alice, MachineId: "mch_01j00000000000000000000001", Name: "laptop", ImpersonatorId: bob,
	})
	operator := person(alice)
	operator.Kind, operator.ImpersonatorId = wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, bob
	s.ask(operator, entity.KindComputer, second, &computerv1.Reprovision{TaskId: "tsk_1", BackupId: "bkp_1", DriveReadable: true})
	s.computerDone(second)
	page := s.ask(person(alice), entity.KindWorkspace, second, &wirev1.List{Name: "audit", Limit: 100}).(*wirev1.Page)
	told := map[string]bool{}
	for _, row := range page.GetRows() {
		var event auditv1.Event
		if err := proto.Unmarshal(row, &event); err != nil {
			t.Fatal(err)
		}
		if event.GetActorId() == alice && event.GetProvenance().GetActor() == bob {
			told[event.GetEvent()] = true
		}
	}
	for _, name := range []string{"workspace.created", "sync_machine.registered", "workspace.reprovisioned", "backup.created"} {
		if !told[name] {
			t.Errorf("%s does not name bob as the operator behind alice: %v", name, told)
		}
	}
}

func TestProfileReachesMembersAndOperators(t *testing.T) {
	s := newScene(t)
	s.ask(person(alice), entity.KindUser, alice, &userv1.ChangeProfile{FirstName: new("Ali"), LastName: new("Ce")})
	for search, want := range map[string]int{"ALI CE": 1, "alice@": 1, "bob": 0, "": 1} {
		page := s.ask(person(alice), entity.KindWorkspace, workspace, &wirev1.List{Name: "members", Limit: 10, Search: search}).(*wirev1.Page)
		if len(page.GetRows()) != want {
			t.Errorf("%q finds %d members", search, len(page.GetRows()))
		}
	}
	page := s.platform(entity.KindUser, alice, &wirev1.List{Name: "people", Limit: 10}).(*wirev1.Page)
	var shown userv1.User
	if len(page.GetRows()) != 1 || proto.Unmarshal(page.GetRows()[0], &shown) != nil || shown.GetName() != "Ali Ce" || len(shown.GetWorkspaces()) != 1 {
		t.Errorf("operators see %v", &shown)
	}
	_, err := s.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindUser, Identity: alice, Principal: person(alice), Message: &wirev1.List{Name: "audit", Limit: 10},
	})
	if err == nil {
		t.Error("alice lists the audit log of operators")
	}
}

// computerDone waits until a workspace's computer has no open task.
func (s scene) computerDone(workspaceID string) {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		if err := s.node.Router.Settle(s.t.Context(), entity.KindWorkspace, workspaceID); err != nil {
			s.t.Fatal(err)
		}
		state := s.ask(entity.Platform(), entity.KindComputer, workspaceID, &computerv1.DescribeComputer{}).(*computerv1.Computer)
		if state.GetTask() == nil && state.GetStatus() != computerv1.Status_STATUS_UNSPECIFIED {
			return
		}
	}
}
