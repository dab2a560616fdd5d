package http_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	"github.com/atelier-run/atelier/tests/race"
)

// crowd invites an address as often as it can store invitations, from workspaces that do not exist, by the inviters in turn.
func (s *stage) crowd(address string, inviters ...string) {
	s.Helper()
	var group errgroup.Group
	group.SetLimit(64)
	for n := range email.MaxInvitations {
		invitation := &emailv1.AddInvitation{
			InvitationId: s.newID("inv_"), WorkspaceId: s.newID("ws_"), InviterId: inviters[n%len(inviters)],
		}
		group.Go(func() error {
			_, err := s.node.Router.Ask(s.Context(), entity.Command{
				Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), Message: invitation,
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) idOf(name string) string {
	s.Helper()
	var who listedWorkspaces
	s.ask(s.node.Server, s.keys[name], "GET", "/v1/whoami", "", 200, &who)
	return who.User.ID
}

// pendingOf returns the invitations that an account lists, on all pages.
func (s *stage) pendingOf(name string) (ids []string) {
	s.Helper()
	for cursor := ""; ; {
		var found struct {
			Items      []struct{ ID string }
			NextCursor *string
		}
		s.ask(s.node.Server, s.keys[name], "GET", "/v1/user/invitations?limit=100"+cursor, "", 200, &found)
		for _, item := range found.Items {
			ids = append(ids, item.ID)
		}
		if found.NextCursor == nil {
			return ids
		}
		cursor = "&cursor=" + *found.NextCursor
	}
}

// invites invites an address to a workspace and returns the invitation's id.
func (s *stage) invites(name, slug, address string, status int) string {
	s.Helper()
	var made struct{ ID string }
	s.ask(s.node.Server, s.keys[name], "POST", "/v1/ws/"+slug+"/invites", fmt.Sprintf(`{"email":"%s"}`, address), status, &made)
	return made.ID
}

// A thousand invitations by strangers do not remove an invitation by somebody else for good: it is still there, or renewing
// it makes it acceptable again.
func TestInvitationsAreNotCrowdedOut(t *testing.T) {
	race.Skip(t, "it sends thousands of requests one after the other")
	s := newStage(t)
	for _, name := range []string{"alice", "mallory", "bob", "carol"} {
		s.person(name)
	}
	s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/workspaces", `{"slug":"acme","name":"Acme"}`, 201, nil)
	s.ask(s.node.Server, s.keys["mallory"], "POST", "/v1/workspaces", `{"slug":"lair","name":"Lair"}`, 201, nil)

	forBob := s.invites("alice", "acme", "bob@example.com", 201)
	s.crowd("bob@example.com", s.idOf("mallory"))
	stranger := s.invites("mallory", "lair", "bob@example.com", 201)
	if found := s.pendingOf("bob"); fmt.Sprint(found) != fmt.Sprint([]string{forBob, stranger}) {
		t.Errorf("bob finds %v, want %s and %s", found, forBob, stranger)
	}
	s.ask(s.node.Server, s.keys["bob"], "POST", "/v1/user/invitations/"+forBob+"/accept", "", 200, nil)

	forCarol := s.invites("alice", "acme", "carol@example.com", 201)
	strangers := make([]string, email.MaxInvitations)
	for n := range strangers {
		strangers[n] = s.newID("usr_")
	}
	s.crowd("carol@example.com", strangers...)
	if found := s.pendingOf("carol"); len(found) != 0 {
		t.Fatalf("carol finds %v before it is renewed", found)
	}
	if again := s.invites("alice", "acme", "carol@example.com", 200); again != forCarol {
		t.Fatalf("renewed as %s, want %s", again, forCarol)
	}
	if found := s.pendingOf("carol"); fmt.Sprint(found) != fmt.Sprint([]string{forCarol}) {
		t.Errorf("carol finds %v, want %s", found, forCarol)
	}
	s.ask(s.node.Server, s.keys["carol"], "POST", "/v1/user/invitations/"+forCarol+"/accept", "", 200, nil)
}
