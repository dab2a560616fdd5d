package workspace_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// appID returns the id of an app that ends with a digit or letter of a ULID.
func appID(last string) string { return "app_0123456789abcdefghjkmnpqr" + last }

func newApp(anchorID, path, slug string, port uint32) *workspacev1.RegisterApp {
	return &workspacev1.RegisterApp{Registration: &appv1.Registration{
		AppId: appID(anchorID[len(anchorID)-1:]), AnchorId: anchorID, Path: path, Slug: slug, CreatedByUserId: "owner",
		Runtime: &appv1.Runtime{Command: "serve", Port: port, ApiScopes: []string{entity.FilesRead}},
	}, Seq: 7}
}

func oauth(user string, grants ...string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: user, WorkspaceId: acme, Grants: grants}
}

func TestRegisterApp(t *testing.T) {
	w := newReadyWorld(t)
	w.join("bob", workspacev1.Role_ROLE_EDITOR)
	reply, events := w.must(person("bob"), newApp("anc_1", "site", "site", 0))
	anchor := reply.(*workspacev1.Anchor)
	if a := anchor.GetApp(); a.GetSlug() != "site" || len(a.GetPorts()) != 1 || a.GetPorts()[0].GetPort() != workspace.FirstAppPort {
		t.Errorf("the reservation is %v", a)
	}
	r := events[0].(*workspacev1.AnchorCreated).GetRegistration()
	if r.GetCreatedByUserId() != "bob" || r.GetRuntime().GetPort() != workspace.FirstAppPort || r.GetPosition() != anchor.GetPosition() {
		t.Errorf("the registration is %v", r)
	}
	entitytest.EqualReactions(t, workspace.Kind.React(acme, events[0]), []entity.Reaction{
		entity.Send(entity.KindApp, acme+"/"+appID("1"), &appv1.RegisterApp{Registration: r}),
	})
	if e := w.lastAudit(); e.GetEvent() != "app.registered" || e.GetProvenance().GetAppSlug() != "site" || e.GetActorId() != "bob" {
		t.Errorf("the audit event is %v", e)
	}
	w.mustNotChange(person("bob"), newApp("anc_1", "site", "site", 0))
	for name, test := range map[string]struct {
		by     *wirev1.Principal
		change func(*appv1.Registration)
		code   entity.Code
	}{
		"slug":                 {nil, func(r *appv1.Registration) { r.Slug = "site" }, entity.SlugTaken},
		"path":                 {nil, func(r *appv1.Registration) { r.Path = "site" }, entity.PathInUse},
		"port":                 {nil, func(r *appv1.Registration) { r.Runtime.Port = workspace.FirstAppPort }, entity.PortInUse},
		"form of the slug":     {nil, func(r *appv1.Registration) { r.Slug = "a--b" }, entity.InvalidRequest},
		"form of the path":     {nil, func(r *appv1.Registration) { r.Path = "../x" }, entity.InvalidRequest},
		"admin":                {nil, func(r *appv1.Registration) { r.Runtime.ApiScopes = []string{entity.Admin} }, entity.InvalidRequest},
		"id of another kind":   {nil, func(r *appv1.Registration) { r.AppId = "ses" + appID("2")[3:] }, entity.InvalidRequest},
		"no anchor":            {nil, func(r *appv1.Registration) { r.AnchorId = "" }, entity.InvalidRequest},
		"no runtime":           {nil, func(r *appv1.Registration) { r.Runtime = nil }, entity.InvalidRequest},
		"origin by a member":   {nil, func(r *appv1.Registration) { r.Origin = replicaOrigin() }, entity.Forbidden},
		"id of another app":    {nil, func(r *appv1.Registration) { r.AppId = appID("1") }, entity.SlugTaken},
		"scopes of no grant":   {oauth("bob", entity.Apps), func(*appv1.Registration) {}, entity.Forbidden},
		"scopes of the grant":  {oauth("bob", entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services), func(*appv1.Registration) {}, ""},
		"commands of no grant": {oauth("bob", entity.Apps, entity.FilesRead), func(*appv1.Registration) {}, entity.Forbidden},
		"unknown creator":      {entity.Platform(), func(r *appv1.Registration) { r.CreatedByUserId = "eve" }, entity.InvalidRequest},
	} {
		c := newApp("anc_2", "other", "other", 0)
		test.change(c.Registration)
		if test.by == nil {
			test.by = person("bob")
		}
		_, err := workspace.Rules.AuthorizeAndDecide(w.call(test.by), w.s, c)
		if entitytest.Code(err) != test.code {
			t.Errorf("%s: %v, want %q", name, err, test.code)
		}
	}
	computer := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, WorkspaceId: acme}
	_, events = w.must(computer, newApp("anc_3", "third", "third", 0))
	if r := events[0].(*workspacev1.AnchorCreated).GetRegistration(); r.GetCreatedByUserId() != "ann" || r.GetRuntime().GetPort() != workspace.FirstAppPort+1 {
		t.Errorf("the computer registers %v", r)
	}
}

