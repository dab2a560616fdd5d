package http_test

import (
	"context"
	"net/url"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// newAppServer returns a server without an edge that has the app shop, and a key of a member.
func newAppServer(t *testing.T, edit func(*http.Options)) (*http.Server, string) {
	w := newFakeEntities()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch c.Message.(type) {
		case *workspacev1.FindApp:
			return &workspacev1.Anchor{App: &workspacev1.App{Id: "app_01j00000000000000000000001", Slug: "shop"}}, nil
		case *appv1.DescribeApp:
			return &appv1.Description{App: &appv1.App{
				Id: "app_01j00000000000000000000001", WorkspaceId: acme, AnchorId: "anc_01j00000000000000000000001", Path: "shop", Slug: "shop",
				FolderState: appv1.FolderState_FOLDER_STATE_ACTIVE, Visibility: appv1.Visibility_VISIBILITY_FOLDER, CreatedByUserId: alice,
				CreatedAt: 1, UpdatedAt: 1, RuntimeStatus: appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED,
				Accepted: &appv1.Runtime{Command: "serve", Port: 3000},
			}, Controls: &appv1.Controls{}}, nil
		default:
			return nil, nil
		}
	}
	return w.server(t, edit), w.key(alice)
}

func TestServerWithoutAppsRefuses(t *testing.T) {
	s, key := newAppServer(t, func(*http.Options) {})
	expect(t, request(t, s, "GET", "/v1/ws/acme/apps/shop/launch", key, ""), 503, "the server serves no apps")
	expect(t, request(t, s, "GET", "/v1/ws/acme/apps/shop/logs", key, ""), 503, "the server runs no apps")
}

func TestAddressesOfApps(t *testing.T) {
	for public, test := range map[string]struct {
		addresses app.Addresses
		want      string
	}{
		"http://localhost:8080":       {app.Addresses{}, "http://shop--acme.localhost:8080/"},
		"http://127.0.0.1:9000":       {app.Addresses{}, "http://shop--acme.localhost:9000/"},
		"https://work.example":        {app.Addresses{}, "https://shop--acme.work.example/"},
		"https://work.example:8443":   {app.Addresses{EdgeHost: "apps.example"}, "https://shop--acme.apps.example:8443/"},
		"https://other.example":       {app.Addresses{EdgeHost: "apps.example", Scheme: "https", Port: 443}, "https://shop--acme.apps.example/"},
		"https://third.example":       {app.Addresses{EdgeHost: "apps.example", Scheme: "http", Port: 80}, "http://shop--acme.apps.example/"},
		"https://fourth.example:8443": {app.Addresses{Scheme: "https", Port: 444}, "https://shop--acme.fourth.example:444/"},
	} {
		s, key := newAppServer(t, func(o *http.Options) {
			o.Apps.Addresses = test.addresses
			at, err := url.Parse(public)
			if err != nil {
				t.Fatal(err)
			}
			o.PublicURL = at
		})
		expect(t, request(t, s, "GET", "/v1/ws/acme/apps/shop", key, ""), 200, `"canonicalUrl":"`+test.want+`"`)
	}
}
