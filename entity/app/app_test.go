package app_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestRegister(t *testing.T) {
	w := newApp(t)
	if w.s.GetRuntimeStatus() != reconciling || w.s.GetGeneration() != 1 || w.s.GetVisibility() != private || w.task() != app.RunTask {
		t.Errorf("%v with task %q", w.s, w.task())
	}
	if !w.waits(&appv1.AwaitApp{Generation: 1}) || w.waits(&appv1.AwaitApp{}) || !w.waits(&appv1.AwaitRuntime{Revision: 1}) || w.waits(&appv1.AwaitRuntime{}) {
		t.Error("the queries wait wrongly")
	}
	w.asPlatform(&appv1.RegisterApp{Registration: &appv1.Registration{Slug: "other"}})
	if w.s.GetSlug() != "shop" {
		t.Error("the registration was repeated")
	}
	w.now = w.now.Add(time.Second)
	w.report("")
	if w.s.GetRuntimeStatus() != reconciled || w.s.GetAccepted().GetCommand() != "serve" || w.s.GetRequested() != nil ||
		w.s.GetAcceptedGeneration() != 1 || w.s.GetUpdatedAt() != w.now.UnixMilli() || w.waits(&appv1.AwaitApp{Generation: 1}) {
		t.Errorf("reconciled: %v", w.s)
	}
	want := entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.ReleaseAppPorts{AppId: appID, Port: 3000, Reservation: 7})
	if len(w.sent) != 1 || !proto.Equal(w.sent[0].Message, want.Message) {
		t.Errorf("sent %v", w.sent)
	}
	if got := w.logged(); got != nil {
		t.Errorf("the app logs %v; the workspace has logged the registration", got)
	}
}

func TestAbsentApp(t *testing.T) {
	w := newWorld(t)
	for _, c := range []appv1.Command{
		&appv1.DescribeApp{}, &appv1.AwaitApp{Removal: true}, &appv1.AwaitRuntime{}, &appv1.UpdateApp{}, &appv1.SetVisibility{Visibility: private},
		&appv1.SetDisabled{}, &appv1.RestartApp{}, &appv1.AttachDomain{}, &appv1.RecheckDomain{}, &appv1.RemoveDomain{}, &appv1.WakeApp{},
		&appv1.IssueKey{}, &appv1.SetRuntimeSettings{},
	} {
		w.refused(c, entity.NotFound)
		if w.waits(c) {
			t.Errorf("%T waits", c)
		}
	}
	w.mustNotChange(&appv1.RemoveApp{TaskId: "t"})
	w.mustNotChange(&appv1.FollowAnchor{Version: 9})
}

func TestMetadataNeedsNoReconciliation(t *testing.T) {
	w := newRunning(t)
	w.now = w.now.Add(time.Minute)
	w.must(&appv1.UpdateApp{Icon: proto.String("icon.png")})
	if w.s.GetUpdatedAt() != w.now.UnixMilli() || w.s.GetRuntimeStatus() != reconciled {
		t.Errorf("the same icon: %v", w.s)
	}
	w.must(&appv1.UpdateApp{Name: proto.String("Store")})
	if w.s.GetName() != "Store" || w.s.GetIcon() != "icon.png" || w.s.GetGeneration() != 1 {
		t.Errorf("another name: %v", w.s)
	}
	if got := w.logged(); !slices.Equal(got, []string{"app.updated", "app.updated"}) {
		t.Errorf("logged %v", got)
	}
	w.mustNotChange(&appv1.UpdateApp{Name: proto.String("Store")})
	w.mustNotChange(&appv1.UpdateApp{})
	w.refused(&appv1.UpdateApp{Name: proto.String("")}, entity.InvalidRequest)
	w.refused(&appv1.UpdateApp{Icon: proto.String("https://x/y.png")}, entity.InvalidRequest)
}

