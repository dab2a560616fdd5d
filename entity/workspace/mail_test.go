package workspace_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestInvitationMail(t *testing.T) {
	made := &workspacev1.Workspace{Invitations: map[string]*workspacev1.Invitation{
		"inv_1": {Id: "inv_1", MailId: "mail_1", MailRequestedAt: 7}, "inv_2": {Id: "inv_2"},
		"inv_3": {Id: "inv_3", MailId: "mail_3", RevokedAt: 8}, "inv_4": {Id: "inv_4", MailId: "mail_4", ConsumedAt: 8},
	}}
	open := workspace.Tasks(made)
	if len(open) != 1 || open[0].ID != "mail_1" || open[0].Message.(*workspacev1.InvitationMail).GetRequestedAt() != 7 {
		t.Fatalf("open: %v", open)
	}
	after := workspace.Evolve(made, &workspacev1.InvitationMailed{InvitationId: "inv_1", MailId: "mail_1"})
	if open := workspace.Tasks(after); len(open) != 0 {
		t.Errorf("open after the mail was sent: %v", open)
	}
}

func TestDelivery(t *testing.T) {
	w := newReadyWorld(t)
	invite := newInvite("inv_1", "bob@example.com", "x")
	invite.MailId = "mail_1"
	w.must(person("ann"), invite)
	refused := &workspacev1.ReportInvitationMailed{InvitationId: "inv_1", MailId: "mail_1", GivenUp: true, Refusal: "550 5.1.1"}
	w.must(entity.Platform(), refused)
	want := &workspacev1.Delivery{At: w.now.UnixMilli(), GivenUp: true, Refusal: "550 5.1.1"}
	if got := w.s.GetInvitations()["inv_1"].GetDelivery(); !proto.Equal(got, want) || len(workspace.Tasks(w.s)) != 0 {
		t.Errorf("delivery %v, tasks %v", got, workspace.Tasks(w.s))
	}
	renewal := newInvite("inv_2", "bob@example.com", "y")
	renewal.MailId = "mail_2"
	w.must(person("ann"), renewal)
	w.mustNotChange(entity.Platform(), refused) // a late report of the mail before
	if i := w.s.GetInvitations()["inv_1"]; i.GetDelivery() != nil || i.GetMailId() != "mail_2" || len(workspace.Tasks(w.s)) != 1 {
		t.Errorf("after the renewal: %v", i)
	}
}
