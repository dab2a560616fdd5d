package user_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/subject"
	"github.com/atelier-run/atelier/entity/user"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const issuer = "https://id.example.com"

// sessionWithIdentity returns a command that starts a session for a subject of an identity provider.
func sessionWithIdentity(n int, issuer, subject string) *userv1.StartBrowserSession {
	c := session(n)
	c.Identity = &userv1.LinkedIdentity{Issuer: issuer, Subject: subject}
	return c
}

// linking returns a command that links a subject of an identity provider.
func linking(issuer, subject string) *userv1.LinkIdentity {
	return &userv1.LinkIdentity{Identity: &userv1.LinkedIdentity{Issuer: issuer, Subject: subject}}
}

func TestFirstSubjectIsLinked(t *testing.T) {
	call := callBy(entity.Platform())
	if _, _, err := execute(t, call, created(t), sessionWithIdentity(1, issuer, "one")); entitytest.Code(err) != entity.Forbidden {
		t.Errorf("a session of an identity that is not linked: %v", err)
	}
	s, events, err := execute(t, call, created(t), linking(issuer, "one"))
	want := &userv1.IdentityLinked{Identity: &userv1.LinkedIdentity{Issuer: issuer, Subject: "one", LinkedAt: call.At()}}
	if err != nil || len(events) != 1 || !proto.Equal(events[0], want) {
		t.Fatalf("%v, %v", events, err)
	}
	s = must(t, call, s, sessionWithIdentity(1, issuer, "one"))
	s, events, err = execute(t, call, s, linking(issuer, "one"))
	if err != nil || len(events) != 0 || len(s.GetBrowserSessions()) != 1 {
		t.Errorf("the same again: %v, %v", events, err)
	}
	for _, other := range []string{"two", "One", "one "} {
		for _, c := range []userv1.Command{linking(issuer, other), sessionWithIdentity(3, issuer, other)} {
			if _, _, err := execute(t, call, s, c); entitytest.Code(err) != entity.Forbidden {
				t.Errorf("%q was authorized: %v", other, err)
			}
		}
	}
	s = must(t, call, must(t, call, s, linking(issuer+"/", "two")), sessionWithIdentity(3, issuer+"/", "two"))
	if len(s.GetLinkedIdentities()) != 2 {
		t.Errorf("another issuer has subjects of its own: %v", s.GetLinkedIdentities())
	}
	must(t, call, s, session(4)) // a sign-in with a password has no identity
}

func TestUnlinkIdentities(t *testing.T) {
	call := callBy(entity.Platform())
	s := must(t, call, must(t, call, created(t), linking(issuer, "one")), session(1))
	s = must(t, call, must(t, call, s, linking(issuer+"/", "one")), session(2))
	if _, events, err := execute(t, call, s, &userv1.UnlinkIdentities{Identity: linking(issuer, "two").GetIdentity()}); err != nil || len(events) != 0 {
		t.Errorf("another subject was unlinked: %v, %v", events, err)
	}
	only, events, err := execute(t, call, s, &userv1.UnlinkIdentities{Identity: linking(issuer, "one").GetIdentity()})
	if err != nil || len(events) != 1 || len(only.GetBrowserSessions()) != 0 || len(only.GetLinkedIdentities()) != 1 || only.GetLinkedIdentities()[issuer] != nil {
		t.Fatalf("%v, %v: %v", events, err, only)
	}
	s = must(t, call, s, &userv1.Disable{})
	s, events, err = execute(t, call, s, &userv1.UnlinkIdentities{})
	if err != nil || len(events) != 1 || fmt.Sprint(events[0].(*userv1.IdentitiesUnlinked).GetEndedSessionIds()) != "[bse_1 bse_2]" {
		t.Fatalf("%v, %v", events, err)
	}
	if reactions := user.React(alice, events[0]); len(reactions) != 4 || reactions[2].Identity != subject.Key(issuer, "one") ||
		!proto.Equal(reactions[2].Message, &subjectv1.ReleaseSubject{UserId: alice}) {
		t.Errorf("%v: the subjects become free", reactions)
	}
	if len(s.GetLinkedIdentities()) != 0 || len(s.GetBrowserSessions()) != 0 {
		t.Errorf("%v", s)
	}
	if _, _, err := execute(t, call, s, linking(issuer, "two")); entitytest.Code(err) != entity.Forbidden || len(s.GetLinkedIdentities()) != 0 {
		t.Errorf("a disabled person's address is linked: %v", err)
	}
	s = must(t, call, must(t, call, s, &userv1.Enable{}), linking(issuer, "two"))
	if _, _, err := execute(t, call, s, linking(issuer, "one")); entitytest.Code(err) != entity.Forbidden {
		t.Errorf("whom the operator unlinked: %v", err)
	}
	must(t, call, must(t, call, s, &userv1.Disable{}), linking(issuer, "two")) // a repetition, which must not release the subject
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
		_, _, err := execute(t, callBy(entity.Platform()), created(t), linking(test.issuer, test.subject))
		if test.want == "" && err != nil || test.want != "" && (entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIdentityLimit(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	for n := range user.MaxIdentities {
		s = must(t, call, s, linking(fmt.Sprint(issuer, n), "one"))
	}
	for _, c := range []userv1.Command{linking(issuer, "one"), sessionWithIdentity(9, issuer, "one")} {
		if _, _, err := execute(t, call, s, c); entitytest.Code(err) != entity.Forbidden {
			t.Errorf("one more: %v", err)
		}
	}
	must(t, call, s, sessionWithIdentity(9, issuer+"0", "one"))
}

// TestIdentityRows checks that the operators' log has the issuer of each linked identity, but not the subject.
func TestIdentityRows(t *testing.T) {
	call := callBy(entity.Platform())
	linked, events, _ := execute(t, call, created(t), linking(issuer, "subject-1"))
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
