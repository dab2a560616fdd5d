package grant_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/grant"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"family revoked": {"g", &grantv1.Revoked{UserId: "usr_1", Reason: "refresh_replayed"}, []entity.Reaction{
			entity.Send(entity.KindUser, "usr_1", &userv1.RevokeGrant{GrantId: "g"}),
		}},
		"family revoked before it was opened": {"g", &grantv1.Revoked{Reason: "refresh_replayed"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, grant.Kind.React(test.identity, test.event), test.want)
		})
	}
}
