package app_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// TestLaws sends random commands, and checks after each that replay makes the same state, that no key is usable while the app may not
// run, that the rows are the rows of the state, and that a query does not wait for a state that never comes.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newApp(t, func(r *appv1.Registration) {
			if rapid.Bool().Draw(t, "replica") {
				r.Origin = &appv1.Origin{SourceShareId: "s", SourceAppId: "a", Mode: appv1.ShareMode(rapid.Int32Range(1, 2).Draw(t, "mode"))}
			}
		})
		for range rapid.IntRange(0, 60).Draw(t, "commands") {
			w.now = w.now.Add(time.Second)
			w.user("alice", editor)
			if rapid.Bool().Draw(t, "owner") {
				w.user("olga", owner)
			}
			before, n := w.s, len(w.history)
			c := drawCommand(t, w)
			_, err := w.send(c)
			if err != nil && !entity.IsRefusal(err) {
				t.Fatal(err)
			}
			if err != nil && (len(w.history) != n || !proto.Equal(before, w.s)) {
				t.Fatalf("%T was refused and changed the app", c)
			}
			if err == nil && len(w.history) > n {
				w.now = w.now.Add(time.Second)
				n = len(w.history)
				if _, err := w.send(c); err == nil && len(w.history) != n && !mayRepeat(c) {
					t.Fatalf("%T a second time: %v", c, w.history[n:])
				}
			}
			checkLaws(t, w)
		}
	})
}

// mayRepeat reports whether a command may change something each time: an icon advances the time of the update.
func mayRepeat(c appv1.Command) bool {
	update, is := c.(*appv1.UpdateApp)
	return is && update.Icon != nil
}

func drawCommand(t *rapid.T, w *world) appv1.Command {
	if rapid.Bool().Draw(t, "platform") {
		return drawReport(t, w.platform())
	}
	switch rapid.IntRange(0, 9).Draw(t, "command") {
	case 0, 1, 2:
		c := &appv1.UpdateApp{}
		if rapid.Bool().Draw(t, "rename") {
			c.Name = proto.String(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name"))
		}
		if rapid.Bool().Draw(t, "command line") {
			c.Command = proto.String(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "line"))
		}
		if rapid.Bool().Draw(t, "scopes") {
			c.ApiScopes = &appv1.Scopes{Scopes: app.Scopes[:rapid.IntRange(0, 2).Draw(t, "number")]}
		}
		if rapid.Bool().Draw(t, "sleeps") {
			c.SleepAfterMs = proto.Int64(int64(rapid.IntRange(0, 1).Draw(t, "after")))
		}
		return c
	case 3:
		return &appv1.SetVisibility{Visibility: appv1.Visibility(rapid.Int32Range(0, 2).Draw(t, "visibility"))}
	case 4, 5:
		return &appv1.SetDisabled{Disabled: rapid.Bool().Draw(t, "disabled")}
	case 6:
		if rapid.Bool().Draw(t, "settings") {
			return respondIn(time.Duration(rapid.IntRange(0, 2).Draw(t, "seconds")) * time.Second)
		}
		return &appv1.RestartApp{}
	case 7:
		return attach(rapid.SampledFrom([]string{"dom_1", "dom_2"}).Draw(t, "domain"), rapid.SampledFrom([]string{"a.example.com", "b.example.com"}).Draw(t, "name"))
	case 8:
		return &appv1.RecheckDomain{}
	default:
		if rapid.Bool().Draw(t, "app") {
			return &appv1.RemoveApp{TaskId: rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "task")}
		}
		return &appv1.RemoveDomain{}
	}
}

