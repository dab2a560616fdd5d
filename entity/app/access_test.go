package app_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/entitytest"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestReplicas(t *testing.T) {
	for mode, write := range map[appv1.ShareMode]bool{appv1.ShareMode_SHARE_MODE_READ: false, appv1.ShareMode_SHARE_MODE_WRITE: true} {
		w := newRunning(t, func(r *appv1.Registration) {
			r.Origin = &appv1.Origin{SourceShareId: "shr_1", SourceAppId: "app_1", Mode: mode}
		})
		w.user("olga", owner)
		for _, c := range []appv1.Command{
			&appv1.UpdateApp{Command: proto.String("two")}, &appv1.UpdateApp{SleepAfterMs: proto.Int64(5)}, &appv1.SetVisibility{Visibility: public},
			respondIn(time.Minute),
		} {
			if _, err := w.send(c); (err == nil) != write || !write && entitytest.Code(err) != entity.Forbidden {
				t.Errorf("%v: %T: %v", mode, c, err)
			}
		}
		w.refused(&appv1.RemoveApp{TaskId: "t"}, entity.Forbidden)
		w.must(&appv1.UpdateApp{Name: proto.String("Mine")})
		w.must(&appv1.SetDisabled{Disabled: true})
		w.must(&appv1.AttachDomain{DomainId: "dom_1", Hostname: "shop.example.com"})
		controls := app.ControlsOf(w.call(), w.s)
		if want := (&appv1.Controls{ManageDomain: true, UpdateRuntime: write, MakePublic: write, MakePrivate: true}); !proto.Equal(controls, want) {
			t.Errorf("%v: controls %v", mode, controls)
		}
		w.platform().must(&appv1.RemoveApp{TaskId: "t"}) // the share was dropped
	}
}

func TestControls(t *testing.T) {
	all := &appv1.Controls{ManageDomain: true, UpdateRuntime: true, MakePublic: true, MakePrivate: true, Delete: true}
	private := proto.CloneOf(all)
	private.MakePublic = false
	metadata := proto.CloneOf(private)
	metadata.UpdateRuntime = false
	w := newRunning(t)
	for name, test := range map[string]struct {
		role  workspacev1.Role
		apply func()
		want  *appv1.Controls
	}{
		"owner":  {owner, func() {}, all},
		"editor": {editor, func() {}, private},
		"viewer": {viewer, func() {}, &appv1.Controls{}},
		"app of an owner": {owner, func() {
			w.as.Kind, w.as.Grants = kindApp, []string{entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services}
		}, private},
		"app with fewer scopes":   {owner, func() { w.as.Kind, w.as.Grants = kindApp, []string{entity.Apps} }, metadata},
		"app without the scope":   {owner, func() { w.as.Kind, w.as.Grants = kindApp, []string{entity.FilesRead} }, &appv1.Controls{}},
		"agent of an owner":       {owner, func() { w.as.Kind, w.as.Grants = kindSession, entity.AgentCapabilities() }, private},
		"agent with fewer scopes": {owner, func() { w.as.Kind, w.as.Grants = kindSession, []string{entity.Apps} }, metadata},
		"client with all of both": {owner, func() { w.as.Kind, w.as.Grants = kindOAuth, entity.AllCapabilities() }, all},
	} {
		w.user("u", test.role)
		test.apply()
		if got := w.must(&appv1.DescribeApp{}).(*appv1.Description).GetControls(); !proto.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestControlsNow checks that the controls say which changes are possible in the state of the app.
func TestControlsNow(t *testing.T) {
	w := newRunning(t)
	w.user("olga", owner)
	w.asPlatform(&appv1.SetDisabled{Disabled: true})
	if got := app.ControlsOf(w.call(), w.s); !got.GetManageDomain() || !got.GetUpdateRuntime() {
		t.Errorf("disabled: %v", got)
	}
	w.asPlatform(&appv1.HaltApp{Halted: true})
	if got := app.ControlsOf(w.call(), w.s); !proto.Equal(got, &appv1.Controls{}) {
		t.Errorf("suspended: %v", got)
	}
	w.asPlatform(&appv1.HaltApp{})
	w.must(&appv1.RemoveApp{TaskId: "t"})
	if got := app.ControlsOf(w.call(), w.s); !proto.Equal(got, &appv1.Controls{Delete: true}) {
		t.Errorf("being removed: %v", got)
	}
}

// TestGrantsLimitScopes checks that a limited credential cannot run a command with capabilities that it does not have.
func TestGrantsLimitScopes(t *testing.T) {
	w := newRunning(t)
	w.as.Kind, w.as.Grants = kindOAuth, []string{entity.Apps}
	w.refused(&appv1.UpdateApp{Command: proto.String("steal")}, entity.Forbidden)
	w.refused(respondIn(time.Minute), entity.Forbidden)
	w.must(&appv1.UpdateApp{Name: proto.String("Store")})
	w.as.Grants = []string{entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services}
	w.must(&appv1.UpdateApp{Command: proto.String("two")})
	w.must(respondIn(time.Minute))
	w.refused(&appv1.UpdateApp{ApiScopes: &appv1.Scopes{Scopes: []string{entity.FilesRead, entity.Memory}}}, entity.Forbidden)
}

// TestCommandsByGrants sets the command of an app with each set of the capabilities that a process has: a credential needs all, because
// the command reads and changes the whole drive.
func TestCommandsByGrants(t *testing.T) {
	needed := []string{entity.FilesRead, entity.FilesWrite, entity.Services}
	for _, kind := range []wirev1.CredentialKind{kindApp, kindSession, kindOAuth, wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY} {
		for bits := range 1 << len(needed) {
			grants := []string{entity.Apps}
			for i, c := range needed {
				if bits>>i&1 == 1 {
					grants = append(grants, c)
				}
			}
			call := entity.Call{Role: owner, Principal: &wirev1.Principal{Kind: kind, UserId: "u", Grants: grants}}
			if err := app.CheckGrants(call, nil); (err == nil) != (len(grants) == 4) {
				t.Errorf("%s with %q sets a command: %v", kind, grants, err)
			}
		}
	}
}

// TestScopesByGrants compares each scope with each grant besides the grants that a command needs: a caller cannot give an app a scope
// that the caller's credential lacks.
func TestScopesByGrants(t *testing.T) {
	needed := []string{entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services}
	for _, kind := range []wirev1.CredentialKind{kindApp, kindSession, kindOAuth, wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY} {
		for _, granted := range app.Scopes {
			call := entity.Call{Role: owner, Principal: &wirev1.Principal{Kind: kind, UserId: "u", Grants: append([]string{granted}, needed...)}}
			for _, scope := range app.Scopes {
				isGranted := scope == granted || slices.Contains(needed, scope)
				if err := app.CheckGrants(call, []string{scope}); (err == nil) != isGranted {
					t.Errorf("%s with the grant %s gives an app %s: %v", kind, granted, scope, err)
				}
			}
		}
	}
}