func replicaOrigin() *appv1.Origin {
	return &appv1.Origin{SourceShareId: "shr_1", SourceAppId: "app_1", Mode: appv1.ShareMode_SHARE_MODE_READ}
}

func TestAppsAreLimited(t *testing.T) {
	s := open()
	for i := len(s.GetAnchors()); i < workspace.MaxAnchors; i++ {
		id := fmt.Sprint("anc_x", i)
		s.Anchors[id] = &workspacev1.Anchor{Id: id, Path: id, Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH, State: active}
	}
	if code := decide(person("owner"), s, newApp("anc_9", "b", "site", 0)); code != entity.LimitReached {
		t.Errorf("one more anchor: %q", code)
	}
}

func TestAppPorts(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newApp("anc_1", "a", "one", 3000))
	w.must(person("ann"), newApp("anc_2", "b", "two", 4000))
	reserve := func(port uint32) uint64 {
		t.Helper()
		reply, _ := w.must(person("ann"), &workspacev1.ReserveAppPort{AppId: appID("1"), Port: port})
		return reply.(*workspacev1.AppPort).GetReservation()
	}
	ports := func() (all []uint32) {
		for _, p := range w.s.GetAnchors()["anc_1"].GetApp().GetPorts() {
			all = append(all, p.GetPort())
		}
		return all
	}
	w.mustRefuse(person("ann"), &workspacev1.ReserveAppPort{AppId: appID("1"), Port: 4000}, entity.PortInUse)
	w.mustRefuse(person("ann"), &workspacev1.ReserveAppPort{AppId: appID("1"), Port: 70000}, entity.InvalidRequest)
	w.mustRefuse(person("ann"), &workspacev1.ReserveAppPort{AppId: appID("9"), Port: 5000}, entity.NotFound)
	first := reserve(3001)
	reserve(3002)
	// The result of the configuration with the first port must not end the later reservation.
	w.must(entity.Platform(), &workspacev1.ReleaseAppPorts{AppId: appID("1"), Port: 3001, Reservation: first})
	if got := fmt.Sprint(ports()); got != "[3001 3002]" {
		t.Errorf("ports %s", got)
	}
	// A renewed reservation survives as well.
	second := reserve(3003)
	reserve(3001)
	w.must(entity.Platform(), &workspacev1.ReleaseAppPorts{AppId: appID("1"), Port: 3003, Reservation: second})
	if got := fmt.Sprint(ports()); got != "[3003 3001]" {
		t.Errorf("ports %s", got)
	}
	w.mustNotChange(entity.Platform(), &workspacev1.ReleaseAppPorts{AppId: appID("1"), Port: 3003, Reservation: second})
	for port := uint32(5000); len(ports()) < workspace.MaxAppPorts; port++ {
		reserve(port)
	}
	w.mustRefuse(person("ann"), &workspacev1.ReserveAppPort{AppId: appID("1"), Port: 6000}, entity.LimitReached)
	w.must(person("ann"), newApp("anc_3", "c", "three", 3000))
}

