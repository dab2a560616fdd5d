package http_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestRefusals has each operation refused with every code that is possible. The document must list each response.
const aSession = "/v1/ws/acme/agent/sessions/ses_01j00000000000000000000aaa"

func TestRefusals(t *testing.T) {
	changes := "not_found forbidden workspace_suspended workspace_closed"
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	const device = `{"name":"x","syncDeviceId":"ABCDEFG"}`
	for _, test := range []struct {
		request, body string
		asked         proto.Message
		codes         string
	}{
		{"PATCH /v1/workspaces/acme", `{"slug":"apex","publicUrlBreakAcknowledged":true}`, &slugv1.ClaimSlug{}, "slug_taken invalid_request"},
		{"PATCH /v1/workspaces/acme", `{"slug":"acme","publicUrlBreakAcknowledged":true}`, &workspacev1.RenameWorkspace{}, changes},
		{"POST /v1/ws/acme/reprovision", "", &computerv1.Reprovision{}, changes},
		{"PUT /v1/ws/acme/admin/suspension", `{"suspended":true}`, &workspacev1.Suspend{}, "not_found forbidden invalid_request"},
		{"PUT /v1/ws/acme/admin/suspension", `{"suspended":false}`, &workspacev1.Resume{}, "not_found forbidden"},
		{"GET /v1/ws/acme/admin/suspension", "", &workspacev1.Authorize{}, "not_found forbidden"},
		{"GET /v1/ws/acme/anchors", "", &wirev1.List{}, "not_found forbidden"},
		{"POST /v1/ws/acme/anchors/x/reanchor", `{"path":"a"}`, &workspacev1.Reanchor{}, changes + " anchor_conflict invalid_request"},
		{"GET /v1/ws/acme/agents", "", &wirev1.List{}, "not_found forbidden"},
		{"POST /v1/ws/acme/agents", `{"path":"a"}`, &workspacev1.RegisterAgent{}, changes + " slug_taken anchor_conflict limit_reached invalid_request"},
		{"GET /v1/ws/acme/agents/x", "", &workspacev1.DescribeAgent{}, "not_found forbidden"},
		{"DELETE /v1/ws/acme/agents/x", "", &workspacev1.RemoveAgent{}, changes},
		{"GET /v1/ws/acme/skills", "", &workspacev1.Authorize{}, "not_found forbidden"},
		{"GET /v1/ws/acme/members", "", &wirev1.List{}, "not_found forbidden"},
		{"PATCH /v1/ws/acme/members/x", `{"role":"owner"}`, &workspacev1.ChangeRole{}, changes + " billing_user final_owner"},
		{"DELETE /v1/ws/acme/members/x", "", &workspacev1.RemoveMember{}, changes + " billing_user final_owner"},
		{"PUT /v1/ws/acme/default-model", `{"tier":"frontier"}`, &workspacev1.SetDefaultModel{}, changes},
		{"GET /v1/ws/acme/audit", "", &wirev1.List{}, "not_found forbidden"},
		{"GET /v1/ws/acme/telemetry", "", &wirev1.List{}, "not_found forbidden"},
		{"GET /v1/ws/acme/invites", "", &wirev1.List{}, "not_found forbidden"},
		{"GET /v1/ws/acme/invite-deliveries", "", &wirev1.List{}, "not_found forbidden"},
		{"POST /v1/ws/acme/invites", `{"email":"bob@example.com"}`, &workspacev1.Invite{}, changes + " already_member limit_reached"},
		{"DELETE /v1/ws/acme/invites/x", "", &workspacev1.RevokeInvitation{}, changes + " invitation_consumed"},
		{"POST /v1/user/invitations/x/accept", "", &workspacev1.AcceptInvitation{}, changes + " invitation_expired invitation_revoked"},
		{"GET /v1/user/invitations", "", &emailv1.ResolveEmail{}, "not_found"},
		{"GET /v1/user/profile", "", &userv1.DescribeUser{}, "not_found"},
		{"PATCH /v1/user/profile", `{"firstName":"x"}`, &userv1.ChangeProfile{}, "not_found forbidden invalid_request"},
		{"GET /v1/user/oauth-grants", "", &userv1.ListGrants{}, "not_found forbidden"},
		{"DELETE /v1/user/oauth-grants/x", "", &userv1.RevokeGrant{}, "not_found forbidden"},
		{"GET /v1/user/sync-machines", "", &userv1.ListMachines{}, "not_found forbidden"},
		{"POST /v1/user/sync-machines", device, &devicev1.ClaimDevice{}, "device_in_use"},
		{"POST /v1/user/sync-machines", device, &userv1.RegisterMachine{}, "not_found limit_reached"},
		{"DELETE /v1/user/sync-machines/x", "", &userv1.RemoveMachine{}, "not_found forbidden"},
		{"DELETE /v1/user/api-keys/x", "", &userv1.RevokeApiKey{}, "not_found forbidden"},
		{"GET " + aSession, "", &sessionv1.DescribeSession{}, "not_found forbidden"},
		{"GET " + aSession + "/history", "", &wirev1.ReadTimeline{}, "not_found forbidden"},
		{"GET /v1/ws/acme/agent/sessions", "", &wirev1.List{}, "not_found forbidden"},
		{"POST " + aSession + "/interrupt", "", &sessionv1.Interrupt{}, changes},
		{"PATCH " + aSession, `{"title":"a"}`, &sessionv1.RenameSession{}, changes + " invalid_request"},
		{"PUT " + aSession + "/archive", `{"scope":"global","archived":true}`, &sessionv1.ArchiveSession{}, changes},
		{"PATCH " + aSession + "/audience", `{"kind":"specific"}`, &sessionv1.ChangeAudience{}, changes + " invalid_request"},
		{"PUT " + aSession + "/read", `{"seq":1}`, &sessionv1.MarkRead{}, changes + " invalid_request"},
		{"DELETE " + aSession, "", &sessionv1.DeleteSession{}, "workspace_suspended workspace_closed"},
	} {
		for _, code := range append(strings.Fields(test.codes), "unavailable", "internal") {
			w.before = refusing(test.asked, code)
			method, target, _ := strings.Cut(test.request, " ")
			got := request(t, s, method, target, key, test.body)
			if want := fmt.Sprintf(`{"error":%q,"message":`, code); got.Code < 400 || !strings.HasPrefix(got.Body.String(), want) {
				t.Errorf("%s, %s: %d %s", test.request, code, got.Code, got.Body)
			}
			if strings.Contains(got.Body.String(), "secret detail") {
				t.Errorf("%s tells what failed: %s", test.request, got.Body)
			}
		}
	}
}

// refusing answers one message with a refusal, and the messages before it so that it is sent.
func refusing(asked proto.Message, code string) func(context.Context, entity.Command) (proto.Message, error) {
	return func(_ context.Context, c entity.Command) (proto.Message, error) {
		if entity.MessageName(c.Message) == entity.MessageName(asked) {
			if code == "internal" {
				return nil, errors.New("secret detail")
			}
			return nil, entity.Errorf(entity.Code(code), "refused")
		}
		switch m := c.Message.(type) {
		case *devicev1.ClaimDevice:
			return &devicev1.Device{SyncDeviceId: c.Identity, UserId: m.GetUserId(), MachineId: m.GetMachineId()}, nil
		case *emailv1.ResolveEmail:
			return &emailv1.Email{Invitations: map[string]string{"x": acme}}, nil
		}
		return nil, nil
	}
}
