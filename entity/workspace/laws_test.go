package workspace_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	anyPerson = rapid.SampledFrom([]string{"ann", "ann", "bob", "bob", "cat", "dan", "eve"})
	anyRole   = rapid.Custom(func(t *rapid.T) workspacev1.Role {
		return workspacev1.Role(rapid.SampledFrom([]int32{1, 1, 2, 2, 3, 0, 9}).Draw(t, "role"))
	})
	anyAnchor = rapid.SampledFrom([]string{"anc_1", "anc_2", "anc_3", "anc_4"})
	anyPath   = rapid.SampledFrom([]string{"a", "a", "b", "c/d", "", "../x"})
	anyReason = rapid.SampledFrom([]string{"", "rent", "abuse"})
	anyInvite = rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("inv_%d", rapid.IntRange(1, 12).Draw(t, "invitation")) })
)

func drawPrincipal() *rapid.Generator[*wirev1.Principal] {
	return rapid.Custom(func(t *rapid.T) *wirev1.Principal {
		id := anyPerson.Draw(t, "who")
		switch rapid.IntRange(0, 9).Draw(t, "as") {
		case 0, 1, 2:
			return entity.Platform()
		case 3:
			return &wirev1.Principal{
				Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: id, WorkspaceId: acme,
				Grants: []string{entity.Members, entity.Apps},
			}
		default:
			return person(id)
		}
	})
}

// drawAdminCommand draws commands for members, invitations and the name.
func drawAdminCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		switch rapid.IntRange(0, 9).Draw(t, "command") {
		case 0, 1:
			return &workspacev1.ChangeRole{UserId: anyPerson.Draw(t, "member"), Role: anyRole.Draw(t, "to")}
		case 2:
			return &workspacev1.RemoveMember{UserId: anyPerson.Draw(t, "member")}
		case 3, 4:
			id := anyPerson.Draw(t, "invited")
			return &workspacev1.Invite{
				InvitationId: anyInvite.Draw(t, "id"), Email: address(id), Role: anyRole.Draw(t, "as"),
				SecretSha256: secret(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "secret")), Inviter: somebody("ann"),
			}
		case 5:
			return &workspacev1.RevokeInvitation{InvitationId: anyInvite.Draw(t, "id")}
		case 6, 7:
			return &workspacev1.AcceptInvitation{InvitationId: anyInvite.Draw(t, "id"), Person: somebody(anyPerson.Draw(t, "accepts"))}
		case 8:
			return &workspacev1.RenameWorkspace{
				Slug: rapid.SampledFrom([]string{"", "acme", "apex"}).Draw(t, "slug"),
				Name: rapid.SampledFrom([]string{"", "Acme", "Apex", "\x00"}).Draw(t, "name"),
			}
		default:
			return &workspacev1.SetDefaultModel{Tier: workspacev1.Tier(rapid.Int32Range(0, 8).Draw(t, "tier"))}
		}
	})
}

// drawStatusCommand draws commands that suspend the workspace, report about it or record audit events.
func drawStatusCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		switch rapid.IntRange(0, 8).Draw(t, "command") {
		case 0:
			return &workspacev1.Suspend{Reason: anyReason.Draw(t, "reason")}
		case 1, 2:
			return &workspacev1.Resume{}
		case 3:
			return &workspacev1.ReportReady{}
		case 4:
			return &workspacev1.ReportUnhealthy{}
		case 5:
			return &workspacev1.ChangeStatus{Status: workspacev1.Status(rapid.SampledFrom([]int32{0, 1, 2, 2, 2, 3, 4, 5, 6, 9}).Draw(t, "status"))}
		case 6:
			return &workspacev1.UpdateMember{Person: &workspacev1.Person{
				UserId: anyPerson.Draw(t, "member"), Email: address(anyPerson.Draw(t, "email")), Name: anyReason.Draw(t, "name"),
			}}
		case 8:
			return &workspacev1.SetMemberDisabled{UserId: anyPerson.Draw(t, "member"), Disabled: rapid.Bool().Draw(t, "disabled")}
		case 7:
			return &workspacev1.RecordAudit{Event: &auditv1.Event{
				Event: rapid.SampledFrom([]string{"api_key.created", ""}).Draw(t, "event"), At: rapid.SampledFrom([]int64{0, 5, -1}).Draw(t, "at"),
			}}
		default:
			return &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: anyPerson.Draw(t, "creator")}
		}
	})
}

func drawAnchorCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		id, path := anyAnchor.Draw(t, "anchor"), anyPath.Draw(t, "path")
		switch rapid.IntRange(0, 8).Draw(t, "command") {
		case 0, 1, 2:
			kind := workspacev1.AnchorKind(rapid.SampledFrom([]int32{1, 1, 1, 2, 3, 4, 5, 0}).Draw(t, "kind"))
			return &workspacev1.CreateAnchor{AnchorId: id, Path: path, Kind: kind}
		case 3:
			return &workspacev1.RemoveAnchor{AnchorId: id}
		case 4:
			return &workspacev1.Reanchor{AnchorId: id, Path: path}
		case 5:
			return &workspacev1.MoveAnchor{AnchorId: id, FromPath: path, ToPath: anyPath.Draw(t, "to")}
		case 6:
			return &workspacev1.BreakAnchor{AnchorId: id, Path: path}
		case 7:
			return &workspacev1.RepairAnchor{AnchorId: id, Path: path}
		default:
			return &workspacev1.OrphanAnchors{}
		}
	})
}

