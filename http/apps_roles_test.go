package http_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// sceneOfApps returns a workspace with the app shop, which the owner made, the app team with the scope members, and the replicas reader and
// writer, which a recipient may only read, or change.
func (b *boundary) sceneOfApps(t *testing.T, isSuspended bool) *scene {
	sc := b.scene(t, visitor{}, true)
	for slug, r := range map[string]*appv1.Registration{
		"team":   {Runtime: &appv1.Runtime{Command: "serve", ApiScopes: []string{entity.Members}}},
		"reader": {Runtime: &appv1.Runtime{Command: "serve"}, Origin: originOf(appv1.ShareMode_SHARE_MODE_READ)},
		"writer": {Runtime: &appv1.Runtime{Command: "serve"}, Origin: originOf(appv1.ShareMode_SHARE_MODE_WRITE)},
	} {
		r.AnchorId, r.AppId, r.Path, r.Slug, r.CreatedByUserId = sc.stage.newID("anc_"), sc.stage.newID("app_"), "apps/"+slug, slug, sc.people["owner"].id
		sc.ask(t, entity.KindWorkspace, sc.id, &workspacev1.RegisterApp{Registration: r})
	}
	if isSuspended {
		sc.ask(t, entity.KindWorkspace, sc.id, &workspacev1.Suspend{})
	}
	sc.settle(t, sc.id)
	return sc
}

func originOf(mode appv1.ShareMode) *appv1.Origin {
	return &appv1.Origin{SourceShareId: "shr_1", SourceAppId: "app_1", Mode: mode}
}

// shownControls are the controls of an app as JSON.
type shownControls struct{ ManageDomain, UpdateRuntime, MakePublic, MakePrivate, Delete bool }

// expectedControls returns the controls of the app with a slug for a visitor, according to the specification and the role rules.
func expectedControls(v visitor, slug string) shownControls {
	changes := !v.isSuspended && v.has("apps") && (v.role == "owner" || v.role == "editor")
	writes := changes && slug != "reader"
	return shownControls{
		ManageDomain: changes, UpdateRuntime: writes && (slug != "team" || v.has("members")) && v.covers(commandNeeds), MakePublic: writes && v.has("admin"),
		MakePrivate: changes, Delete: changes && slug != "reader" && slug != "writer",
	}
}

// TestControlsOfApps reads the controls of each kind of app as every visitor, one by one and in the list, and the visitor's rights to
// domains.
func TestControlsOfApps(t *testing.T) {
	b := newBoundary(t)
	scenes := map[bool]*scene{false: b.sceneOfApps(t, false), true: b.sceneOfApps(t, true)}
	for _, v := range visitors {
		if status, _ := expectedRefusal(v, server.Route{Method: "GET", Path: appsAt, Scope: server.ScopeApps}); status != 0 {
			continue // TestAccess tests the refusals
		}
		sc := *scenes[v.isSuspended]
		credential := v.credential(&sc)
		get := func(suffix string, to any) {
			t.Helper()
			got := sc.send(server.Route{Method: "GET"}, exampleRequest{target: sc.space(suffix)}, credential, "")
			if err := json.Unmarshal(got.Body.Bytes(), to); got.Code != 200 || err != nil {
				t.Fatalf("%s, %s: %d %s", v.name, suffix, got.Code, got.Body)
			}
		}
		var page struct {
			Items []struct {
				Slug     string
				Controls shownControls
			}
			Meta struct{ Capabilities struct{ Register bool } }
		}
		get("/apps", &page)
		if len(page.Items) != 4 || page.Meta.Capabilities.Register != expectedControls(v, "shop").ManageDomain {
			t.Errorf("%s: %+v", v.name, page)
		}
		for _, item := range page.Items {
			var one struct {
				App struct{ Controls shownControls }
			}
			get("/apps/"+item.Slug, &one)
			if want := expectedControls(v, item.Slug); item.Controls != want || one.App.Controls != want {
				t.Errorf("%s, %s: %+v in the list, %+v, want %+v", v.name, item.Slug, item.Controls, one.App.Controls, want)
			}
		}
	}
}

