package slug_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var requester = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"slug": {"a", &slugv1.SlugClaimed{Slug: "a", WorkspaceId: "ws_1", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.CreateWorkspace{Slug: "a", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}),
		}},
		"renaming": {"b", &slugv1.SlugClaimed{Slug: "b", WorkspaceId: "ws_1", At: 5, Rename: &slugv1.Rename{Id: "r", Principal: requester, Name: "n"}}, []entity.Reaction{{
			Command: entity.Command{
				Kind: entity.KindWorkspace, Identity: "ws_1", Principal: requester,
				Message: &workspacev1.RenameWorkspace{Slug: "b", Name: "n"},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindSlug, Identity: "b", Message: &slugv1.ReleaseSlug{WorkspaceId: "ws_1", RefusedClaimId: "r"},
			},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, slug.Kind.React(test.identity, test.event), test.want)
		})
	}
}
