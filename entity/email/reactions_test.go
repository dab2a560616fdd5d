package email_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/entitytest"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

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
