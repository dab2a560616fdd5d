package http_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var errAway = entity.Errorf(entity.Unavailable, "the workspace moves")

// TestLimitedKeyIsShownAlthoughItsWorkspaceIsAway creates a key in a workspace that cannot be reached once the key is issued: the answer,
// which alone has the secret, is built from values that were read before.
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

// stubLimitedKeys makes the entities list three limited keys in the workspace acme, and describe an account.
func stubLimitedKeys(w *fakeEntities) {
	keys := make([]*userv1.ApiKey, 3)
	for i := range keys {
		keys[i] = &userv1.ApiKey{
			Id: fmt.Sprintf("key_%026d", i), Name: fmt.Sprintf("key %d", i), CreatedAt: 1,
			Limits: &userv1.KeyLimits{Capabilities: []string{"files:read"}, WorkspaceIds: []string{acme}},
		}
	}
	stub(w, func(entity.Command, *userv1.ListApiKeys) (proto.Message, error) {
		return &userv1.ApiKeyPage{Keys: keys}, nil
	})
	stub(w, func(entity.Command, *userv1.DescribePassword) (proto.Message, error) { return &userv1.Password{}, nil })
	stub(w, func(entity.Command, *userv1.ListBrowserSessions) (proto.Message, error) {
		return &userv1.BrowserSessions{}, nil
	})
	stub(w, func(entity.Command, *userv1.ListGrants) (proto.Message, error) { return &userv1.GrantPage{}, nil })
}

// TestLimitedKeysAskEachWorkspaceOnce lists several keys in the same workspace.
func TestLimitedKeysAskEachWorkspaceOnce(t *testing.T) {
	w := newFakeEntities()
	stubLimitedKeys(w)
	expect(t, request(t, w.server(t), "GET", "/v1/user/limited-keys", w.key(alice), ""), 200, `"slug":"acme"`)
	if n := w.count(&workspacev1.DescribeWorkspace{}); n != 1 {
		t.Errorf("the workspace was asked %d times", n)
	}
}

// TestAccountShowsKeysOfWorkspacesThatAreAway shows the account, where keys are revoked, while a workspace cannot be reached.
func TestAccountShowsKeysOfWorkspacesThatAreAway(t *testing.T) {
	w := newFakeEntities()
	stubLimitedKeys(w)
	stub(w, func(entity.Command, *workspacev1.DescribeWorkspace) (proto.Message, error) { return nil, errAway })
	expect(t, request(t, w.server(t), "GET", "/account", w.key(alice), ""), 200, "only in "+acme)
	form := "name=k&lasts=90&access=limited&scope=apps"
	expect(t, request(t, w.server(t), "POST", "/account/keys", w.key(alice), form+"&workspaces=incomplete", "Content-Type", "application/x-www-form-urlencoded"), 400, "Select a workspace: some of yours did not answer")
	w = newFakeEntities()
	stubLimitedKeys(w)
	expect(t, request(t, w.server(t), "GET", "/account", w.key(alice), ""), 200, "only in acme")
}

// TestAccountShowsGrantsThatAreAway shows the account, where access is revoked, while the workspaces, the grants and the keys that it names
// cannot be reached.
func TestAccountShowsGrantsThatAreAway(t *testing.T) {
	for name, away := range map[string]string{
		"the workspace": entity.KindWorkspace, "the grant": entity.KindGrant, "the key": entity.KindCredential, "none": "",
	} {
		w := newFakeEntities()
		stubLimitedKeys(w)
		stub(w, func(entity.Command, *userv1.ListGrants) (proto.Message, error) {
			return &userv1.GrantPage{Grants: []*userv1.Grant{{
				Id: "ogr_1", ClientName: "Tester", WorkspaceId: acme, WorkspaceSlug: "acme-then", WorkspaceName: "Acme then", Scopes: []string{"apps"}, CreatedAt: time.Now().UnixMilli(),
			}}}, nil
		})
		stub(w, func(c entity.Command, _ *grantv1.DescribeGrant) (proto.Message, error) {
			return &grantv1.Grant{Id: c.Identity, Code: &grantv1.Token{ExpiresAt: math.MaxInt64}}, nil
		})
		key, before := w.key(alice), w.before
		w.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if _, isOfList := c.Message.(*credentialv1.DescribeCredential); c.Kind == away && (!isOfList || strings.HasPrefix(c.Identity, "key_0000")) {
				return nil, errAway
			}
			return before(ctx, c)
		}
		got := request(t, w.server(t), "GET", "/account", key, "")
		expect(t, got, 200, "Tester in Acme")
		page := got.Body.String()
		for text, want := range map[string]bool{
			"Some details are missing": away != "", "Tester in Acme then": away == entity.KindWorkspace, "never used": away != entity.KindCredential,
		} {
			if strings.Contains(page, text) != want {
				t.Errorf("%s is away: the page has %q: %v", name, text, !want)
			}
		}
	}
}

// TestKeyWhoseSecretIsLostIsRevoked issues keys, and the answers have no secret: the entity has issued the key, but the key is not valid in
// time, or the entity's reply is lost. The key is revoked, so that no valid key remains with a secret that is lost.
func TestKeyWhoseSecretIsLostIsRevoked(t *testing.T) {
	bodies := map[string]string{"/v1/user/api-keys": `{"name":"x"}`, "/v1/user/limited-keys": `{"name":"x","capabilities":["files:read"]}`}
	for path, body := range bodies {
		for name, failures := range map[string]struct{ reply, settle error }{"not valid in time": {settle: errAway}, "reply lost": {reply: errAway}} {
			w := newFakeEntities()
			w.settle = failures.settle
			var issued, revoked string
			stub(w, func(_ entity.Command, in *userv1.IssueApiKey) (proto.Message, error) {
				issued = in.GetKeyId()
				return &userv1.ApiKey{Id: in.GetKeyId(), CreatedAt: 1}, failures.reply
			})
			stub(w, func(c entity.Command, in *userv1.RevokeApiKey) (proto.Message, error) {
				if c.Identity == alice && c.Principal.GetUserId() == alice {
					revoked = in.GetKeyId()
				}
				return nil, nil
			})
			expect(t, request(t, w.server(t), "POST", path, w.key(alice), body), 503, "unavailable")
			if issued == "" || revoked != issued {
				t.Errorf("%s, %s: the key %q was issued, %q revoked", path, name, issued, revoked)
			}
		}
	}
}
