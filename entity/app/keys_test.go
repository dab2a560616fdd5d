package app_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestKeys(t *testing.T) {
	w := newApp(t)
	if key := w.issue('a'); key.GetNumber() != 1 || !w.accepts('a') || w.credential.GetGrants()[0] != entity.FilesRead ||
		w.credential.GetUserId() != "alice" || w.credential.GetWorkspaceId() != "ws_1" {
		t.Errorf("%v, %v", key, w.credential)
	}
	w.platform().mustNotChange(&appv1.IssueKey{Generation: 1, SecretSha256: hash('a')})
	w.refused(&appv1.IssueKey{Generation: 2, SecretSha256: hash('b')}, entity.NotFound)
	w.refused(&appv1.IssueKey{Generation: 1, SecretSha256: []byte("short")}, entity.InvalidRequest)
	if w.issue('b').GetNumber() != 2 || w.accepts('a') || !w.accepts('b') {
		t.Error("the key of the next process does not replace that of the last one")
	}
	w.report("")
	// A configuration with the same scopes leaves the key to its process.
	w.must(&appv1.UpdateApp{Command: proto.String("two")})
	w.report("")
	if !w.accepts('b') {
		t.Error("an update of the command ends the key")
	}
	// New scopes need a new key: the old one ends with the old process at the latest.
	w.must(&appv1.UpdateApp{ApiScopes: &appv1.Scopes{Scopes: []string{entity.Sessions}}})
	if !w.accepts('b') {
		t.Error("the old process has lost its key before the new one runs")
	}
	w.report("")
	if w.accepts('b') {
		t.Error("a key has scopes that the configuration does not have")
	}
	w.issue('c')
	// A key that was issued for a configuration that fails ends too.
	w.must(&appv1.UpdateApp{ApiScopes: &appv1.Scopes{Scopes: []string{entity.Sessions, entity.FilesWrite}}})
	w.issue('d')
	w.report("no")
	if w.accepts('d') {
		t.Error("the key of a failed configuration is valid")
	}
	w.must(&appv1.IssueKey{Generation: w.s.GetAcceptedGeneration(), SecretSha256: hash('e')})
	if !w.accepts('e') || !slices.Equal(w.credential.GetGrants(), []string{entity.Sessions}) {
		t.Errorf("%v", w.credential)
	}
	w.must(&appv1.UpdateApp{ApiScopes: &appv1.Scopes{}})
	w.refused(&appv1.IssueKey{Generation: w.s.GetGeneration(), SecretSha256: hash('f')}, entity.InvalidRequest)
	w.report("")
	if w.accepts('e') {
		t.Error("an app without scopes has a key")
	}
}

// TestInvitingEnds takes the scope to invite from an app in each way. The invitations end with it, once, and stay while the app keeps the scope
// without a process.
func TestInvitingEnds(t *testing.T) {
	configured := func(scopes ...string) appv1.Command {
		return &appv1.UpdateApp{ApiScopes: &appv1.Scopes{Scopes: scopes}}
	}
	sleeping := func(r *appv1.Registration) { r.Runtime.SleepAfterMs = time.Hour.Milliseconds() }
	for name, test := range map[string]struct {
		change func(w *world)
		ends   bool
	}{
		"another process":       {func(w *world) { w.must(&appv1.RestartApp{}); w.issue('b'); w.report("") }, false},
		"asleep":                {func(w *world) { w.asPlatform(&appv1.ReportAsleep{Generation: 1}) }, false},
		"halted":                {func(w *world) { w.asPlatform(&appv1.HaltApp{Halted: true}) }, false},
		"one scope more":        {func(w *world) { w.must(configured(entity.Members, entity.Apps)); w.issue('b'); w.report("") }, false},
		"a failed update":       {func(w *world) { w.must(configured(entity.Members, entity.Apps)); w.issue('b'); w.report("no") }, false},
		"requested":             {func(w *world) { w.must(configured()) }, false},
		"another scope, tried":  {func(w *world) { w.must(configured(entity.Apps)); w.issue('b') }, true},
		"another scope, runs":   {func(w *world) { w.must(configured(entity.Apps)); w.report("") }, true},
		"no scope":              {func(w *world) { w.must(configured()); w.report("") }, true},
		"no scope while asleep": {func(w *world) { w.asPlatform(&appv1.ReportAsleep{Generation: 1}); w.must(configured()); w.report("") }, true},
		"disabled":              {func(w *world) { w.must(&appv1.SetDisabled{Disabled: true}) }, true},
		"broken":                {func(w *world) { w.asPlatform(&appv1.FollowAnchor{Path: "sites/shop", State: broken, Version: 8}) }, true},
		"removed":               {func(w *world) { w.must(&appv1.RemoveApp{TaskId: "t1"}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRunning(t, sleeping, func(r *appv1.Registration) { r.Runtime.ApiScopes = []string{entity.Members} })
			w.sent = nil
			test.change(w)
			n := 0
			for _, e := range w.history {
				if _, is := e.(*appv1.InvitingEnded); is {
					n++
				}
			}
			sent := slices.ContainsFunc(w.sent, func(c entity.Command) bool {
				return c.Kind == entity.KindWorkspace && c.Identity == "ws_1" && proto.Equal(c.Message, &workspacev1.EndInvitations{CredentialId: appID})
			})
			if sent != test.ends || n > 1 || (n == 1) != test.ends {
				t.Errorf("sent %v, %d events", sent, n)
			}
		})
	}
}