func TestAppAnchor(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newApp("anc_1", "a", "one", 3000))
	follows := func(e workspacev1.Event, path string, state appv1.FolderState) {
		t.Helper()
		entitytest.EqualReactions(t, workspace.Kind.React(acme, e), []entity.Reaction{
			entity.Send(entity.KindApp, acme+"/"+appID("1"), &appv1.FollowAnchor{Path: path, State: state, Version: uint64(len(w.events))}),
		})
	}
	_, events := w.must(entity.Platform(), &workspacev1.MoveAnchor{AnchorId: "anc_1", FromPath: "a", ToPath: "b", Seq: 8})
	follows(events[0], "b", appv1.FolderState_FOLDER_STATE_ACTIVE)
	_, events = w.must(entity.Platform(), &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "b", Seq: 9})
	follows(events[0], "b", appv1.FolderState_FOLDER_STATE_BROKEN)
	_, events = w.must(entity.Platform(), &workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "b", Seq: 10})
	follows(events[0], "b", appv1.FolderState_FOLDER_STATE_ACTIVE)
	w.must(entity.Platform(), &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "b", Seq: 11})
	w.now = w.now.Add(30 * day)
	_, events = w.must(entity.Platform(), &workspacev1.OrphanAnchors{})
	follows(events[0], "b", appv1.FolderState_FOLDER_STATE_ORPHANED)
	_, events = w.must(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_1", Path: "c", Seq: 12})
	follows(events[0], "c", appv1.FolderState_FOLDER_STATE_ACTIVE)

	w.must(person("ann"), newApp("anc_2", "d", "two", 0))
	w.mustRefuse(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_2", Path: "c"}, entity.AnchorConflict)
	// A rename over the folder of another app breaks that app first: two events, each with its own version.
	_, events = w.must(entity.Platform(), &workspacev1.MoveAnchor{AnchorId: "anc_2", FromPath: "d", ToPath: "c", Seq: 13})
	if first, second := events[0].(*workspacev1.AnchorBroken), events[1].(*workspacev1.AnchorMoved); first.GetAppId() != appID("1") ||
		first.GetVersion()+1 != second.GetVersion() || second.GetVersion() != uint64(len(w.events)) {
		t.Errorf("%v", events)
	}
	w.mustRefuse(entity.Platform(), &workspacev1.RemoveAnchor{AnchorId: "anc_1"}, entity.InvalidRequest)
	rows := len(w.lists["audit"])
	w.must(entity.Platform(), &workspacev1.RemoveApp{AppId: appID("1")})
	w.mustNotChange(entity.Platform(), &workspacev1.RemoveApp{AppId: appID("1")})
	w.mustRefuse(person("ann"), &workspacev1.FindApp{Slug: "one"}, entity.NotFound)
	if len(w.lists["audit"]) != rows {
		t.Error("the workspace logs the removal, which the app has logged")
	}
	found := w.mustNotChange(person("ann"), &workspacev1.FindApp{AppId: appID("2")})
	if again := w.mustNotChange(person("ann"), &workspacev1.FindApp{Slug: "two"}); !proto.Equal(found, again) {
		t.Errorf("%v and %v", found, again)
	}
}

func TestAppsAreHaltedWithTheWorkspace(t *testing.T) {
	w := newReadyWorld(t)
	w.must(person("ann"), newApp("anc_1", "a", "one", 0))
	w.must(person("ann"), newApp("anc_2", "b", "two", 0))
	halts := func(c workspacev1.Command, want ...proto.Message) {
		t.Helper()
		_, events := w.must(entity.Platform(), c)
		var got []proto.Message
		for _, e := range events {
			for _, r := range workspace.Kind.React(acme, e) {
				if r.Kind == entity.KindApp && r.Identity == acme+"/"+appID("2") {
					got = append(got, r.Message)
				}
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%T: %v, want %v", c, got, want)
		}
		for i := range want {
			if !proto.Equal(got[i], want[i]) {
				t.Fatalf("%T: %v, want %v", c, got, want)
			}
		}
	}
	on, off := &appv1.HaltApp{Halted: true}, &appv1.HaltApp{}
	halts(&workspacev1.Suspend{Reason: "rent"}, on)
	halts(&workspacev1.Suspend{Reason: "still"})
	halts(&workspacev1.Resume{}, off)
	halts(&workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ARCHIVED}, on)
	halts(&workspacev1.Suspend{Reason: "rent"}, on)
	halts(&workspacev1.Resume{}) // the workspace is archived
	halts(&workspacev1.Suspend{Reason: "rent"}, on)
	halts(&workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ACTIVE}) // the workspace is suspended
	halts(&workspacev1.Resume{}, off)
	halts(&workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_DELETED}, &appv1.RemoveApp{TaskId: fmt.Sprint("remove-", w.now.UnixMilli())})
}
