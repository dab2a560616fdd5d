package email_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/entitytest"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
)

const addressed = "alice@example.com"

// invitationID returns the id of the invitation with a number.
func invitationID(n int) string { return fmt.Sprintf("inv_%05d", n) }

// addInvitation adds the invitation with a number. It returns the next state and the number of events.
func addInvitation(t rapid.TB, s *emailv1.Email, n int, workspaceID, inviterID string) (*emailv1.Email, int) {
	t.Helper()
	next, events, err := execute(t, platformCall(addressed), s, &emailv1.AddInvitation{
		InvitationId: invitationID(n), WorkspaceId: workspaceID, InviterId: inviterID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return next, len(events)
}

// fullState returns a state with MaxInvitations invitations, numbered from a number on, by the inviters in turn.
func fullState(from int, inviters ...string) *emailv1.Email {
	s := &emailv1.Email{Address: addressed, Invitations: map[string]string{}, Inviters: map[string]string{}}
	for n := range email.MaxInvitations {
		s.Invitations[invitationID(from+n)], s.Inviters[invitationID(from+n)] = "ws_1", inviters[n%len(inviters)]
	}
	return s
}

func has(s *emailv1.Email, n int) bool { return s.GetInvitations()[invitationID(n)] != "" }

// TestBusiestInviterLosesInvitations checks that one inviter evicts only the oldest of its own invitations, from however
// many workspaces it invites.
func TestBusiestInviterLosesInvitations(t *testing.T) {
	s, _ := addInvitation(t, email.Zero(addressed), 1, "ws_friend", "usr_friend")
	for n := range 2*email.MaxInvitations + 1 {
		s = email.Evolve(s, &emailv1.InvitationAdded{
			InvitationId: invitationID(10 + n), WorkspaceId: fmt.Sprintf("ws_%d", n%7), InviterId: "usr_stranger",
		})
	}
	if !has(s, 1) || s.GetInviters()[invitationID(1)] != "usr_friend" {
		t.Error("the invitation of another inviter was evicted")
	}
	if len(s.GetInvitations()) != email.MaxInvitations || len(s.GetInviters()) != email.MaxInvitations {
		t.Errorf("%d invitations, %d inviters", len(s.GetInvitations()), len(s.GetInviters()))
	}
	if last := 10 + 2*email.MaxInvitations; !has(s, last) || !has(s, last-email.MaxInvitations+2) || has(s, last-email.MaxInvitations+1) {
		t.Error("the invitations of the busiest inviter were not evicted in order")
	}
}

func TestInvitationToEvict(t *testing.T) {
	for name, test := range map[string]struct {
		inviters            []string
		n                   int
		inviter             string
		evicted, notEvicted int
	}{
		"own oldest":                      {[]string{"usr_1"}, 5000, "usr_1", 10, 11},
		"oldest of the busiest inviter":   {[]string{"usr_1"}, 5000, "usr_2", 10, 5000},
		"oldest of two equal inviters":    {[]string{"usr_1", "usr_2"}, 5000, "usr_3", 10, 11},
		"inviter with one more":           {[]string{"usr_1", "usr_2"}, 5000, "usr_2", 11, 10},
		"not the added one":               {[]string{"usr_1"}, 1, "usr_1", 10, 1},
		"unknown inviters of a workspace": {[]string{"", "usr_2", ""}, 5000, "usr_2", 10, 11},
		"unknown inviter with fewer":      {[]string{"", "usr_2", "usr_2"}, 5000, "", 11, 10},
	} {
		s, events := addInvitation(t, fullState(10, test.inviters...), test.n, "ws_1", test.inviter)
		if events != 1 || !has(s, test.n) || has(s, test.evicted) || !has(s, test.notEvicted) || len(s.GetInvitations()) != email.MaxInvitations {
			t.Errorf("%s: %d events, %d invitations", name, events, len(s.GetInvitations()))
		}
	}
}

// TestRepeatedInvitation checks that a repeated command has no effect, and that a renewed invitation replaces the stored
// one or is added again if it was evicted.
func TestRepeatedInvitation(t *testing.T) {
	s := fullState(10, "usr_1", "usr_2")
	if _, events := addInvitation(t, s, 10, "ws_1", "usr_1"); events != 0 {
		t.Error("a repeated invitation has events")
	}
	s, events := addInvitation(t, s, 10, "ws_1", "usr_3")
	if events != 1 || s.GetInviters()[invitationID(10)] != "usr_3" || len(s.GetInvitations()) != email.MaxInvitations {
		t.Errorf("renewed by another inviter: %d events, inviter %s", events, s.GetInviters()[invitationID(10)])
	}
	s, _ = addInvitation(t, s, 5000, "ws_1", "usr_2") // has one more than usr_1 now
	if has(s, 11) {
		t.Fatal("no invitation of usr_2 was evicted")
	}
	if s, events = addInvitation(t, s, 11, "ws_1", "usr_2"); events != 1 || !has(s, 11) || has(s, 13) || !has(s, 10) {
		t.Error("an evicted invitation does not replace the next one of its inviter")
	}
}

// TestOnlyBusiestInviterIsEvicted checks the choice of invitationToEvict against a count of all invitations.
func TestOnlyBusiestInviterIsEvicted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inviters := rapid.SampledFrom([]string{"usr_1", "usr_1", "usr_1", "usr_2", "usr_3", ""})
		s := fullState(0, rapid.SliceOfN(inviters, 1, 50).Draw(t, "inviters")...)
		n, inviter := rapid.SampledFrom([]int{-1, email.MaxInvitations}).Draw(t, "number"), inviters.Draw(t, "newcomer")
		next, _ := addInvitation(t, s, n, "ws_1", inviter)
		count := map[string]int{inviter: 1}
		for _, by := range s.GetInviters() {
			count[by]++
		}
		for id, by := range s.GetInviters() {
			if next.GetInvitations()[id] == "" && count[by] != slices.Max(slices.Collect(maps.Values(count))) {
				t.Fatalf("%s of %q was evicted: %v", id, by, count)
			}
		}
	})
}

func TestAddInvitationIsRefused(t *testing.T) {
	s, _ := addInvitation(t, email.Zero(addressed), 1, "ws_1", "usr_1")
	s, _, err := execute(t, platformCall(addressed), s, &emailv1.ClaimEmail{UserId: "usr_1"})
	if err != nil || !has(s, 1) || s.GetInviters()[invitationID(1)] != "usr_1" || s.GetUserId() != "usr_1" {
		t.Fatalf("claimed as %v: %v", s, err)
	}
	long := strings.Repeat("a", 129)
	for name, c := range map[string]*emailv1.AddInvitation{
		"invitation": {WorkspaceId: "ws_1"}, "workspace": {InvitationId: "inv_1"},
		"long": {InvitationId: long, WorkspaceId: "ws_1"}, "inviter": {InvitationId: "inv_1", WorkspaceId: "ws_1", InviterId: long},
	} {
		if _, _, err := execute(t, platformCall(addressed), s, c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
