package http_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// An editor with a pending invitation to a second address loses the right to invite: the invitation ends with it, in the audit
// log, and cannot be accepted.
func TestInvitationsOfFormerInviters(t *testing.T) {
	for name, lose := range map[string]func(s *site, key, bob string){
		"removed": func(s *site, key, bob string) {
			expect(s, request(s, s.node.Server, "DELETE", "/v1/ws/acme/members/"+bob, key, ""), 200, "true")
		},
		"demoted": func(s *site, key, bob string) {
			expect(s, request(s, s.node.Server, "PATCH", "/v1/ws/acme/members/"+bob, key, `{"role":"viewer"}`), 200, "viewer")
		},
		"disabled": func(s *site, _, _ string) {
			expect(s, request(s, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"bob@example.com","disabled":true}`), 200, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			key, _ := s.signUp("alice")
			s.workspace(key, "acme")
			bob, second := s.person("bob"), s.person("second")
			s.invite(key, "acme", "bob@example.com")
			acceptOnly(s, bob)
			link := s.invite(bob, "acme", "second@example.com")
			lose(s, key, s.idOf("bob"))
			expectRevoked(s, key, second, link)
		})
	}
}

// expectRevoked expects that the only invitation of a workspace is revoked, in the audit log, and cannot be accepted.
func expectRevoked(s *site, owner, invited, link string) {
	s.Helper()
	s.browser().get(link).expectPage(409, "This invitation was revoked")
	if list := request(s, s.node.Server, "GET", "/v1/ws/acme/invites", owner, "").Body.String(); strings.Count(list, `"revokedAt"`) != 1 {
		s.Errorf("the list has %s", list)
	}
	if log := request(s, s.node.Server, "GET", "/v1/ws/acme/audit", owner, "").Body.String(); strings.Count(log, `"invitation.revoked"`) != 1 {
		s.Errorf("the log has %s", log)
	}
	expect(s, request(s, s.node.Server, "GET", "/v1/user/invitations", invited, ""), 200, `"items":[]`)
}

// receivedBy returns the id of the only pending invitation of a person.
func receivedBy(s *site, key string) string {
	s.Helper()
	var list struct{ Items []struct{ ID string } }
	answer := request(s, s.node.Server, "GET", "/v1/user/invitations", key, "")
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
		s.Fatalf("%v: %s", err, answer.Body)
	}
	return list.Items[0].ID
}

// acceptOnly accepts the only pending invitation of a person.
func acceptOnly(s *site, key string) {
	s.Helper()
	expect(s, request(s, s.node.Server, "POST", "/v1/user/invitations/"+receivedBy(s, key)+"/accept", key, ""), 200, "")
}

// The invitations that an OAuth grant has sent end when it is revoked.
func TestInvitationsOfARevokedGrant(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	alice := s.idOf("alice")
	found, err := s.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindSlug, Identity: "acme", Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := found.(*slugv1.Slug).GetWorkspaceId()
	grantID := newID(user.GrantPrefix)
	ask := func(kind, identity string, as *wirev1.Principal, m proto.Message) {
		t.Helper()
		if _, err := s.node.Router.Ask(t.Context(), entity.Command{Kind: kind, Identity: identity, Principal: as, Message: m}); err != nil {
			t.Fatal(err)
		}
	}
	ask(entity.KindUser, alice, entity.Platform(), &userv1.AllowGrant{Grant: &userv1.Grant{
		Id: grantID, ClientId: "cli_1", ClientName: "Client", WorkspaceId: id, WorkspaceSlug: "acme", WorkspaceName: "Acme", Scopes: entity.AgentCapabilities(),
	}})
	program := func(kind wirev1.CredentialKind, id2 string) *wirev1.Principal {
		return &wirev1.Principal{Kind: kind, CredentialId: id2, UserId: alice, WorkspaceId: id, Grants: entity.AgentCapabilities()}
	}
	invite := func(name string, as *wirev1.Principal) {
		ask(entity.KindWorkspace, id, as, &workspacev1.Invite{
			InvitationId: newID("inv_"), Email: name + "@example.com", Role: workspacev1.Role_ROLE_EDITOR, Inviter: &workspacev1.Person{UserId: alice},
		})
	}
	invite("bob", program(wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, grantID))
	appID := newID(app.IDPrefix)
	invite("carol", program(wirev1.CredentialKind_CREDENTIAL_KIND_APP, appID))
	revoked := func() int {
		return strings.Count(request(t, s.node.Server, "GET", "/v1/ws/acme/invites", key, "").Body.String(), `"revokedAt"`)
	}
	if n := revoked(); n != 0 {
		t.Errorf("%d are revoked before", n)
	}
	expect(t, request(t, s.node.Server, "DELETE", "/v1/user/oauth-grants/"+grantID, key, ""), 200, "")
	if n := revoked(); n != 1 {
		t.Errorf("%d are revoked with the grant", n)
	}
}

// The invitations that an app has sent with its key end when the app is disabled or removed, or loses the scope to invite.
func TestInvitationsOfAnApp(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		status             int
	}{
		"disabled": {"PUT", "/apps/site/disabled", `{"disabled":true}`, 200},
		// The request waits for the end of the process. No computer reports the end here. The invitation ends with the request.
		"removed":           {"DELETE", "/apps/site", "", 503},
		"without_the_scope": {"PATCH", "/apps/site", `{"apiScopes":["files:read"]}`, 200},
		"without_a_folder":  {"DELETE", "/drive/site", "", 204},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(o *http.Options) { o.Apps = newFakeApps().options() })
			key, _ := s.signUp("alice")
			s.workspace(key, "acme")
			invited := s.person("bob")
			send := func(method, path, body string, status int) *httptest.ResponseRecorder {
				t.Helper()
				answer := request(t, s.node.Server, method, "/v1/ws/acme"+path, key, body)
				expect(t, answer, status, "")
				return answer
			}
			send("MKCOL", "/drive/site", "", 201)
			var made struct {
				App struct{ ID, WorkspaceID string }
			}
			scopes, err := json.Marshal(entity.AgentCapabilities()) // an editor is invited by a credential with the capabilities of the role only
			if err != nil {
				t.Fatal(err)
			}
			answer := send("POST", "/apps", `{"path":"site","slug":"site","command":"serve","apiScopes":`+string(scopes)+`}`, 201)
			if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil {
				t.Fatal(err)
			}
			identity := app.Identity(made.App.WorkspaceID, made.App.ID)
			report := func(m proto.Message) { // as the supervisor of the app does
				t.Helper()
				command := entity.Command{Kind: entity.KindApp, Identity: identity, Principal: entity.Platform(), Message: m}
				if _, err := s.node.Router.Ask(t.Context(), command); err != nil {
					t.Fatal(err)
				}
				if err := s.node.Router.Settle(t.Context(), entity.KindApp, identity); err != nil { // the credential is registered
					t.Fatal(err)
				}
			}
			appKey, hash := newKeyOf(kindApp, made.App.ID)
			report(&appv1.IssueKey{Generation: 1, SecretSha256: hash})
			report(&appv1.ReportReconciled{Generation: 1})
			link := s.invite(appKey, "acme", "bob@example.com")
			expect(t, request(t, s.node.Server, "GET", "/v1/user/invitations", invited, ""), 200, `"role":"editor"`)
			received := receivedBy(s, invited)
			send(test.method, test.path, test.body, test.status)
			if name == "without_a_folder" { // the answer to the deletion waits for no reaction
				expect(t, request(t, s.node.Server, "POST", "/v1/user/invitations/"+received+"/accept", invited, ""), 409, "invitation_revoked")
			}
			if name == "without_the_scope" {
				report(&appv1.ReportReconciled{Generation: 2})
			}
			if err := s.node.Router.Settle(t.Context(), entity.KindApp, identity); err != nil {
				t.Fatal(err)
			}
			expectRevoked(s, key, invited, link)
		})
	}
}

// The invitations that were sent with a limited key expire with the key, so that the holder of the key gives no access after its end.
func TestInvitationsOfAnExpiredKey(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	invited := s.person("bob")
	end := s.clock.Now().Add(time.Hour).UnixMilli()
	var made struct{ Key string }
	body := fmt.Sprintf(`{"name":"x","capabilities":["files:read","members","apps","sessions"],"expiresAt":%d}`, end)
	answer := request(t, s.node.Server, "POST", "/v1/user/limited-keys", key, body)
	if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil || answer.Code != 201 {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	answer = request(t, s.node.Server, "POST", "/v1/ws/acme/invites", made.Key, `{"email":"bob@example.com","role":"viewer"}`)
	expect(t, answer, 201, fmt.Sprintf(`"expiresAt":%d`, end))
	link := s.local(strings.TrimSuffix(strings.TrimPrefix(answer.Header().Get("Link"), "<"), `>; rel="invitation"`))
	received := receivedBy(s, invited)
	s.clock.advance(time.Hour)
	s.browser().get(link).expectPage(409, "This invitation has expired")
	expect(t, request(t, s.node.Server, "GET", "/v1/user/invitations", invited, ""), 200, `"items":[]`)
	expect(t, request(t, s.node.Server, "POST", "/v1/user/invitations/"+received+"/accept", invited, ""), 409, "invitation_expired")
	expect(t, request(t, s.node.Server, "GET", "/v1/ws/acme", invited, ""), 404, "")
}