// drawAgentCommand draws commands for agents, their default sessions and their usage.
func drawAgentCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		id, path := anyAnchor.Draw(t, "anchor"), anyPath.Draw(t, "path")
		owner := rapid.SampledFrom([]string{"root", "agt_anc_1", "agt_anc_2", "agt_none"}).Draw(t, "owner")
		session := rapid.SampledFrom([]string{"ses_1", "ses_2", "", "no id"}).Draw(t, "session")
		slug := rapid.SampledFrom([]string{"notes", "writer", "root", "No"}).Draw(t, "slug")
		switch rapid.IntRange(0, 9).Draw(t, "command") {
		case 0, 1:
			return registered(id, path, slug)
		case 2:
			return &workspacev1.RemoveAgent{Slug: slug}
		case 3:
			return &workspacev1.UpdateAgent{
				AnchorId: id, Path: path, Name: anyReason.Draw(t, "name"), Description: "A.", Tier: workspacev1.Tier(rapid.Int32Range(0, 8).Draw(t, "tier")),
			}
		case 4, 5:
			return &workspacev1.SetDefaultSession{Owner: owner, SessionId: session}
		case 6:
			return &workspacev1.BindDefaultSession{Owner: owner, SessionId: session}
		case 7:
			return &workspacev1.ClearDefaultSession{SessionId: session}
		case 8:
			return &workspacev1.AddAgentUsage{SessionId: session, Work: &workspacev1.AgentWork{
				InputTokens: rapid.Uint64Range(0, 5).Draw(t, "tokens"), RunningMs: rapid.Int64Range(-1, 5).Draw(t, "time"),
			}}
		default:
			return &workspacev1.AllowAgentUsage{}
		}
	})
}

// drawAppCommand draws commands for apps and their reservations.
func drawAppCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		id, path := anyAnchor.Draw(t, "anchor"), anyPath.Draw(t, "path")
		port := rapid.SampledFrom([]uint32{0, 3000, 3001, 3002, 70000}).Draw(t, "port")
		slug := rapid.SampledFrom([]string{"site", "shop", "No"}).Draw(t, "slug")
		switch rapid.IntRange(0, 6).Draw(t, "command") {
		case 0, 1, 2:
			c := newApp(id, path, slug, port)
			c.Registration.CreatedByUserId = "ann"
			return c
		case 3:
			return &workspacev1.ReserveAppPort{AppId: appID(id[len(id)-1:]), Port: port}
		case 4:
			return &workspacev1.ReleaseAppPorts{
				AppId: appID(id[len(id)-1:]), Port: port, Reservation: rapid.Uint64Range(0, 60).Draw(t, "reservation"),
			}
		case 5:
			return &workspacev1.RemoveApp{AppId: appID(id[len(id)-1:])}
		default:
			return &workspacev1.FindApp{Slug: slug}
		}
	})
}

func drawAnyCommand() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		switch rapid.IntRange(0, 9).Draw(t, "subject") {
		case 8, 9:
			return drawAppCommand().Draw(t, "apps")
		case 0, 1, 2:
			return drawAdminCommand().Draw(t, "administration")
		case 3:
			return drawStatusCommand().Draw(t, "standing")
		case 4, 5:
			return drawAgentCommand().Draw(t, "agents")
		default:
			return drawAnchorCommand().Draw(t, "anchors")
		}
	})
}

// TestRandomCommands checks with world.check that the lists follow the state, that each change has one audit row and that
// the billing user remains an owner.
func TestRandomCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newReadyWorld(t)
		if rapid.Bool().Draw(t, "a team") {
			w.join("bob", workspacev1.Role_ROLE_OWNER)
			w.join("cat", workspacev1.Role_ROLE_EDITOR)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 24, 24 * 8, 24 * 31}).Draw(t, "hours")) * time.Hour)
			before, p := w.s, drawPrincipal().Draw(t, "principal")
			c := drawAnyCommand().Draw(t, "command")
			_, events, err := w.send(p, c)
			if !entity.IsPlatform(p) {
				checkAcceptsNoChanges(t, before, c, events, err)
			}
		}
		replayed := workspace.Zero(acme)
		for _, e := range w.events {
			replayed = workspace.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, w.s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, w.s)
		}
	})
}

// checkAcceptsNoChanges fails the test if a person changed a workspace that accepts no changes.
func checkAcceptsNoChanges(t *rapid.T, s *workspacev1.Workspace, c workspacev1.Command, events []workspacev1.Event, err error) {
	t.Helper()
	switch c.(type) {
	case *workspacev1.Suspend, *workspacev1.Resume:
		if s.GetSuspension().GetByOperator() && len(events) > 0 {
			t.Fatalf("a person changed the suspension by an operator: %v", events)
		}
	default:
		refuses := s.GetSuspension() != nil || s.GetStatus() >= workspacev1.Status_STATUS_ARCHIVED
		if refuses && len(events) > 0 {
			t.Fatalf("%T while %v, %v: %v", c, s.GetStatus(), s.GetSuspension(), events)
		}
	}
	if s.GetStatus() == workspacev1.Status_STATUS_DELETED && entitytest.Code(err) != entity.NotFound && entitytest.Code(err) != entity.Forbidden {
		t.Fatalf("%T of a deleted workspace: %v", c, err)
	}
}
