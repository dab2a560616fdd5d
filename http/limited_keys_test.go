package http_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var errAway = entity.Errorf(entity.Unavailable, "the workspace moves")

// TestLimitedKeyIsShownAlthoughItsWorkspaceIsAway creates a key in a workspace that cannot be reached once the key is issued: the answer, which
// alone has the secret, is built from what was known before.
func TestLimitedKeyIsShownAlthoughItsWorkspaceIsAway(t *testing.T) {
	w := newFakeEntities()
	isIssued := false
	stub(w, func(_ entity.Command, in *userv1.IssueApiKey) (proto.Message, error) {
		isIssued = true
		return &userv1.ApiKey{Id: in.GetKeyId(), Name: in.GetName(), SecretSha256: in.GetSecretSha256(), CreatedAt: 1, Limits: in.GetLimits()}, nil
	})
	stub(w, func(entity.Command, *workspacev1.DescribeWorkspace) (proto.Message, error) {
		if isIssued {
			return nil, errAway
		}
		return nil, nil
	})
	got := request(t, w.server(t), "POST", "/v1/user/limited-keys", w.key(alice), `{"name":"x","capabilities":["files:read"],"workspaces":["acme"]}`)
	expect(t, got, 201, `"workspaces":[{"id":"`+acme+`","slug":"acme","name":"Acme"}]`)
}