func drawReport(t *rapid.T, w *world) appv1.Command {
	generation := w.s.GetGeneration() - uint64(rapid.IntRange(0, 1).Draw(t, "behind"))
	domain := rapid.SampledFrom([]string{"dom_1", "dom_2"}).Draw(t, "domain")
	failure := rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "failure")
	switch rapid.IntRange(0, 11).Draw(t, "report") {
	case 0, 1, 2:
		return &appv1.ReportReconciled{Generation: generation, Failure: failure}
	case 3, 4:
		return &appv1.IssueKey{Generation: generation, SecretSha256: hash(rapid.Byte().Draw(t, "secret"))}
	case 5:
		return &appv1.HaltApp{Halted: rapid.Bool().Draw(t, "halted")}
	case 6:
		return &appv1.FollowAnchor{
			Path: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "path"), State: appv1.FolderState(rapid.Int32Range(1, 3).Draw(t, "state")),
			Version: rapid.Uint64Range(7, 20).Draw(t, "version"),
		}
	case 7:
		return &appv1.ReportAsleep{Generation: generation}
	case 8:
		return &appv1.WakeApp{}
	case 9:
		return &appv1.ReportStopped{TaskId: rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "task"), Failure: failure}
	case 10:
		return &appv1.ReportDomain{Domain: &appv1.Domain{
			Id: domain, Status: appv1.DomainStatus(rapid.Int32Range(1, 5).Draw(t, "status")), Revision: rapid.Uint64Range(0, 9).Draw(t, "revision"),
			RetryRequired: rapid.Bool().Draw(t, "retry"),
		}}
	default:
		if rapid.Bool().Draw(t, "refused") {
			return &appv1.ReportDomainRefused{DomainId: domain}
		}
		return &appv1.ReportDomainReleased{DomainId: domain}
	}
}

func checkLaws(t *rapid.T, w *world) {
	replayed := app.Zero(identity)
	for _, e := range w.history {
		replayed = app.Evolve(replayed, e)
	}
	if !proto.Equal(replayed, w.s) {
		t.Fatalf("replay makes %v, want %v", replayed, w.s)
	}
	s, usable := w.s, w.credential.GetRevokedAt() == 0 && len(w.credential.GetSecretSha256()) > 0
	if usable != (s.GetKey() != nil) || usable && w.credential.GetNumber() != s.GetKey().GetNumber() {
		t.Fatalf("the credential is %v, the key %v", w.credential, s.GetKey())
	}
	if usable && (!app.MayRun(s) || s.GetAsleep()) {
		t.Fatalf("a key is usable while the app may not run: %v", s)
	}
	if usable && s.GetRuntimeStatus() != reconciling && !sameScopes(w.credential.GetGrants(), s.GetAccepted().GetApiScopes()) {
		t.Fatalf("the key has the scopes %v, the configuration %v", w.credential.GetGrants(), s.GetAccepted().GetApiScopes())
	}
	checkRows(t, w)
	if s.GetRemoved() {
		return
	}
	if (s.GetRequested() == nil) != (s.GetRuntimeStatus() == reconciled || s.GetRuntimeStatus() == failed && s.GetAccepted() != nil) {
		t.Fatalf("%v with the requested configuration %v", s.GetRuntimeStatus(), s.GetRequested())
	}
	if (s.GetReconciliationError() != "") != (s.GetRuntimeStatus() == failed) {
		t.Fatalf("%v with the error %q", s.GetRuntimeStatus(), s.GetReconciliationError())
	}
	if s.GetAsleep() && !app.MayRun(s) {
		t.Fatalf("an app that may not run is asleep: %v", s)
	}
	if w.waits(&appv1.AwaitApp{Generation: s.GetGeneration()}) && w.task() != app.RunTask {
		t.Fatalf("a request waits, and no task reconciles: %v", s)
	}
	if w.waits(&appv1.AwaitApp{Removal: true}) != (w.task() == app.StopTask && !w.isStoppedForPorts()) {
		t.Fatalf("a removal without its task: %v", s)
	}
	if s.GetOrigin().GetMode() == appv1.ShareMode_SHARE_MODE_READ && (s.GetGeneration() > 1 && !restarted(w) || s.GetVisibility() == public) {
		t.Fatalf("a read-only replica was changed: %v", s)
	}
}

// isStoppedForPorts reports whether the open task is about busy ports, and not about a removal.
func (w *world) isStoppedForPorts() bool {
	stop, is := app.Tasks(w.s)[0].Message.(*appv1.StopTask)
	return is && stop.GetRemains()
}

