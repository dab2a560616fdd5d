package workspace_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The letters are the roles that may send a command: o is an owner, e an editor, v a viewer. The platform may send all.
var senders = map[protoreflect.Name]string{
	"Authorize": "oev", "DescribeWorkspace": "oev",
	"RenameWorkspace": "o", "SetDefaultModel": "o", "ChangeRole": "o", "RemoveMember": "o", "Suspend": "o", "Resume": "o",
	"Invite": "oe", "RevokeInvitation": "oe", "Reanchor": "oe",
	"ReportReady": "", "ReportUnhealthy": "", "CreateWorkspace": "", "UpdateMember": "", "SetMemberDisabled": "", "EndInvitations": "", "RecordAudit": "", "ReportInvitationMailed": "", "ChangeStatus": "",
	"DescribeInvitation": "", "CreateAnchor": "", "RemoveAnchor": "", "MoveAnchor": "", "BreakAnchor": "",
	"RepairAnchor": "", "OrphanAnchors": "", "ListAnchors": "",
	"ReportLocksRemoved": "", "RequestAnchorCheck": "", "ReportAnchorsChecked": "",
	"RegisterAgent": "oe", "RemoveAgent": "oe", "DescribeAgent": "oev", "UpdateAgent": "",
	"SetDefaultSession": "oe", "BindDefaultSession": "oe", "ClearDefaultSession": "", "ReadDefaultSessions": "oev",
	"DescribeMembers": "oev", "AddAgentUsage": "", "AllowAgentUsage": "oe", "ReadAgentUsage": "oev", "ReportSessionsStopped": "",
	"RegisterApp": "oe", "ReserveAppPort": "oe", "FindApp": "oev", "ReleaseAppPorts": "", "RemoveApp": "",
	// This command authorizes its sender itself: an invited person has no role.
	"AcceptInvitation": "",
}

// samples has a valid command of each type that needs fields.
var samples = map[protoreflect.Name]workspacev1.Command{
	"RenameWorkspace":    &workspacev1.RenameWorkspace{Slug: "apex"},
	"SetDefaultModel":    &workspacev1.SetDefaultModel{Tier: workspacev1.Tier_TIER_BALANCED},
	"ChangeRole":         &workspacev1.ChangeRole{UserId: "editor", Role: workspacev1.Role_ROLE_VIEWER},
	"RemoveMember":       &workspacev1.RemoveMember{UserId: "viewer"},
	"Invite":             &workspacev1.Invite{InvitationId: "inv_9", Email: "x@example.com", Role: workspacev1.Role_ROLE_VIEWER},
	"RevokeInvitation":   &workspacev1.RevokeInvitation{InvitationId: "inv_1"},
	"AcceptInvitation":   &workspacev1.AcceptInvitation{InvitationId: "inv_1", Person: &workspacev1.Person{UserId: "new", Email: "new@example.com"}},
	"DescribeInvitation": &workspacev1.DescribeInvitation{InvitationId: "inv_1"},
	"Reanchor":           &workspacev1.Reanchor{AnchorId: "anc_1", Path: "b"},
	"ChangeStatus":       &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ARCHIVED},
	"RecordAudit":        &workspacev1.RecordAudit{Event: &auditv1.Event{Event: "api_key.created"}},
	"CreateAnchor":       &workspacev1.CreateAnchor{AnchorId: "anc_9", Path: "b", Kind: workspacev1.AnchorKind_ANCHOR_KIND_APP},
	"MoveAnchor":         &workspacev1.MoveAnchor{AnchorId: "anc_1", FromPath: "app", ToPath: "b"},
	"RegisterAgent":      registered("anc_9", "b", "writer"),
	"RemoveAgent":        &workspacev1.RemoveAgent{Slug: "notes"},
	"DescribeAgent":      &workspacev1.DescribeAgent{Slug: "notes"},
	"UpdateAgent":        &workspacev1.UpdateAgent{AnchorId: "anc_a", Path: "agent", Name: "New", Description: "New."},
	"SetDefaultSession":  &workspacev1.SetDefaultSession{Owner: "agt_a", SessionId: "ses_1"},
	"BindDefaultSession": &workspacev1.BindDefaultSession{Owner: "agt_a", SessionId: "ses_1"},
	"RegisterApp":        newApp("anc_9", "b", "site", 0),
	"ReserveAppPort":     &workspacev1.ReserveAppPort{AppId: appID("p"), Port: 4000},
	"FindApp":            &workspacev1.FindApp{Slug: "shop"},
	"AddAgentUsage":      &workspacev1.AddAgentUsage{SessionId: "ses_1", Work: &workspacev1.AgentWork{InputTokens: 1}},
}

