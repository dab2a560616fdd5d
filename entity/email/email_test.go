package email_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/entitytest"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var noon = time.UnixMilli(1_800_000_000_000)

func platformCall(identity string) entity.Call {
	return entity.Call{Now: noon, Identity: identity, Principal: entity.Platform()}
}

var rules = entitytest.Rules[*emailv1.Email, emailv1.Command, emailv1.Event]{Decide: email.Rules.AuthorizeAndDecide, Evolve: email.Evolve}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(
	t rapid.TB, call entity.Call, s *emailv1.Email, c emailv1.Command,
) (*emailv1.Email, []emailv1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	if reply := email.Reply(call, s, c, events); !proto.Equal(reply, s) {
		t.Fatalf("%T: reply %v, state %v", c, reply, s)
	}
	return s, events, nil
}

func commands() *rapid.Generator[emailv1.Command] {
	return rapid.Custom(func(t *rapid.T) emailv1.Command {
		switch rapid.IntRange(0, 3).Draw(t, "command") {
		case 0:
			return &emailv1.ResolveEmail{}
		case 1:
			return &emailv1.AddInvitation{
				InvitationId: rapid.SampledFrom([]string{"inv_1", "inv_2", ""}).Draw(t, "invitation"),
				WorkspaceId:  rapid.SampledFrom([]string{"ws_1", "ws_2", ""}).Draw(t, "workspace"),
				InviterId:    rapid.SampledFrom([]string{"usr_1", "usr_2", ""}).Draw(t, "inviter"),
			}
		}
		return &emailv1.ClaimEmail{
			UserId: rapid.SampledFrom([]string{"usr_1", "usr_2", "usr_3", ""}).Draw(t, "user"),
			Name:   rapid.StringN(0, 3, -1).Draw(t, "name"),
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		identity := rapid.SampledFrom([]string{"a@example.com", "b@example.com", "A@example.com", "a"}).Draw(t, "address")
		s := email.Zero(identity)
		var log []emailv1.Event
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			call := platformCall(identity)
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			next, events, err := execute(t, call, s, commands().Draw(t, "command"))
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			if s.GetUserId() != "" && next.GetUserId() != s.GetUserId() {
				t.Fatalf("%s changed its user from %s to %s", identity, s.GetUserId(), next.GetUserId())
			}
			s, log = next, append(log, events...)
		}
		if (s.GetUserId() != "" || len(s.GetInvitations()) > 0) && email.Check(identity) != nil {
			t.Fatalf("%s was claimed", identity)
		}
		replayed := email.Zero(identity)
		for _, e := range log {
			replayed = email.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func TestClaim(t *testing.T) {
	const address = "alice@example.com"
	claimed, _, err := execute(t, platformCall(address), email.Zero(address), &emailv1.ClaimEmail{UserId: "usr_1", Name: "Alice"})
	if err != nil || claimed.GetUserId() != "usr_1" || claimed.GetAddress() != address {
		t.Fatalf("%v, %v", claimed, err)
	}
	for name, test := range map[string]struct {
		state   *emailv1.Email
		command *emailv1.ClaimEmail
		want    entity.Code
	}{
		"repeated":   {claimed, &emailv1.ClaimEmail{UserId: "usr_1"}, ""},
		"other user": {claimed, &emailv1.ClaimEmail{UserId: "usr_2"}, entity.EmailTaken},
		"no user":    {claimed, &emailv1.ClaimEmail{}, entity.InvalidRequest},
		"no name":    {email.Zero(address), &emailv1.ClaimEmail{UserId: "usr_1"}, ""},
		"long name":  {email.Zero(address), &emailv1.ClaimEmail{UserId: "usr_1", Name: strings.Repeat("é", 201)}, entity.InvalidRequest},
		"no address": {email.Zero("alice"), &emailv1.ClaimEmail{UserId: "usr_1"}, entity.InvalidRequest},
	} {
		_, _, err := execute(t, platformCall(test.state.GetAddress()), test.state, test.command)
		if entitytest.Code(err) != test.want {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"claim": {"a@example.com", &emailv1.EmailClaimed{Address: "a@example.com", UserId: "usr_1", Name: "n"}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.CreateUser{Email: "a@example.com", Name: "n"}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, email.Kind.React(test.identity, test.event), test.want)
		})
	}
}
