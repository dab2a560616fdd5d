package workspace_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const month = 30 * 24 * 3600 * 1000

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"rename": {"ws_1", &workspacev1.WorkspaceRenamed{OldSlug: "a", NewSlug: "b", At: 5}, []entity.Reaction{
			entity.Send(entity.KindSlug, "a", &slugv1.ReleaseSlug{WorkspaceId: "ws_1", ReservedUntil: 5 + month}),
		}},
		"name alone": {"ws_1", &workspacev1.WorkspaceRenamed{OldSlug: "a", NewSlug: "a", At: 5}, nil},
		"deletion": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_DELETED, Slug: "a", At: 5, BillingUserId: "usr_1"}, []entity.Reaction{
			entity.Send(entity.KindSlug, "a", &slugv1.ReleaseSlug{WorkspaceId: "ws_1", ReservedUntil: 5 + month}),
			entity.Send(entity.KindComputer, "ws_1", &computerv1.RetireComputer{TaskId: "retire-5"}),
			entity.Send(entity.KindUser, "usr_1", &userv1.ForgetWorkspace{WorkspaceId: "ws_1"}),
		}},
		"archive": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_ARCHIVED, Slug: "a", At: 5}, nil},
		"creation": {"ws_1", &workspacev1.WorkspaceCreated{CreatorId: "usr_1", At: 5}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.JoinWorkspace{WorkspaceId: "ws_1", Created: true}),
			entity.Send(entity.KindComputer, "ws_1", &computerv1.RequestComputer{TaskId: "provision-5"}),
		}},
		"invitation": {"ws_1", &workspacev1.InvitationCreated{Invitation: &workspacev1.Invitation{
			Id: "inv_1", Email: "a@example.com", Inviter: &workspacev1.Person{UserId: "usr_1"},
		}}, []entity.Reaction{
			entity.Send(entity.KindEmail, "a@example.com", &emailv1.AddInvitation{InvitationId: "inv_1", WorkspaceId: "ws_1", InviterId: "usr_1"}),
		}},
		"invitation by nobody": {"ws_1", &workspacev1.InvitationCreated{Invitation: &workspacev1.Invitation{Id: "inv_1", Email: "a@example.com"}}, []entity.Reaction{
			entity.Send(entity.KindEmail, "a@example.com", &emailv1.AddInvitation{InvitationId: "inv_1", WorkspaceId: "ws_1"}),
		}},
		"acceptance": {"ws_1", &workspacev1.InvitationAccepted{Person: &workspacev1.Person{UserId: "usr_1"}}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.JoinWorkspace{WorkspaceId: "ws_1"}),
		}},
		"removal": {"ws_1", &workspacev1.MemberRemoved{UserId: "usr_1"}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.LeaveWorkspace{WorkspaceId: "ws_1"}),
		}},
		"opened again": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_ACTIVE, At: 5}, []entity.Reaction{
			entity.Send(entity.KindComputer, "ws_1", &computerv1.AnnounceLoss{At: 5}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, workspace.Kind.React(test.identity, test.event), test.want)
		})
	}
}
