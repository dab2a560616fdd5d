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

func numbered(n int) string { return fmt.Sprintf("inv_%05d", n) }

// added is the state after an invitation with a number, and how many events that were.
func added(t rapid.TB, s *emailv1.Email, n int, workspaceID, inviterID string) (*emailv1.Email, int) {
	t.Helper()
	next, events, err := ask(t, platform(addressed), s, &emailv1.AddInvitation{
		InvitationId: numbered(n), WorkspaceId: workspaceID, InviterId: inviterID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return next, len(events)
}

// fullOf are as many invitations as are kept, from a number on, by inviters in turn.
func fullOf(from int, inviters ...string) *emailv1.Email {
	s := &emailv1.Email{Address: addressed, Invitations: map[string]string{}, Inviters: map[string]string{}}
	for n := range email.MaxInvitations {
		s.Invitations[numbered(from+n)], s.Inviters[numbered(from+n)] = "ws_1", inviters[n%len(inviters)]
	}
	return s
}

func has(s *emailv1.Email, n int) bool { return s.GetInvitations()[numbered(n)] != "" }

// However often a stranger invites, from however many workspaces, it is theirs that go, and oldest first.
func TestNobodyCrowdsOutAnother(t *testing.T) {
	s, _ := added(t, email.Zero(addressed), 1, "ws_friend", "usr_friend")
	for n := range 2*email.MaxInvitations + 1 {
		s = email.Evolve(s, &emailv1.InvitationAdded{
			InvitationId: numbered(10 + n), WorkspaceId: fmt.Sprintf("ws_%d", n%7), InviterId: "usr_stranger",
		})
	}
	if !has(s, 1) || s.GetInviters()[numbered(1)] != "usr_friend" {
		t.Error("the friend's is gone")
	}
	if len(s.GetInvitations()) != email.MaxInvitations || len(s.GetInviters()) != email.MaxInvitations {
		t.Errorf("%d invitations, %d inviters", len(s.GetInvitations()), len(s.GetInviters()))
	}
	if last := 10 + 2*email.MaxInvitations; !has(s, last) || !has(s, last-email.MaxInvitations+2) || has(s, last-email.MaxInvitations+1) {
		t.Error("the stranger's went in another order")
	}
}

func TestWhoseInvitationGoes(t *testing.T) {
	for name, test := range map[string]struct {
		inviters  []string
		n         int
		inviter   string
		gone, not int
	}{
		"the newcomer's own":            {[]string{"usr_1"}, 5000, "usr_1", 10, 11},
		"of whoever has most":           {[]string{"usr_1"}, 5000, "usr_2", 10, 5000},
		"of two alike the oldest":       {[]string{"usr_1", "usr_2"}, 5000, "usr_3", 10, 11},
		"of who has one more":           {[]string{"usr_1", "usr_2"}, 5000, "usr_2", 11, 10},
		"never the one just added":      {[]string{"usr_1"}, 1, "usr_1", 10, 1},
		"by nobody: of a workspace":     {[]string{"", "usr_2", ""}, 5000, "usr_2", 10, 11},
		"by nobody: never of who fewer": {[]string{"", "usr_2", "usr_2"}, 5000, "", 11, 10},
	} {
		s, events := added(t, fullOf(10, test.inviters...), test.n, "ws_1", test.inviter)
		if events != 1 || !has(s, test.n) || has(s, test.gone) || !has(s, test.not) || len(s.GetInvitations()) != email.MaxInvitations {
			t.Errorf("%s: %d events, %d invitations", name, events, len(s.GetInvitations()))
		}
	}
}

// A renewal, and a command that is repeated after a crash, find what is kept, or put it back.
func TestAnInvitationIsAddedAgain(t *testing.T) {
	s := fullOf(10, "usr_1", "usr_2")
	if _, events := added(t, s, 10, "ws_1", "usr_1"); events != 0 {
		t.Error("the same again is something new")
	}
	s, events := added(t, s, 10, "ws_1", "usr_3")
	if events != 1 || s.GetInviters()[numbered(10)] != "usr_3" || len(s.GetInvitations()) != email.MaxInvitations {
		t.Errorf("renewed by another: %d events, by %s", events, s.GetInviters()[numbered(10)])
	}
	s, _ = added(t, s, 5000, "ws_1", "usr_2") // who has one more than usr_1
	if has(s, 11) {
		t.Fatal("none of usr_2 went")
	}
	if s, events = added(t, s, 11, "ws_1", "usr_2"); events != 1 || !has(s, 11) || has(s, 13) || !has(s, 10) {
		t.Error("what was dropped does not come back in place of the inviter's next")
	}
}

// Whoever has fewer than their share of the room loses nothing to who has more.
func TestOneThatGoesIsOfWhoHasMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inviters := rapid.SampledFrom([]string{"usr_1", "usr_1", "usr_1", "usr_2", "usr_3", ""})
		s := fullOf(0, rapid.SliceOfN(inviters, 1, 50).Draw(t, "inviters")...)
		n, inviter := rapid.SampledFrom([]int{-1, email.MaxInvitations}).Draw(t, "number"), inviters.Draw(t, "newcomer")
		next, _ := added(t, s, n, "ws_1", inviter)
		count := map[string]int{inviter: 1}
		for _, by := range s.GetInviters() {
			count[by]++
		}
		for id, by := range s.GetInviters() {
			if next.GetInvitations()[id] == "" && count[by] != slices.Max(slices.Collect(maps.Values(count))) {
				t.Fatalf("%s of %q is gone: %v", id, by, count)
			}
		}
	})
}

func TestAddInvitationIsRefused(t *testing.T) {
	s, _ := added(t, email.Zero(addressed), 1, "ws_1", "usr_1")
	s, _, err := ask(t, platform(addressed), s, &emailv1.ClaimEmail{UserId: "usr_1"})
	if err != nil || !has(s, 1) || s.GetInviters()[numbered(1)] != "usr_1" || s.GetUserId() != "usr_1" {
		t.Fatalf("claimed as %v: %v", s, err)
	}
	long := strings.Repeat("a", 129)
	for name, c := range map[string]*emailv1.AddInvitation{
		"invitation": {WorkspaceId: "ws_1"}, "workspace": {InvitationId: "inv_1"},
		"long": {InvitationId: long, WorkspaceId: "ws_1"}, "inviter": {InvitationId: "inv_1", WorkspaceId: "ws_1", InviterId: long},
	} {
		if _, _, err := ask(t, platform(addressed), s, c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