func TestFailedUpdateKeepsTheAcceptedRuntime(t *testing.T) {
	w := newRunning(t)
	w.refused(&appv1.UpdateApp{Port: proto.Uint32(4000)}, entity.Unavailable)
	w.asPlatform(&appv1.OfferPort{Port: 4000, Reservation: 12})
	w.must(&appv1.UpdateApp{Name: proto.String("Store"), Icon: proto.String("new.png"), Command: proto.String("crash"), Port: proto.Uint32(4000)})
	if w.s.GetRuntimeStatus() != reconciling || w.s.GetAccepted().GetCommand() != "serve" || w.s.GetRequested().GetInstallCommand() != "install" {
		t.Errorf("requested: %v", w.s)
	}
	if got := w.logged(); !slices.Equal(got, []string{"app.updated"}) {
		t.Errorf("logged %v", got)
	}
	w.sent = nil
	w.report("exit status 1")
	if w.s.GetRuntimeStatus() != failed || w.s.GetReconciliationError() != "exit status 1" || w.s.GetAccepted().GetPort() != 3000 ||
		w.s.GetRequested() != nil || w.s.GetName() != "Store" || w.s.GetIcon() != "new.png" {
		t.Errorf("failed: %v", w.s)
	}
	if want := (&workspacev1.ReleaseAppPorts{AppId: appID, Port: 3000, Reservation: 12}); !proto.Equal(w.sent[0].Message, want) {
		t.Errorf("sent %v", w.sent)
	}
	if w.task() != app.RunTask {
		t.Error("the accepted runtime does not run on")
	}
	// The same values as the accepted ones are an edit after a failure, and none otherwise.
	w.must(&appv1.UpdateApp{Command: proto.String("serve")})
	if w.s.GetGeneration() != 3 || w.s.GetRuntimeStatus() != reconciling || w.s.GetReconciliationError() != "" {
		t.Errorf("retried: %v", w.s)
	}
	w.report("")
	w.mustNotChange(&appv1.UpdateApp{Command: proto.String("serve"), ApiScopes: &appv1.Scopes{Scopes: []string{entity.FilesRead}}})
}

func TestFailedRegistrationIsRetriedByAnUpdate(t *testing.T) {
	w := newApp(t)
	w.report(strings.Repeat("é\x00", 3000))
	if w.s.GetRuntimeStatus() != failed || w.s.GetRequested().GetCommand() != "serve" || w.s.GetAccepted() != nil || w.task() != "" {
		t.Errorf("failed: %v, %q", w.s, w.task())
	}
	if w.s.GetReconciliationError() != strings.Repeat("é", app.MaxReason) {
		t.Errorf("the reason has %d bytes", len(w.s.GetReconciliationError()))
	}
	w.must(&appv1.UpdateApp{InstallCommand: proto.String("")})
	if w.s.GetRequested().GetInstallCommand() != "" || w.s.GetRequested().GetCommand() != "serve" || w.task() != app.RunTask {
		t.Errorf("retried: %v", w.s)
	}
	w.report("\n")
	if w.s.GetReconciliationError() == "" {
		t.Error("the failure has no reason")
	}
	w.must(&appv1.RestartApp{})
	w.report("")
	if w.s.GetRuntimeStatus() != reconciled || w.s.GetAcceptedGeneration() != 3 {
		t.Errorf("restarted: %v", w.s)
	}
}

// TestOfferOfAClockThatWasAhead checks that the timer of offers ends one that was made while the clock was ahead, and not one of now.
func TestOfferOfAClockThatWasAhead(t *testing.T) {
	w := newRunning(t)
	w.now = w.now.Add(365 * 24 * time.Hour)
	w.asPlatform(&appv1.OfferPort{Port: 4000, Reservation: 12})
	w.now = w.now.Add(-365 * 24 * time.Hour)
	w.asPlatform(&appv1.OfferPort{Port: 4001, Reservation: 13})
	w.asPlatform(&appv1.ExpirePorts{})
	if offered := w.s.GetPorts().GetOffered(); len(offered) != 1 || offered[0].GetPort() != 4001 {
		t.Errorf("offered: %v", offered)
	}
}