// everyCommand returns one command of each type, by name.
func everyCommand() map[protoreflect.Name]workspacev1.Command {
	all := map[protoreflect.Name]workspacev1.Command{}
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if c, ok := mt.New().Interface().(workspacev1.Command); ok {
			all[mt.Descriptor().Name()] = c
		}
		return true
	})
	for name, c := range samples {
		all[name] = c
	}
	return all
}

// open returns a workspace that accepts changes, with a pending invitation and an anchor.
func open() *workspacev1.Workspace {
	s := fullWorkspace()
	s.Suspension = nil
	s.Invitations["inv_1"].Role, s.Invitations["inv_1"].ExpiresAt = workspacev1.Role_ROLE_EDITOR, noon.UnixMilli()+1
	s.Anchors["anc_1"].Kind, s.Anchors["anc_1"].State = workspacev1.AnchorKind_ANCHOR_KIND_APP, workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	s.Anchors["anc_a"] = &workspacev1.Anchor{
		Id: "anc_a", Path: "agent", Kind: agent, State: active, Position: 4, Agent: &workspacev1.Agent{Id: "agt_a", Slug: "notes", Name: "Notes"},
	}
	s.Anchors["anc_p"] = &workspacev1.Anchor{
		Id: "anc_p", Path: "shop", Kind: workspacev1.AnchorKind_ANCHOR_KIND_APP, State: active, Position: 5, App: &workspacev1.App{
			Id: appID("p"), Slug: "shop", Ports: []*workspacev1.AppPort{{Port: 3000, Reservation: 5}},
		},
	}
	return s
}

func decide(p *wirev1.Principal, s *workspacev1.Workspace, c workspacev1.Command) entity.Code {
	_, err := workspace.Rules.AuthorizeAndDecide(callBy(p), s, c)
	return entitytest.Code(err)
}

func TestAccess(t *testing.T) {
	for name, c := range everyCommand() {
		may, known := senders[name]
		if !known {
			t.Errorf("nothing is said of who may send %s", name)
			continue
		}
		if code := decide(entity.Platform(), open(), c); code != "" {
			t.Errorf("the platform's %s: %s", name, code)
		}
		for role, letter := range map[string]string{"owner": "o", "editor": "e", "viewer": "v"} {
			allowed := containsAny(may, letter)
			if code := decide(person(role), open(), c); allowed != (code == "") || !allowed && code != entity.Forbidden {
				t.Errorf("%s of the %s: %q", name, role, code)
			}
		}
		outside := entity.NotFound
		if name == "AcceptInvitation" {
			outside = entity.Forbidden // its own rule: a stranger may be the invited person
		}
		if code := decide(person("stranger"), open(), c); code != outside {
			t.Errorf("%s of a stranger: %q, want %s", name, code, outside)
		}
	}
}

func containsAny(s, letter string) bool {
	for _, r := range s {
		if string(r) == letter {
			return true
		}
	}
	return false
}