// restarted reports whether all configurations of the history are the first one.
func restarted(w *world) bool {
	return !slices.ContainsFunc(w.history, func(e appv1.Event) bool {
		requested, is := e.(*appv1.RuntimeRequested)
		return is && requested.GetRuntime().GetCommand() != "serve"
	})
}

func sameScopes(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// checkRows compares the rows of the lists with the state.
func checkRows(t *rapid.T, w *world) {
	row, has := w.rows[app.List+" "+entity.AscendingKey(7)].(*appv1.App)
	if has == w.s.GetRemoved() {
		t.Fatalf("removed: %v, row: %v", w.s.GetRemoved(), row)
	}
	if has {
		want := proto.CloneOf(w.s)
		want.Key, want.LastKey, want.Crashes, want.Refusal, want.DomainAuthor, want.Revision, want.AnchorVersion = nil, 0, nil, nil, nil, 0, 0
		want.Ports, want.PortReservation, want.RuntimeSettings = nil, 0, nil
		if !proto.Equal(row, want) {
			t.Fatalf("the row is %v, want %v", row, want)
		}
	}
	if d := w.domainRow(); !proto.Equal(d.GetDomain(), claimed(w.s.GetDomain())) || d != nil && d.GetName() != w.s.GetName() {
		t.Fatalf("the row of the domain is %v, want %v", d, w.s.GetDomain())
	}
}

func claimed(d *appv1.Domain) *appv1.Domain {
	if !d.GetClaimed() {
		return nil
	}
	return d
}

func TestFilter(t *testing.T) {
	list := app.Lists()[app.List]
	for name, test := range map[string]struct {
		filter *appv1.Filter
		path   string
		want   bool
	}{
		"none":                    {&appv1.Filter{}, "a/b", true},
		"id":                      {&appv1.Filter{Id: "x"}, "a/b", true},
		"another id":              {&appv1.Filter{Id: "y"}, "a/b", false},
		"contains itself":         {&appv1.Filter{Containing: proto.String("a/b")}, "a/b", true},
		"contains a path below":   {&appv1.Filter{Containing: proto.String("a/b/c/d")}, "a/b", true},
		"contains not above":      {&appv1.Filter{Containing: proto.String("a")}, "a/b", false},
		"contains not beside":     {&appv1.Filter{Containing: proto.String("a/bc")}, "a/b", false},
		"self":                    {&appv1.Filter{Path: proto.String("a/b"), Scope: app.ScopeSelf}, "a/b", true},
		"self is not below":       {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeSelf}, "a/b", false},
		"children":                {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeChildren}, "a/b", true},
		"children are not deeper": {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeChildren}, "a/b/c", false},
		"no child of itself":      {&appv1.Filter{Path: proto.String("a/b"), Scope: app.ScopeChildren}, "a/b", false},
		"children of the root":    {&appv1.Filter{Path: proto.String(""), Scope: app.ScopeChildren}, "a", true},
		"deeper than the root":    {&appv1.Filter{Path: proto.String(""), Scope: app.ScopeChildren}, "a/b", false},
		"subtree":                 {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeSubtree}, "a/b/c", true},
		"subtree with the root":   {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeSubtree}, "a", true},
		"subtree of the drive":    {&appv1.Filter{Path: proto.String(""), Scope: app.ScopeSubtree}, "a/b", true},
		"not beside the subtree":  {&appv1.Filter{Path: proto.String("a"), Scope: app.ScopeSubtree}, "ab", false},
	} {
		row, err := proto.Marshal(&appv1.App{Id: "x", Path: test.path})
		if err != nil {
			t.Fatal(err)
		}
		filter, err := proto.Marshal(test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := list.Visible(entity.Call{}, row, filter); got != test.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	unknown, _ := proto.Marshal(&appv1.Filter{Path: proto.String("a"), Scope: "up"})
	if _, err := list.Visible(entity.Call{}, nil, unknown); err == nil {
		t.Error("an unknown scope is accepted")
	}
}
