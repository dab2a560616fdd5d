package node

import (
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// platform sends a command of the platform.
func (s *agentSite) platform(kind, identity string, m proto.Message) proto.Message {
	s.Helper()
	reply, err := s.Router.Ask(s.Context(), entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m})
	s.check(err)
	return reply
}

// TestLostAccessStopsSessions ends the access of an editor in the middle of a turn, and while another session sleeps.
func TestLostAccessStopsSessions(t *testing.T) {
	for name, lose := range map[string]func(s *agentSite, userID string){
		"removed": func(s *agentSite, userID string) {
			s.must(http.StatusOK, s.request("DELETE", "/members/"+userID, nil), nil)
		},
		"demoted": func(s *agentSite, userID string) {
			s.must(http.StatusOK, s.request("PATCH", "/members/"+userID, fields{"role": "viewer"}), nil)
		},
		"disabled": func(s *agentSite, userID string) { s.platform(entity.KindUser, userID, &userv1.Disable{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newAgentSite(t)
			bob, bobsKey := s.person("bob")
			s.addEditor(bob, "bob@example.org")
			owners := s.key
			long := s.duration()

			s.key = bobsKey
			working := s.startSession("$ exec sleep "+long, nil)
			planted := s.startSession("sleep 30d\n$ echo planted > planted", nil)
			s.key = owners
			line, sleep := s.follow(working), s.follow(planted)
			pids := s.awaitProcess(long)
			sleep.awaitTerminal()

			lose(s, bob)
			if end := line.awaitTerminal(); end.String() != "terminal interrupted access_lost" {
				t.Errorf("the turn has ended with %s", end)
			}
			s.awaitEnd(pids)
			due := s.platform(entity.KindSession, session.Identity(s.workspaceID, planted), &sessionv1.DescribeSession{})
			s.platform(entity.KindSession, session.Identity(s.workspaceID, planted), &sessionv1.WakeSession{
				At: due.(*sessionv1.Description).GetSession().GetWakeAt(),
			})
			if end := sleep.awaitTerminal(); end.String() != "terminal interrupted access_lost" {
				t.Errorf("the turn after the sleep has ended with %s", end)
			}
			if got := s.request("GET", "/drive/planted", nil); got.status != http.StatusNotFound {
				t.Errorf("the file: %d %s", got.status, got.body)
			}

			s.send(working, "messages", fields{"text": "say Back."})
			line.awaitLine("text Back.")
			line.awaitTerminal()
		})
	}
}

// TestEndedAppStopsItsSessions takes the key, or scopes, from an app in the middle of a turn that the app has started.
func TestEndedAppStopsItsSessions(t *testing.T) {
	s := newAgentSite(t)
	for name, end := range map[string]func(app string) response{
		"fewer": func(app string) response {
			return s.request("PATCH", "/apps/"+app, fields{"apiScopes": []string{"sessions"}})
		},
		"disabled": func(app string) response { return s.request("PUT", "/apps/"+app+"/disabled", fields{"disabled": true}) },
		"removed":  func(app string) response { return s.request("DELETE", "/apps/"+app, nil) },
	} {
		key, long := s.appKey(name, "sessions", "services", "files:read", "files:write"), s.duration()
		var working string
		s.as(key, func() { working = s.startSession("$ exec sleep "+long, nil) })
		pids := s.awaitProcess(long)
		if got := end(name); got.status >= 300 {
			t.Fatalf("%s: %d %s", got.request, got.status, got.body)
		}
		if end := s.follow(working).awaitTerminal(); end.String() != "terminal interrupted access_lost" {
			t.Errorf("%s: the turn has ended with %s", name, end)
		}
		s.awaitEnd(pids)
	}
}

// addEditor makes a person an editor of the workspace.
func (s *agentSite) addEditor(userID, email string) {
	s.Helper()
	invitation := server.NewID("inv_")
	s.platform(entity.KindWorkspace, s.workspaceID, &workspacev1.Invite{
		InvitationId: invitation, Email: email, Role: workspacev1.Role_ROLE_EDITOR, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: s.userID, Email: "ada@example.org"},
	})
	s.platform(entity.KindWorkspace, s.workspaceID, &workspacev1.AcceptInvitation{
		InvitationId: invitation, Person: &workspacev1.Person{UserId: userID, Email: email},
	})
}
