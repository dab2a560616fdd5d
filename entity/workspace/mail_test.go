package workspace_test

import (
	"testing"

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