func TestOnlyTheNewestGenerationCounts(t *testing.T) {
	w := newRunning(t)
	w.must(&appv1.UpdateApp{Command: proto.String("two")})
	w.asPlatform(&appv1.OfferPort{Port: 4000, Reservation: 12})
	w.must(&appv1.UpdateApp{Port: proto.Uint32(4000)})
	for _, generation := range []uint64{1, 2, 4} {
		w.asPlatform(&appv1.ReportReconciled{Generation: generation})
		if w.s.GetRuntimeStatus() != reconciling {
			t.Errorf("the result of generation %d counts", generation)
		}
	}
	if w.waits(&appv1.AwaitApp{Generation: 2}) || !w.waits(&appv1.AwaitApp{Generation: 3}) {
		t.Error("the request that was replaced waits, or the last one does not")
	}
	w.report("")
	if w.s.GetAccepted().GetCommand() != "two" || w.s.GetAccepted().GetPort() != 4000 {
		t.Errorf("%v", w.s)
	}
}

func TestRestart(t *testing.T) {
	w := newRunning(t)
	w.logged()
	w.must(&appv1.RestartApp{})
	if w.s.GetGeneration() != 2 || !proto.Equal(w.s.GetRequested(), w.s.GetAccepted()) {
		t.Errorf("%v", w.s)
	}
	w.mustNotChange(&appv1.RestartApp{})
	w.report("")
	if got := w.logged(); got != nil {
		t.Errorf("a restart is logged as %v", got)
	}
	w.must(&appv1.SetDisabled{Disabled: true})
	w.refused(&appv1.RestartApp{}, entity.InvalidRequest)
}

func TestVisibility(t *testing.T) {
	w := newRunning(t)
	w.refused(&appv1.SetVisibility{Visibility: public}, entity.Forbidden)
	w.refused(&appv1.SetVisibility{}, entity.InvalidRequest)
	w.mustNotChange(&appv1.SetVisibility{Visibility: private})
	w.user("olga", owner).must(&appv1.SetVisibility{Visibility: public})
	w.mustNotChange(&appv1.SetVisibility{Visibility: public})
	w.user("alice", editor).must(&appv1.SetVisibility{Visibility: private})
	if got := w.logged(); !slices.Equal(got, []string{"app.visibility_changed", "app.visibility_changed"}) {
		t.Errorf("logged %v", got)
	}
	// An agent and an app of an owner have no authority of an owner.
	w.user("olga", owner).as.Kind, w.as.Grants = kindApp, []string{entity.Apps}
	w.refused(&appv1.SetVisibility{Visibility: public}, entity.Forbidden)
	w.as.Kind = kindSession
	w.refused(&appv1.SetVisibility{Visibility: public}, entity.Forbidden)
}

// TestStops checks each condition under which an app may not run: its task closes, its key ends, and nothing waits for it; afterwards it
// runs again without a key.
func TestStops(t *testing.T) {
	for name, test := range map[string]struct {
		stop, start appv1.Command
		audit       []string
	}{
		"disabled": {&appv1.SetDisabled{Disabled: true}, &appv1.SetDisabled{}, []string{"app.disabled", "app.enabled"}},
		"halted":   {&appv1.HaltApp{Halted: true}, &appv1.HaltApp{}, nil},
		"broken":   {&appv1.FollowAnchor{Path: "sites/shop", State: broken, Version: 8}, &appv1.FollowAnchor{Path: "moved", State: activeFolder, Version: 9}, nil},
		"orphaned": {&appv1.FollowAnchor{Path: "sites/shop", State: orphaned, Version: 8}, &appv1.FollowAnchor{Path: "moved", State: activeFolder, Version: 9}, nil},
		"removed":  {&appv1.RemoveApp{TaskId: "t1"}, &appv1.ReportStopped{TaskId: "t1", Failure: "busy"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRunning(t)
			w.must(&appv1.UpdateApp{Command: proto.String("two")})
			w.logged()
			if !w.accepts('a') || w.task() != app.RunTask {
				t.Fatal("the app does not run")
			}
			w.must(test.stop)
			w.mustNotChange(test.stop)
			wantTask := ""
			if name == "removed" {
				wantTask = app.StopTask
			}
			if w.accepts('a') || w.s.GetKey() != nil || w.task() != wantTask || w.waits(&appv1.AwaitApp{Generation: 2}) || app.MayRun(w.s) {
				t.Errorf("stopped: %v", w.s)
			}
			// The process that was ended has not failed, and gets no key.
			w.asPlatform(&appv1.ReportReconciled{Generation: 2, Failure: "killed"})
			w.platform().refused(&appv1.IssueKey{Generation: 2, SecretSha256: hash('b')}, entity.NotFound)
			if w.s.GetRuntimeStatus() != reconciling {
				t.Error("a stopped app fails")
			}
			w.user("alice", editor).must(test.start)
			w.mustNotChange(test.start)
			if w.accepts('a') || w.task() != app.RunTask || !app.MayRun(w.s) {
				t.Errorf("started: %v", w.s)
			}
			w.issue('b')
			w.report("")
			if !w.accepts('b') || w.s.GetAcceptedGeneration() != 2 {
				t.Errorf("runs: %v", w.s)
			}
			if got := w.logged(); !slices.Equal(got, test.audit) {
				t.Errorf("logged %v, want %v", got, test.audit)
			}
		})
	}
}