// TestClosedWorkspace checks the commands that a suspended, archived or retired workspace refuses to an owner, and that it
// accepts commands of the platform.
func TestClosedWorkspace(t *testing.T) {
	for what, test := range map[string]struct {
		shut func(*workspacev1.Workspace)
		code entity.Code
	}{
		"suspended": {func(s *workspacev1.Workspace) { s.Suspension = &workspacev1.Suspension{At: 1} }, entity.WorkspaceSuspended},
		"archived":  {func(s *workspacev1.Workspace) { s.Status = workspacev1.Status_STATUS_ARCHIVED }, entity.WorkspaceClosed},
		"retired":   {func(s *workspacev1.Workspace) { s.Status = workspacev1.Status_STATUS_RETIRED }, entity.WorkspaceClosed},
	} {
		s := open()
		test.shut(s)
		for name, c := range everyCommand() {
			want := test.code
			switch name {
			case "Authorize", "DescribeWorkspace", "Suspend", "Resume", "DescribeAgent", "ReadDefaultSessions", "DescribeMembers",
				"ReadAgentUsage", "FindApp":
				want = ""
			}
			if containsAny(senders[name], "o") {
				if code := decide(person("owner"), s, c); code != want {
					t.Errorf("%s: %s of an owner: %q, want %q", what, name, code, want)
				}
			}
			accepted := name != "AcceptInvitation" && name != "RegisterApp" // an app that is not suspended with the others
			if code := decide(entity.Platform(), s, c); code != "" && accepted {
				t.Errorf("%s: %s of the platform: %q", what, name, code)
			}
		}
		accept := samples["AcceptInvitation"]
		if code := decide(person("new"), s, accept); code != test.code {
			t.Errorf("%s: accepting: %q, want %q", what, code, test.code)
		}
	}
}

func TestDeletedIsFinal(t *testing.T) {
	s := open()
	s.Status = workspacev1.Status_STATUS_DELETED
	for name, c := range everyCommand() {
		for _, p := range []*wirev1.Principal{person("owner"), entity.Platform()} {
			events, err := workspace.Rules.AuthorizeAndDecide(callBy(p), s, c)
			if len(events) > 0 {
				t.Errorf("%s: %v", name, events)
			}
			if code := entitytest.Code(err); p.GetUserId() != "" && code != entity.NotFound && code != entity.Forbidden {
				t.Errorf("%s of a former owner: %q", name, code)
			}
			if err == nil && workspace.Reply(callBy(p), s, c, nil) == proto.Message(nil) {
				t.Errorf("%s: no reply", name)
			}
		}
	}
	for c, want := range map[workspacev1.Command]entity.Code{
		&workspacev1.DescribeWorkspace{}:                                             "",
		&workspacev1.ReportReady{}:                                                   "",
		&workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_DELETED}:         "",
		&workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ACTIVE}:          entity.WorkspaceClosed,
		&workspacev1.ChangeRole{UserId: "editor", Role: workspacev1.Role_ROLE_OWNER}: entity.NotFound,
		samples["AcceptInvitation"]:                                                  entity.NotFound,
		samples["DescribeInvitation"]:                                                entity.NotFound,
	} {
		if code := decide(entity.Platform(), s, c); code != want {
			t.Errorf("%T of the platform: %q, want %q", c, code, want)
		}
	}
}

// TestReanchorCapability checks that the sender of Reanchor needs the capability for the kind of the anchor.
func TestReanchorCapability(t *testing.T) {
	kinds := map[workspacev1.AnchorKind]string{
		workspacev1.AnchorKind_ANCHOR_KIND_APP: entity.Apps, workspacev1.AnchorKind_ANCHOR_KIND_AGENT: entity.Apps,
		workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH:    entity.Publish,
		workspacev1.AnchorKind_ANCHOR_KIND_SHARE_ROOT: entity.Share, workspacev1.AnchorKind_ANCHOR_KIND_SHARE_MOUNT: entity.Share,
	}
	for kind, needed := range kinds {
		s := open()
		s.Anchors["anc_1"].Kind = kind
		for _, granted := range []string{entity.Apps, entity.Publish, entity.Share, entity.FilesWrite} {
			p := &wirev1.Principal{
				Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "editor", WorkspaceId: acme, Grants: []string{granted},
			}
			want := entity.Forbidden
			if granted == needed {
				want = ""
			}
			if code := decide(p, s, samples["Reanchor"]); code != want {
				t.Errorf("%v with %s: %q, want %q", kind, granted, code, want)
			}
		}
	}
}