// TestPublishing makes an app public as every visitor.
func TestPublishing(t *testing.T) {
	b := newBoundary(t)
	scenes := map[bool]*scene{false: b.sceneOfApps(t, false), true: b.sceneOfApps(t, true)}
	publish := server.Route{Method: "PUT", Path: appsAt + "/{appSlug}/visibility", Scope: server.ScopeApps}
	for _, v := range visitors {
		sc := *scenes[v.isSuspended]
		credential := v.credential(&sc)
		for _, slug := range []string{"shop", "reader", "writer"} {
			status, code := expectedRefusal(v, publish)
			if status == 0 && !expectedControls(v, slug).MakePublic {
				status, code = 403, "forbidden"
			}
			in := exampleRequest{target: sc.space("/apps/" + slug + "/visibility"), body: `{"visibility":"public"}`}
			got := sc.send(publish, in, credential, in.body)
			switch {
			case status != 0:
				sc.expectRefusal(t, v.name+", "+slug, publish, got, status, code)
			case got.Code != 200 || !strings.Contains(got.Body.String(), `"visibility":"public"`):
				t.Errorf("%s, %s: %d %s, want it to be public", v.name, slug, got.Code, got.Body)
			}
			sc.ask(t, entity.KindApp, sc.appIdentity(t, slug), &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_FOLDER})
		}
	}
}

func (sc *scene) appIdentity(t *testing.T, slug string) string {
	found := sc.ask(t, entity.KindWorkspace, sc.id, &workspacev1.FindApp{Slug: slug}).(*workspacev1.Anchor)
	return app.Identity(sc.id, found.GetApp().GetId())
}

// commandSuffix ends the name of a change of an app that sets the command.
const commandSuffix = " with a command"

// scopesOfCommands are the scopes that set the processes of an app: apps, and the scopes of every process in a computer.
var scopesOfCommands = []string{"apps", "files:read", "files:write", "services"}

// TestScopesOfCredentials sends every operation of apps with tokens and keys of one scope each, and with the scopes of a command: apps
// alone suffices unless the operation sets the command of an app, and no other scope does.
func TestScopesOfCredentials(t *testing.T) {
	b := newBoundary(t)
	shared := b.sceneOfApps(t, false)
	requests := maps.Clone(appRequests)
	requests["PATCH "+appsAt+"/{appSlug}"+commandSuffix] = inSpace("/apps/shop", `{"command":"other"}`)
	for operation, made := range requests {
		setsCommand := operation == "POST "+appsAt || strings.HasSuffix(operation, commandSuffix) || operation == "PUT "+appsAt+"/{appSlug}/runtime"
		method, path, _ := strings.Cut(operation, " ")
		r := server.Route{Method: method, Path: strings.TrimSuffix(path, commandSuffix), Scope: server.ScopeApps}
		granted := [][]string{scopesOfCommands}
		for _, scope := range everything {
			granted = append(granted, []string{scope})
		}
		for _, scopes := range granted {
			for kind, credential := range map[string]func(*scene) headers{"oauth": oauth("owner", scopes...), "app": appKey("owner", scopes...)} {
				v := visitor{name: kind + " with " + strings.Join(scopes, ", "), role: "owner", granted: scopes}
				status, code := expectedRefusal(v, r)
				sc := shared
				if status == 0 && changes(r) {
					sc = b.scene(t, v, true)
				}
				in := made(sc)
				got := sc.send(r, in, credential(sc), in.body)
				switch {
				case status != 0:
					sc.expectRefusal(t, operation+" as "+v.name, r, got, status, code)
				case setsCommand && len(scopes) == 1:
					if got.Code != 403 || !strings.Contains(got.Body.String(), "the command of an app can read and change all files") {
						t.Errorf("%s as %s: %d %s, want it to be refused", operation, v.name, got.Code, got.Body)
					}
				case got.Code >= 400 && (in.refusal == "" || !strings.Contains(got.Body.String(), in.refusal)):
					t.Errorf("%s as %s: %d %s, want it to be allowed", operation, v.name, got.Code, got.Body)
				}
			}
		}
	}
}

