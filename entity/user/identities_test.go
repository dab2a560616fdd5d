package user_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const issuer = "https://id.example.com"

// sessionWithIdentity returns a command that starts a session for a subject of an identity provider.
func sessionWithIdentity(n int, issuer, subject string) *userv1.StartBrowserSession {
	c := session(n)
	c.Identity = &userv1.LinkedIdentity{Issuer: issuer, Subject: subject}
	return c
}

func TestFirstSubjectIsLinked(t *testing.T) {
	call := callBy(entity.Platform())
	s, events, err := execute(t, call, created(t), sessionWithIdentity(1, issuer, "one"))
	want := &userv1.IdentityLinked{Identity: &userv1.LinkedIdentity{Issuer: issuer, Subject: "one", LinkedAt: call.At()}}
	if err != nil || len(events) != 2 || !proto.Equal(events[0], want) || len(s.GetBrowserSessions()) != 1 {
		t.Fatalf("%v, %v: the link comes first, and the session with it", events, err)
	}
	s, events, err = execute(t, call, s, sessionWithIdentity(2, issuer, "one"))
	if err != nil || len(events) != 1 || len(s.GetBrowserSessions()) != 2 {
		t.Errorf("the same again: %v, %v", events, err)
	}
	for _, other := range []string{"two", "One", "one "} {
		if _, _, err := execute(t, call, s, sessionWithIdentity(3, issuer, other)); entitytest.Code(err) != entity.Forbidden {
			t.Errorf("%q was authorized: %v", other, err)
		}
	}
	s = must(t, call, s, sessionWithIdentity(3, issuer+"/", "two"))
	if len(s.GetLinkedIdentities()) != 2 {
		t.Errorf("another issuer has subjects of its own: %v", s.GetLinkedIdentities())
	}
	must(t, call, s, session(4)) // a sign-in with a password has no identity
}

func TestUnlinkIdentities(t *testing.T) {
	call := callBy(entity.Platform())
	s := must(t, call, must(t, call, created(t), sessionWithIdentity(1, issuer, "one")), session(2))
	s = must(t, call, s, &userv1.Disable{})
	s, events, err := execute(t, call, s, &userv1.UnlinkIdentities{})
	if err != nil || len(events) != 1 || fmt.Sprint(events[0].(*userv1.IdentitiesUnlinked).GetEndedSessionIds()) != "[bse_1 bse_2]" {
		t.Fatalf("%v, %v", events, err)
	}
	if len(s.GetLinkedIdentities()) != 0 || len(s.GetBrowserSessions()) != 0 {
		t.Errorf("%v", s)
	}
	if _, _, err := execute(t, call, s, sessionWithIdentity(3, issuer, "two")); entitytest.Code(err) != entity.Forbidden || len(s.GetLinkedIdentities()) != 0 {
		t.Errorf("a disabled person's address is linked: %v", err)
	}
	s = must(t, call, must(t, call, s, &userv1.Enable{}), sessionWithIdentity(3, issuer, "two"))
	if _, _, err := execute(t, call, s, sessionWithIdentity(4, issuer, "one")); entitytest.Code(err) != entity.Forbidden {
		t.Errorf("whom the operator unlinked: %v", err)
	}
	alone := must(t, call, created(t), session(1))
	if alone = must(t, call, alone, &userv1.UnlinkIdentities{}); len(alone.GetBrowserSessions()) != 0 {
		t.Error("a session outlives the command where nothing was linked")
	}
}

func TestIdentityValidation(t *testing.T) {
	for name, test := range map[string]struct{ issuer, subject, want string }{
		"longest":        {strings.Repeat("i", 512), strings.Repeat("s", 255), ""},
		"a name":         {issuer, "cn=Ada Lovelace,o=Example", ""},
		"long issuer":    {strings.Repeat("i", 513), "s", "issuer"},
		"no issuer":      {"", "s", "issuer"},
		"odd issuer":     {"https://id.example.com\n", "s", "issuer"},
		"long subject":   {issuer, strings.Repeat("s", 256), "subject"},
		"no subject":     {issuer, "", "subject"},
		"odd subject":    {issuer, "a\x00", "subject"},
		"no ASCII":       {issuer, "é", "subject"},
		"no UTF-8":       {issuer, "\xff", "subject"},
		"no text at all": {"", "", "issuer"},
	} {
		_, _, err := execute(t, callBy(entity.Platform()), created(t), sessionWithIdentity(1, test.issuer, test.subject))
		if test.want == "" && err != nil || test.want != "" && (entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIdentityLimit(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	for n := range user.MaxIdentities {
		s = must(t, call, s, sessionWithIdentity(n, fmt.Sprint(issuer, n), "one"))
	}
	if _, _, err := execute(t, call, s, sessionWithIdentity(9, issuer, "one")); entitytest.Code(err) != entity.Forbidden {
		t.Errorf("one more: %v", err)
	}
	must(t, call, s, sessionWithIdentity(9, issuer+"0", "one"))
}

// TestIdentityRows checks that the operators' log has the issuer of each linked identity, but not the subject.
func TestIdentityRows(t *testing.T) {
	call := callBy(entity.Platform())
	linked, events, _ := execute(t, call, created(t), sessionWithIdentity(1, issuer, "subject-1"))
	_, more, _ := execute(t, call, linked, &userv1.UnlinkIdentities{})
	rows := user.Rows(call, linked, linked, nil, append(events, more...))
	if len(rows) != 2 || rows[0].List != audit.List || rows[1].List != audit.List {
		t.Fatalf("%v", rows)
	}
	first, second := rows[0].Message.(*auditv1.Event), rows[1].Message.(*auditv1.Event)
	if first.GetEvent() != "user.identity_linked" || first.GetProvenance().GetSource() != issuer ||
		second.GetEvent() != "user.identities_unlinked" || second.GetProvenance().GetCanonicalEmail() != "alice@example.com" ||
		strings.Contains(fmt.Sprint(first), "subject-1") {
		t.Errorf("%v, %v", first, second)
	}
}
