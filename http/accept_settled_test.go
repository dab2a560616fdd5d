package http_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The right of an inviter has ended, and the workspace learns of it only when the reactions run that the test holds back: in the order of
// the chain, each is done when a request waits for it. A request to accept the invitation waits for them, and is refused.
func TestAcceptanceWaitsForTheEndOfTheInviter(t *testing.T) {
	const inviter, appID, grantID, keyID = "usr_01j0000000000000000000000b", "app_01j0000000000000000000000b", "ogr_01j0000000000000000000000b", "key_01j0000000000000000000000b"
	for name, test := range map[string]struct {
		person, program string
		chain           []string
	}{
		"a disabled account":       {inviter, "", []string{entity.KindUser + " " + inviter}},
		"a revoked key":            {inviter, keyID, []string{entity.KindUser + " " + inviter}},
		"a disabled app":           {inviter, appID, []string{entity.KindApp + " " + app.Identity(acme, appID)}},
		"an app without a folder":  {inviter, appID, []string{entity.KindActivity + " " + acme}},
		"a grant that was revoked": {inviter, grantID, []string{entity.KindGrant + " " + grantID, entity.KindUser + " " + inviter}},
		"an app of no person":      {"", appID, []string{entity.KindApp + " " + app.Identity(acme, appID)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeEntities()
			held := slices.Clone(test.chain)
			w.settled = func(kind, identity string) {
				if len(held) > 0 && held[0] == kind+" "+identity {
					held = held[1:]
				}
			}
			i := &workspacev1.Invitation{
				Id: "inv_01j0000000000000000000000a", ExpiresAt: 1 << 50, Inviter: &workspacev1.Person{UserId: test.person}, InviterCredentialId: test.program,
			}
			stub(w, func(c entity.Command, _ *emailv1.ResolveEmail) (proto.Message, error) {
				return &emailv1.Email{Address: c.Identity, Invitations: map[string]string{i.GetId(): acme}}, nil
			})
			stub(w, func(entity.Command, *workspacev1.DescribeInvitation) (proto.Message, error) { return i, nil })
			stub(w, func(entity.Command, *workspacev1.AcceptInvitation) (proto.Message, error) {
				if len(held) == 0 {
					return nil, entity.Errorf(entity.InvitationRevoked, "the invitation has been revoked")
				}
				return &workspacev1.Description{Workspace: &workspacev1.Workspace{Slug: "acme"}}, nil
			})
			target := fmt.Sprintf("/v1/user/invitations/%s/accept", i.GetId())
			got := request(t, w.server(t), "POST", target, w.key(alice), "")
			expect(t, got, 409, "invitation_revoked")

			w.settle = entity.Errorf(entity.Unavailable, "the change was made")
			got = request(t, w.server(t), "POST", target, w.key(alice), "")
			expect(t, got, 503, "the inviter")
			if strings.Contains(got.Body.String(), "the change was made") {
				t.Errorf("nothing was changed: %s", got.Body)
			}
		})
	}
}