func TestDisabledSaysWhoAndWhen(t *testing.T) {
	w := newRunning(t)
	w.user("bob", editor).must(&appv1.SetDisabled{Disabled: true})
	if w.s.GetDisabledAt() != w.now.UnixMilli() || w.s.GetDisabledByUserId() != "bob" {
		t.Errorf("%v", w.s)
	}
	w.now = w.now.Add(time.Hour)
	w.user("alice", editor).mustNotChange(&appv1.SetDisabled{Disabled: true})
	// A disabled app can be changed. The change waits until it is enabled.
	w.must(&appv1.UpdateApp{Command: proto.String("two")})
	w.must(&appv1.SetDisabled{})
	if w.s.GetDisabledAt() != 0 || w.s.GetDisabledByUserId() != "" || w.s.GetRuntimeStatus() != reconciling {
		t.Errorf("enabled: %v", w.s)
	}
}

func TestFollowAnchor(t *testing.T) {
	w := newRunning(t)
	w.asPlatform(&appv1.FollowAnchor{Path: "b", State: activeFolder, Version: 9})
	w.asPlatform(&appv1.FollowAnchor{Path: "old", State: broken, Version: 8})
	if w.s.GetPath() != "b" || w.s.GetFolderState() != activeFolder || !w.accepts('a') {
		t.Errorf("%v", w.s)
	}
}

func TestSleep(t *testing.T) {
	w := newRunning(t)
	w.asPlatform(&appv1.ReportAsleep{Generation: 1})
	if w.s.GetAsleep() {
		t.Error("an app that does not sleep is asleep")
	}
	w.must(&appv1.UpdateApp{SleepAfterMs: proto.Int64(60_000)})
	w.asPlatform(&appv1.ReportAsleep{Generation: 1})
	w.report("")
	w.asPlatform(&appv1.ReportAsleep{Generation: 1})
	if w.s.GetAsleep() {
		t.Error("the report of an old generation counts")
	}
	w.asPlatform(&appv1.ReportAsleep{Generation: 2})
	if !w.s.GetAsleep() || w.task() != "" || w.accepts('a') || !app.MayRun(w.s) {
		t.Errorf("asleep: %v", w.s)
	}
	w.platform().refused(&appv1.IssueKey{Generation: 2, SecretSha256: hash('b')}, entity.NotFound)
	w.must(&appv1.WakeApp{})
	w.mustNotChange(&appv1.WakeApp{})
	if w.s.GetAsleep() || w.task() != app.RunTask {
		t.Errorf("woken: %v", w.s)
	}
	w.must(&appv1.ReportAsleep{Generation: 2})
	w.user("alice", editor).must(&appv1.UpdateApp{Command: proto.String("two")})
	if w.s.GetAsleep() || w.task() != app.RunTask {
		t.Errorf("an update does not wake the app: %v", w.s)
	}
	// An app that may not run is not asleep, so that it starts as soon as it may run again.
	for _, c := range []appv1.Command{
		&appv1.SetDisabled{Disabled: true}, &appv1.HaltApp{Halted: true}, &appv1.RemoveApp{TaskId: "t"},
		&appv1.FollowAnchor{Path: "sites/shop", State: broken, Version: 8},
	} {
		w := newRunning(t)
		w.must(&appv1.UpdateApp{SleepAfterMs: proto.Int64(60_000)})
		w.report("")
		w.asPlatform(&appv1.ReportAsleep{Generation: 2})
		if w.must(c); w.s.GetAsleep() {
			t.Errorf("%T: the app is asleep", c)
		}
	}
}

