package subject_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/subject"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const issuer = "https://id.example.com"

var (
	noon  = time.UnixMilli(1_800_000_000_000)
	call  = entity.Call{Now: noon, Identity: subject.Key(issuer, "one"), Principal: entity.Platform()}
	rules = entitytest.Rules[*subjectv1.Subject, subjectv1.Command, subjectv1.Event]{Decide: subject.Rules.AuthorizeAndDecide, Evolve: subject.Evolve}
)

func claim(userID string, linkedAt int64) *subjectv1.ClaimSubject {
	return &subjectv1.ClaimSubject{Issuer: issuer, Subject: "one", UserId: userID, LinkedAt: linkedAt}
}

func TestClaimSubject(t *testing.T) {
	s, events, err := rules.Execute(t, call, subject.Zero(call.Identity), claim("usr_a", 0))
	if err != nil || len(events) != 1 || s.GetUserId() != "usr_a" || s.GetLinkedAt() != call.At() {
		t.Fatalf("%v, %v: %v", events, err, s)
	}
	linked := &userv1.LinkedIdentity{Issuer: issuer, Subject: "one", LinkedAt: call.At()}
	follows := subject.React(call.Identity, events[0])
	if len(follows) != 1 || follows[0].Identity != "usr_a" || !proto.Equal(follows[0].Message, &userv1.LinkIdentity{Identity: linked}) ||
		follows[0].Otherwise.Identity != call.Identity || !proto.Equal(follows[0].Otherwise.Message, &subjectv1.ReleaseSubject{UserId: "usr_a"}) {
		t.Errorf("%v", follows)
	}
	for _, late := range []int64{0, call.At(), call.At() + 1} {
		if _, _, err := rules.Execute(t, call, s, claim("usr_b", late)); entitytest.Code(err) != entity.Forbidden {
			t.Errorf("%d: %v: a subject belongs to one user", late, err)
		}
	}
	same, _, err := rules.Execute(t, call, s, &subjectv1.ReleaseSubject{UserId: "usr_b"})
	if err != nil || same.GetUserId() != "usr_a" {
		t.Errorf("%v, %v: another user releases it", same, err)
	}
	free, _, err := rules.Execute(t, call, s, &subjectv1.ReleaseSubject{UserId: "usr_a"})
	if err != nil || free.GetUserId() != "" {
		t.Errorf("%v, %v", free, err)
	}
	if s, _, err = rules.Execute(t, call, free, claim("usr_b", 0)); err != nil || s.GetUserId() != "usr_b" {
		t.Errorf("%v, %v", s, err)
	}
}

// Of two users that were linked before subjects were claimed, the earlier link wins in whatever order the claims arrive.
func TestClaimSubject_earlierLink(t *testing.T) {
	s, _, err := rules.Execute(t, call, subject.Zero(call.Identity), claim("usr_late", 20))
	if err != nil {
		t.Fatal(err)
	}
	s, events, err := rules.Execute(t, call, s, claim("usr_early", 10))
	if err != nil || len(events) != 1 || s.GetUserId() != "usr_early" || s.GetLinkedAt() != 10 {
		t.Fatalf("%v, %v: %v", events, err, s)
	}
	follows := subject.React(call.Identity, events[0])
	unlink, is := follows[len(follows)-1].Message.(*userv1.UnlinkIdentities)
	if len(follows) != 2 || follows[1].Identity != "usr_late" || !is || unlink.GetIdentity().GetSubject() != "one" {
		t.Errorf("%v", follows)
	}
	if _, _, err := rules.Execute(t, call, s, claim("usr_late", 20)); entitytest.Code(err) != entity.Forbidden {
		t.Error(err)
	}
}

func TestClaimSubject_validation(t *testing.T) {
	for name, c := range map[string]*subjectv1.ClaimSubject{
		"another subject": {Issuer: issuer, Subject: "two", UserId: "usr_a"},
		"no subject":      {Issuer: issuer, UserId: "usr_a"},
		"long subject":    {Issuer: issuer, Subject: strings.Repeat("s", 256), UserId: "usr_a"},
		"no issuer":       {Subject: "one", UserId: "usr_a"},
		"no user":         {Issuer: issuer, Subject: "one"},
	} {
		if _, _, err := rules.Execute(t, call, subject.Zero(call.Identity), c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if subject.Key("a", "bc") == subject.Key("ab", "c") {
		t.Error("the parts of a key run together")
	}
}

func TestSubjectLaws(t *testing.T) {
	users := rapid.SampledFrom([]string{"usr_a", "usr_b", ""})
	rapid.Check(t, func(t *rapid.T) {
		s := subject.Zero(call.Identity)
		for range rapid.IntRange(1, 12).Draw(t, "commands") {
			var c subjectv1.Command = &subjectv1.ResolveSubject{}
			switch rapid.IntRange(0, 2).Draw(t, "command") {
			case 0:
				c = claim(users.Draw(t, "user"), rapid.Int64Range(0, 3).Draw(t, "linked at"))
			case 1:
				c = &subjectv1.ReleaseSubject{UserId: users.Draw(t, "user")}
			}
			next, events, err := rules.Execute(t, call, s, c)
			if err != nil {
				continue
			}
			if owner := s.GetUserId(); owner != "" && next.GetUserId() != owner && next.GetUserId() != "" && events[0].(*subjectv1.SubjectClaimed).GetReplacedUserId() != owner {
				t.Fatalf("%v replaces %v without a word", next, s)
			}
			s = next
		}
	})
}