// TestCreatorsOfApps registers an app with each kind of credential that may: the creator is the person behind it, and for the computer of the
// workspace the person who pays.
func TestCreatorsOfApps(t *testing.T) {
	b := newBoundary(t)
	register := server.Route{Method: "POST", Path: appsAt, Scope: server.ScopeApps}
	for _, v := range visitors {
		if status, _ := expectedRefusal(v, register); status != 0 || !v.covers(commandNeeds) {
			continue
		}
		sc := b.scene(t, v, true)
		in := appRequests["POST "+appsAt](sc)
		got := sc.send(register, in, v.credential(sc), in.body)
		want := sc.people[v.role].id
		if v.name == "computer" {
			want = sc.people["owner"].id
		}
		if got.Code != 201 || !strings.Contains(got.Body.String(), `"createdByUserId":"`+want+`"`) {
			t.Errorf("%s: %d %s, want the creator %s", v.name, got.Code, got.Body, want)
		}
	}
}

// TestReasonsOfFailuresAreBounded reports a failure with a reason that is longer than an app may show, and one without text.
func TestReasonsOfFailuresAreBounded(t *testing.T) {
	b := newBoundary(t)
	sc := b.sceneOfApps(t, false)
	tries := 1
	for reason, check := range map[string]func(string) bool{
		strings.Repeat("é\x1b", 3000): func(shown string) bool { return shown == strings.Repeat("é", 2000) },
		"\x00":                        func(shown string) bool { return shown != "" && utf8.ValidString(shown) },
	} {
		identity := sc.appIdentity(t, "shop")
		sc.ask(t, entity.KindApp, identity, &appv1.UpdateApp{Command: new("serve" + strings.Repeat(" ", tries))})
		tries++
		state := sc.ask(t, entity.KindApp, identity, &appv1.DescribeApp{}).(*appv1.Description).GetApp()
		sc.ask(t, entity.KindApp, identity, &appv1.ReportReconciled{Generation: state.GetGeneration(), Failure: reason})
		got := request(t, sc.stage.node.Server, "GET", sc.space("/apps/shop"), sc.people["owner"].key, "")
		var answer struct {
			App struct{ RuntimeStatus, ReconciliationError string }
		}
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil || answer.App.RuntimeStatus != "reconcile_failed" || !check(answer.App.ReconciliationError) {
			t.Errorf("%v: %s", err, got.Body)
		}
	}
}

// TestOperationsOfAppsAreComplete checks that the matrix has the fourteen operations of the specification, and the extensions restart,
// logs and runtime, and which of them are declared idempotent.
func TestOperationsOfAppsAreComplete(t *testing.T) {
	idempotent := []string{
		"DELETE " + appsAt + "/{appSlug}", "PUT " + appsAt + "/{appSlug}/visibility", "PUT " + appsAt + "/{appSlug}/disabled",
		"PUT " + appsAt + "/{appSlug}/runtime", "PUT " + appsAt + "/{slug}/domain", "DELETE " + appsAt + "/{slug}/domain",
	}
	routes := newStage(t).node.Server.Routes()
	found := 0
	for _, r := range routes {
		if _, is := appRequests[operationOf(r)]; !is {
			continue
		}
		found++
		if r.Scope != server.ScopeApps || r.Idempotent != slices.Contains(idempotent, operationOf(r)) {
			t.Errorf("%s: scope %s, idempotent: %v", operationOf(r), r.Scope, r.Idempotent)
		}
	}
	if found != 18 || len(appRequests) != 18 {
		t.Errorf("%d operations of apps, %d examples, want 18", found, len(appRequests))
	}
}