func TestCrashes(t *testing.T) {
	w := newRunning(t)
	for i := range 30 {
		w.asPlatform(&appv1.ReportCrash{Generation: 1, Crash: &appv1.Crash{At: int64(i + 1), Reason: fmt.Sprintf("exit status %d\x1b", i)}})
	}
	all := w.s.GetCrashes()
	if len(all) != app.MaxCrashes || all[0].GetReason() != "exit status 10" || all[19].GetAt() != 30 {
		t.Errorf("%v", all)
	}
	w.platform().mustNotChange(&appv1.ReportCrash{Generation: 1, Crash: &appv1.Crash{At: 30, Reason: "exit status 29"}})
	w.mustNotChange(&appv1.ReportCrash{Generation: 5, Crash: &appv1.Crash{At: 31, Reason: "late"}})
	if w.s.GetRuntimeStatus() != reconciled || w.logged() != nil {
		t.Error("a crash changes the status or is logged")
	}
}

// TestRemovalByALimitedKey is logged for the key, although the app is removed later.
func TestRemovalByALimitedKey(t *testing.T) {
	w := newRunning(t)
	w.as = &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, UserId: "alice", CredentialId: "key_1", Grants: []string{entity.Apps},
	}
	w.must(&appv1.RemoveApp{TaskId: "t1"})
	w.asPlatform(&appv1.ReportStopped{TaskId: "t1"})
	if e := w.log[len(w.log)-1]; e.GetEvent() != "app.deleted" || e.GetActorId() != "alice" || e.GetProvenance().GetActor() != "api-key:key_1" {
		t.Errorf("logged %v", e)
	}
}

func TestRemove(t *testing.T) {
	w := newRunning(t)
	w.refused(&appv1.RemoveApp{}, entity.InvalidRequest)
	w.user("bob", editor).as.ImpersonatorId = "operator"
	w.must(&appv1.RemoveApp{TaskId: "t1"})
	w.mustNotChange(&appv1.RemoveApp{TaskId: "t2"})
	for _, c := range []appv1.Command{
		&appv1.UpdateApp{Name: proto.String("x")}, &appv1.SetVisibility{Visibility: private}, &appv1.SetDisabled{Disabled: true}, &appv1.RestartApp{},
		&appv1.AttachDomain{DomainId: "dom_1", Hostname: "shop.example.com"}, respondIn(time.Minute),
	} {
		w.refused(c, entity.NotFound)
	}
	w.must(&appv1.DescribeApp{})
	if !w.waits(&appv1.AwaitApp{Removal: true}) || w.logged() != nil {
		t.Error("the removal is complete before the process has ended")
	}
	w.asPlatform(&appv1.ReportStopped{TaskId: "t0"})
	w.asPlatform(&appv1.ReportStopped{TaskId: "t1", Failure: "busy"})
	if w.s.GetRemoval() != nil || w.waits(&appv1.AwaitApp{Removal: true}) || w.logged() != nil {
		t.Errorf("a failed removal: %v", w.s)
	}
	w.must(&appv1.RemoveApp{TaskId: "t3"})
	w.sent = nil
	w.asPlatform(&appv1.ReportStopped{TaskId: "t3"})
	if len(w.sent) != 1 || !proto.Equal(w.sent[0].Message, &workspacev1.RemoveApp{AppId: appID}) || w.task() != "" {
		t.Errorf("sent %v", w.sent)
	}
	e := w.log[0]
	if e.GetEvent() != "app.deleted" || e.GetActorId() != "bob" || e.GetProvenance().GetActor() != "operator" || e.GetProvenance().GetAppSlug() != "shop" {
		t.Errorf("logged %v", e)
	}
	for name := range w.rows {
		if strings.HasPrefix(name, app.List+" ") {
			t.Errorf("the row %q remains", name)
		}
	}
	if w.waits(&appv1.AwaitApp{Removal: true}) {
		t.Error("the query waits after the removal")
	}
	w.must(&appv1.AwaitApp{Removal: true})
	w.refused(&appv1.DescribeApp{}, entity.NotFound)
	w.mustNotChange(&appv1.RemoveApp{TaskId: "t4"})
	w.mustNotChange(&appv1.RegisterApp{Registration: &appv1.Registration{Slug: "again"}})
}
