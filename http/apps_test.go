package http_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// newAppServer returns a server without an edge that has the app shop, and a key of a member.
func newAppServer(t *testing.T, edit func(*http.Options)) (*http.Server, string) {
	w := newFakeEntities()
	w.before = describeShop
	return w.server(t, edit), w.key(alice)
}

// describeShop answers the queries for the app shop.
func describeShop(_ context.Context, c entity.Command) (proto.Message, error) {
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

// A change of an app ends the streams that its processes have opened with their key only if the change has replaced or removed the key.
func TestChangesOfAppsAndTheirKeys(t *testing.T) {
	for name, number := range map[string]uint64{"the key remains": 1, "the key is replaced": 2, "the key is gone": 0} {
		t.Run(name, func(t *testing.T) {
			const shop = "app_01j00000000000000000000001"
			text, hash := newKeyOf(kindApp, shop)
			w := newFakeEntities()
			w.credentials[shop] = &credentialv1.Credential{
				Id: shop, Kind: kindApp, UserId: alice, WorkspaceId: acme, Grants: everything, SecretSha256: hash, CreatedAt: 1,
			}
			w.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
				description := func(number uint64) (proto.Message, error) {
					found, _ := describeShop(ctx, entity.Command{Message: &appv1.DescribeApp{}})
					if number > 0 {
						found.(*appv1.Description).App.Key = &appv1.Key{Number: number, SecretSha256: hash}
					}
					return found, nil
				}
				switch c.Message.(type) {
				case *appv1.RestartApp:
					return description(1)
				case *appv1.AwaitApp:
					return description(number)
				}
				return describeShop(ctx, c)
			}
			following := make(chan context.Context, 1)
			w.follow = func(ctx context.Context, _ activity.Subscription) error {
				following <- ctx
				<-ctx.Done()
				return nil
			}
			s := w.server(t)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				request(t, s, "GET", events, text, "")
			}()
			stream := <-following
			expect(t, request(t, s, "POST", "/v1/ws/acme/apps/shop/restart", w.key(alice), ""), 200, "shop")
			if hasEnded := stream.Err() != nil; hasEnded != (number != 1) {
				t.Errorf("the stream of the app has ended: %t", hasEnded)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
}

// statusOfCode has the status of each code that an operation of apps may return (decisions, sections 1 and 7).
var statusOfCode = map[string]int{
	"invalid_request": 400, "forbidden": 403, "workspace_suspended": 403, "workspace_closed": 403, "not_found": 404, "domain_not_configured": 404,
	"slug_taken": 409, "path_in_use": 409, "port_in_use": 409, "limit_reached": 409, "domain_occupied": 409, "hostname_in_use": 409,
	"domain_cleanup_pending": 409, "internal": 500, "unavailable": 503,
}

// TestRefusalsOfApps has each operation of apps refused with every code that is possible. The document must list each response.
func TestRefusalsOfApps(t *testing.T) {
	reads, changes := "not_found forbidden", "not_found forbidden workspace_suspended workspace_closed"
	w := newFakeEntities()
	s, key := w.server(t, func(*http.Options) {}), w.key(alice)
	const shop = "/v1/ws/acme/apps/shop"
	for _, test := range []struct {
		request, body string
		asked         proto.Message
		codes         string
	}{
		{"GET /v1/ws/acme/apps", "", &wirev1.List{}, reads},
		{"GET /v1/ws/acme/app-domains", "", &wirev1.List{}, reads},
		{"POST /v1/ws/acme/apps", `{"path":"a","slug":"new","command":"serve","apiScopes":[]}`, &workspacev1.RegisterApp{},
			changes + " invalid_request slug_taken path_in_use port_in_use limit_reached"},
		{"GET " + shop, "", &workspacev1.FindApp{}, reads},
		{"GET " + shop, "", &appv1.DescribeApp{}, reads},
		{"PATCH " + shop, `{"name":"x"}`, &workspacev1.FindApp{}, reads},
		{"PATCH " + shop, `{"name":"x"}`, &appv1.UpdateApp{}, changes + " invalid_request"},
		{"PATCH " + shop, `{"port":4000}`, &workspacev1.ReserveAppPort{}, changes + " invalid_request port_in_use limit_reached"},
		{"DELETE " + shop, "", &appv1.RemoveApp{}, "forbidden workspace_suspended workspace_closed"},
		{"POST " + shop + "/reanchor", `{"path":"a"}`, &workspacev1.Reanchor{}, changes + " invalid_request path_in_use"},
		{"PUT " + shop + "/visibility", `{"visibility":"public"}`, &appv1.SetVisibility{}, changes + " invalid_request"},
		{"PUT " + shop + "/disabled", `{"disabled":true}`, &appv1.SetDisabled{}, changes},
		{"GET " + shop + "/runtime", "", &appv1.DescribeApp{}, reads},
		{"PUT " + shop + "/runtime", `{"responseTimeoutSeconds":60}`, &appv1.SetRuntimeSettings{}, changes + " invalid_request"},
		{"POST " + shop + "/restart", "", &appv1.RestartApp{}, changes + " invalid_request"},
		{"GET " + shop + "/logs", "", &workspacev1.FindApp{}, reads},
		{"GET " + shop + "/launch", "", &workspacev1.FindApp{}, reads},
		{"GET " + shop + "/domain", "", &appv1.DescribeApp{}, reads},
		{"PUT " + shop + "/domain", `{"hostname":"shop.example.com"}`, &appv1.AttachDomain{},
			changes + " invalid_request domain_occupied domain_cleanup_pending hostname_in_use"},
		{"POST " + shop + "/domain/recheck", "", &appv1.RecheckDomain{}, changes + " domain_not_configured"},
		{"DELETE " + shop + "/domain", "", &appv1.RemoveDomain{}, changes},
	} {
		for _, code := range append(strings.Fields(test.codes), "unavailable", "internal") {
			refused := refusing(test.asked, code)
			w.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
				if reply, err := refused(ctx, c); reply != nil || err != nil {
					return reply, err
				}
				return describeShop(ctx, c)
			}
			method, target, _ := strings.Cut(test.request, " ")
			got := request(t, s, method, target, key, test.body)
			if want := fmt.Sprintf(`{"error":%q,"message":`, code); got.Code != statusOfCode[code] || !strings.HasPrefix(got.Body.String(), want) {
				t.Errorf("%s, %s: %d %s, want %d", test.request, code, got.Code, got.Body, statusOfCode[code])
			}
			if strings.Contains(got.Body.String(), "secret detail") {
				t.Errorf("%s tells what failed: %s", test.request, got.Body)
			}
		}
	}
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
