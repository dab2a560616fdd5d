package tools_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/workspace"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/runner/tools"
)

// appResult is the result of a change of an app.
type appResult struct {
	App tools.AppView
	Log *tools.LogView
}

// appCallers are a caller of each kind that may change apps, with the workspace in its arguments if it needs it.
var appCallers = map[string]struct {
	caller tools.Caller
	in     arguments
}{
	"session": {agent("ses_1", nil), arguments{}},
	"key":     {person, arguments{"workspace": slugName}},
	"oauth":   {oauth("usr_1", entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services), arguments{"workspace": slugName}},
}

// with returns arguments with further arguments.
func with(in arguments, more ...any) arguments {
	all := arguments{}
	for name, value := range in {
		all[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i].(string)] = more[i+1]
	}
	return all
}

func TestRegisterApp(t *testing.T) {
	for name, one := range appCallers {
		t.Run(name, func(t *testing.T) {
			w := newAppWorld(t)
			c := w.client(one.caller)
			var made appResult
			c.must("register_app", with(one.in, "path", "./link/", "slug", "site", "command", "serve", "installCommand", "install", "name", "Site",
				"icon", "icon.png", "sleepAfterSeconds", 90), &made)
			got := made.App
			if got.CanonicalURL != "https://site--acme.apps.example.org/" || got.Status != "reconciled" || got.Path != "a" || got.Slug != "site" ||
				got.Name != "Site" || got.Visibility != "folder" || got.Stopped != "" || made.Log != nil {
				t.Errorf("the result is %+v", made)
			}
			if r := got.Runtime; r.Command != "serve" || r.InstallCommand != "install" || r.Port != workspace.FirstAppPort ||
				r.SleepAfterSeconds != 90 || len(r.APIScopes) != 0 {
				t.Errorf("the runtime is %+v", r)
			}
			s := w.app("site")
			if s.GetId() != got.AppID || s.GetCreatedByUserId() != "usr_1" || s.GetAccepted().GetSleepAfterMs() != 90_000 || s.GetIcon() != "icon.png" {
				t.Errorf("the app is %v", s)
			}
			if seq := w.workspace.GetAnchors()[s.GetAnchorId()].GetSeq(); seq != appSeq {
				t.Errorf("the anchor follows the drive from %d", seq)
			}
		})
	}
}

// TestRegisterAppThatFails expects the reason and the end of the log, which an agent needs to repair the app.
func TestRegisterAppThatFails(t *testing.T) {
	w := newAppWorld(t)
	w.computer = func(r *appv1.Runtime) (string, bool) {
		if r.GetCommand() == "serve" {
			return "", false
		}
		for id := range w.apps {
			_, appID := app.SplitIdentity(id)
			for i := range 30 {
				w.say(appID, "stderr", fmt.Sprint("line ", i))
			}
			w.say(appID, "stderr", strings.Repeat("<", 5000))
		}
		return "exit status 3\nno such module", false
	}
	c := w.client(agent("ses_1", nil))
	var made appResult
	c.must("register_app", arguments{"path": "a", "slug": "site", "command": "broken"}, &made)
	if made.App.Status != "reconcile_failed" || made.App.Reason != "exit status 3\nno such module" || made.App.Runtime.Command != "broken" {
		t.Errorf("the app is %+v", made.App)
	}
	if made.Log == nil || len(made.Log.Lines) == 0 || made.Log.Next != 31 {
		t.Fatalf("the log is %+v", made.Log)
	}
	if last := made.Log.Lines[len(made.Log.Lines)-1]; last.Seq != 31 || last.Stream != "stderr" || len(last.Text) != 1000 {
		t.Errorf("the last line is %+v", last)
	}
	if len(made.Log.Lines) < 2 || made.Log.Lines[len(made.Log.Lines)-2].Text != "line 29" {
		t.Errorf("the log is %+v", made.Log)
	}

	var repaired appResult
	c.must("update_app", arguments{"app": "site", "command": "serve"}, &repaired)
	if repaired.App.Status != "reconciled" || repaired.App.Reason != "" || repaired.Log != nil || repaired.App.Runtime.Command != "serve" {
		t.Errorf("the repaired app is %+v", repaired)
	}

	w.logFailure = errors.New("secret detail") // of the server alone: the change is durable
	var failed appResult
	c.must("update_app", arguments{"app": "site", "command": "broken"}, &failed)
	if failed.App.Status != "reconcile_failed" || failed.Log != nil || failed.App.Runtime.Command != "serve" {
		t.Errorf("without a log the app is %+v", failed)
	}
}

func TestRegisterAppRefusals(t *testing.T) {
	w := newAppWorld(t)
	good := arguments{"workspace": slugName, "path": "b", "slug": "other", "command": "serve"}
	w.client(person).must("register_app", arguments{"workspace": slugName, "path": "a", "slug": "site", "command": "serve", "port": 3000}, nil)
	viewer := oauth("usr_2", entity.Apps)
	for name, one := range map[string]struct {
		caller tools.Caller
		in     arguments
		want   string
	}{
		"no folder":      {person, with(good, "path", "none"), "invalid_request: path names no folder on the drive"},
		"root":           {person, with(good, "path", "/"), "invalid_request: "},
		"above the root": {person, with(good, "path", "../../none"), "invalid_request: path names no folder on the drive"},
		"slug":           {person, with(good, "slug", "a--b"), "invalid_request: "},
		"taken slug":     {person, with(good, "slug", "site"), "slug_taken: "},
		"taken folder":   {person, with(good, "path", "link"), "path_in_use: "},
		"taken port":     {person, with(good, "port", 3000), "port_in_use: "},
		"scope":          {person, with(good, "apiScopes", []string{"admin"}), "invalid_request: apiScopes"},
		"icon":           {person, with(good, "icon", "https://example.org"), "invalid_request: icon"},
		"blank command":  {person, with(good, "command", " "), "invalid_request: command"},
		"scopes of no one": {
			oauth("usr_1", entity.Apps, entity.FilesRead, entity.FilesWrite, entity.Services), with(good, "apiScopes", []string{"memory"}),
			"forbidden: the app has scopes",
		},
		"no processes":  {oauth("usr_1", entity.Apps, entity.FilesRead), good, "forbidden: the command of an app"},
		"no scope apps": {oauth("usr_1", entity.FilesRead), with(good, "path", "none"), "forbidden: "},
		"viewer":        {viewer, with(good, "path", "none"), "forbidden: "},
		"stranger":      {oauth("usr_9", entity.Apps), with(good, "path", "none"), "not_found: "},
		"no workspace":  {person, with(good, "workspace", "nowhere"), "not_found: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.client(one.caller).call("register_app", one.in, nil); !strings.HasPrefix(got, one.want) {
				t.Errorf("%q, want %q", got, one.want)
			}
		})
	}
	if len(w.apps) != 1 || len(w.workspace.GetAnchors()) != 1 {
		t.Errorf("refusals have left %d apps and %d anchors", len(w.apps), len(w.workspace.GetAnchors()))
	}
}

func TestUpdateApp(t *testing.T) {
	w := newAppWorld(t)
	c := w.client(person)
	c.must("register_app", arguments{"workspace": slugName, "path": "a", "slug": "site", "command": "serve", "installCommand": "install"}, nil)
	in := arguments{"workspace": slugName, "app": "site"}
	var made appResult
	c.must("update_app", with(in, "name", "Site"), &made)
	if made.App.Name != "Site" || w.app("site").GetGeneration() != 1 {
		t.Errorf("after a new name the app is %+v, generation %d", made.App, w.app("site").GetGeneration())
	}
	made = appResult{} // omitted fields would remain
	c.must("update_app", with(in, "command", "serve 2", "installCommand", "", "port", 4000, "apiScopes", []string{"files:read"}, "sleepAfterSeconds", 60), &made)
	if r := made.App.Runtime; r.Command != "serve 2" || r.InstallCommand != "" || r.Port != 4000 || !slices.Equal(r.APIScopes, []string{"files:read"}) ||
		r.SleepAfterSeconds != 60 {
		t.Errorf("the runtime is %+v", r)
	}
	ports := w.workspace.GetAnchors()[w.app("site").GetAnchorId()].GetApp().GetPorts()
	if len(ports) != 1 || ports[0].GetPort() != 4000 { // the other one is free again
		t.Errorf("the workspace reserves %v", ports)
	}
	made = appResult{}
	c.must("update_app", with(in, "apiScopes", []string{}, "sleepAfterSeconds", 0), &made)
	if r := made.App.Runtime; len(r.APIScopes) != 0 || r.SleepAfterSeconds != 0 || r.Command != "serve 2" {
		t.Errorf("without scopes the runtime is %+v", r)
	}
	for name, one := range map[string]struct {
		caller tools.Caller
		in     arguments
		want   string
	}{
		"nothing":       {person, in, "invalid_request: at least one property"},
		"null":          {person, with(in, "command", nil), "invalid_request: "},
		"empty command": {person, with(in, "command", ""), "invalid_request: "},
		"no app":        {person, with(in, "app", "none", "name", "x"), "not_found: no such app"},
		"no slug":       {person, with(in, "app", "A B", "name", "x"), "not_found: no such app"},
		"scopes":        {oauth("usr_1", entity.Apps), with(in, "apiScopes", []string{"files:write"}), "forbidden: "},
		"viewer":        {oauth("usr_2", entity.Apps), with(in, "name", "x"), "forbidden: "},
	} {
		if got := w.client(one.caller).call("update_app", one.in, nil); !strings.HasPrefix(got, one.want) {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
	// A refused update reserves no port.
	if got := w.client(oauth("usr_1", entity.Apps)).call("update_app", with(in, "port", 5000, "apiScopes", []string{"files:write"}), nil); !strings.HasPrefix(got, "forbidden: ") {
		t.Error(got)
	}
	if after := w.workspace.GetAnchors()[w.app("site").GetAnchorId()].GetApp().GetPorts(); len(after) != len(ports) {
		t.Errorf("the workspace reserves %v", after)
	}
}

func TestRestartApp(t *testing.T) {
	for name, one := range appCallers {
		t.Run(name, func(t *testing.T) {
			w := newAppWorld(t)
			c := w.client(one.caller)
			c.must("register_app", with(one.in, "path", "a", "slug", "site", "command", "serve"), nil)
			var made appResult
			c.must("restart_app", with(one.in, "app", "site"), &made)
			if made.App.Status != "reconciled" || w.app("site").GetGeneration() != 2 {
				t.Errorf("the app is %+v, generation %d", made.App, w.app("site").GetGeneration())
			}
			made = appResult{App: tools.AppView{AppID: made.App.AppID}}
			w.computer = func(*appv1.Runtime) (string, bool) { return "exit status 1", false }
			w.say(made.App.AppID, "stdout", "bye")
			c.must("restart_app", with(one.in, "app", "site"), &made)
			if made.App.Status != "reconcile_failed" || made.App.Reason != "exit status 1" || made.Log == nil || made.Log.Lines[0].Text != "bye" {
				t.Errorf("after a failure: %+v", made)
			}
			identity := app.Identity(workspaceID, made.App.AppID)
			w.mu.Lock()
			w.tellApp(identity, &appv1.SetDisabled{Disabled: true})
			w.mu.Unlock()
			if got := c.call("restart_app", with(one.in, "app", "site"), nil); !strings.HasPrefix(got, "invalid_request: the app cannot be restarted") {
				t.Errorf("a disabled app: %q", got)
			}
			if got := c.call("restart_app", with(one.in, "app", "none"), nil); got != "not_found: no such app" {
				t.Errorf("no app: %q", got)
			}
		})
	}
	w := newAppWorld(t)
	w.client(person).must("register_app", arguments{"workspace": slugName, "path": "a", "slug": "site", "command": "serve"}, nil)
	if got := w.client(oauth("usr_2", entity.Apps)).call("restart_app", arguments{"workspace": slugName, "app": "site"}, nil); !strings.HasPrefix(got, "forbidden: ") {
		t.Errorf("a viewer: %q", got)
	}
}

// TestAppThatStartsSlowly expects that a call ends with its time, and that restart_app waits on without another start.
func TestAppThatStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAppWorld(t)
		w.computer = func(*appv1.Runtime) (string, bool) { return "", true }
		c := w.client(agent("ses_1", nil))
		began := time.Now()
		var made appResult
		c.must("register_app", arguments{"path": "a", "slug": "site", "command": "serve", "timeoutSeconds": 20}, &made)
		if made.App.Status != "reconciling" || made.Log == nil || time.Since(began) != 20*time.Second {
			t.Errorf("%+v after %v", made, time.Since(began))
		}
		answered := make(chan appResult, 1)
		go func() {
			var out appResult
			c.must("restart_app", arguments{"app": "site"}, &out)
			answered <- out
		}()
		synctest.Wait()
		w.mu.Lock()
		if w.waiting != 1 {
			t.Errorf("%d queries wait", w.waiting)
		}
		w.tellApp(app.Identity(workspaceID, made.App.AppID), &appv1.ReportReconciled{Generation: 1})
		w.mu.Unlock()
		if got := <-answered; got.App.Status != "reconciled" || w.app("site").GetGeneration() != 1 {
			t.Errorf("%+v, generation %d", got, w.app("site").GetGeneration())
		}
	})
}

func TestListApps(t *testing.T) {
	w := newAppWorld(t)
	c := w.client(person)
	for _, name := range []string{"c", "a", "b"} {
		c.must("register_app", arguments{"workspace": slugName, "path": name, "slug": "app-" + name, "command": "serve"}, nil)
	}
	w.mu.Lock()
	for _, s := range w.apps {
		if s.GetSlug() == "app-a" {
			w.tellApp(app.Identity(workspaceID, s.GetId()), &appv1.SetDisabled{Disabled: true})
		}
	}
	w.mu.Unlock()
	for name, one := range appCallers {
		c := w.client(one.caller)
		var seen []string
		for after, more := "", true; more; {
			in := with(one.in, "limit", 2)
			if after != "" {
				in["after"] = after
			}
			var out struct {
				Apps []tools.AppView
				More bool
			}
			c.must("list_apps", in, &out)
			for _, view := range out.Apps {
				seen = append(seen, strings.TrimSpace(view.CanonicalURL+" "+view.Stopped))
				after = view.Slug
			}
			more = out.More
		}
		want := []string{"https://app-c--acme.apps.example.org/", "https://app-a--acme.apps.example.org/ disabled", "https://app-b--acme.apps.example.org/"}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: the apps are %q", name, seen)
		}
	}
	for caller, want := range map[string]string{"usr_1": "forbidden: ", "usr_9": "not_found: "} {
		for _, in := range []arguments{{}, {"after": "app-a"}, {"after": "A B"}} {
			if got := w.client(oauth(caller, entity.FilesRead)).call("list_apps", with(in, "workspace", slugName), nil); !strings.HasPrefix(got, want) {
				t.Errorf("%s, %v: %q", caller, in, got)
			}
		}
	}
	if got := c.call("list_apps", arguments{"workspace": slugName, "after": "none"}, nil); got != "not_found: no such app" {
		t.Error(got)
	}
}

// TestLargeApps registers apps with texts that JSON makes six times as long. No result is too large.
func TestLargeApps(t *testing.T) {
	w := newAppWorld(t)
	long := func(i int) string { return fmt.Sprint(strings.Repeat(strings.Repeat("<", 200)+"/", 20), i) }
	reason := strings.Repeat("<", 2000)
	w.computer = func(*appv1.Runtime) (string, bool) {
		for id := range w.apps {
			_, appID := app.SplitIdentity(id)
			w.say(appID, "stderr", slices.Repeat([]string{strings.Repeat("<", 900)}, 20)...)
		}
		return reason, false
	}
	c := w.client(agent("ses_1", nil))
	for i := range 5 {
		w.folders[long(i)] = long(i)
		var made appResult
		c.must("register_app", arguments{
			"path": long(i), "slug": fmt.Sprint("app-", i), "command": strings.Repeat("<", 8192), "installCommand": strings.Repeat("&", 8192),
		}, &made)
		if !made.App.Runtime.Truncated || made.App.Reason != reason || len(made.Log.Lines) == 0 {
			t.Errorf("the app is %.300v", made)
		}
	}
	for after, n := "", 0; ; {
		in := arguments{}
		if after != "" {
			in["after"] = after
		}
		var out struct {
			Apps []tools.AppView
			More bool
		}
		c.must("list_apps", in, &out)
		n += len(out.Apps)
		if !out.More {
			if n != 5 || after == "" {
				t.Errorf("the pages have %d apps", n)
			}
			break
		}
		after = out.Apps[len(out.Apps)-1].Slug
	}
}

func TestReadAppLogs(t *testing.T) {
	w := newAppWorld(t)
	c := w.client(person)
	var made appResult
	c.must("register_app", arguments{"workspace": slugName, "path": "a", "slug": "site", "command": "serve"}, &made)
	for name, one := range appCallers {
		w.logs = map[string][]tools.LogLine{}
		c := w.client(one.caller)
		read := func(more ...any) (lines []string, out tools.LogView) {
			t.Helper()
			var got struct {
				tools.LogView
				Status string
			}
			c.must("read_app_logs", with(with(one.in, "app", "site"), more...), &got)
			if got.Status != "reconciled" {
				t.Errorf("%s: the status is %q", name, got.Status)
			}
			for _, line := range got.Lines {
				lines = append(lines, line.Stream+" "+line.Text)
			}
			return lines, got.LogView
		}
		if lines, out := read(); len(lines) != 0 || out.Next != 0 || out.More || out.Missed {
			t.Errorf("%s: an empty log is %+v", name, out)
		}
		w.say(made.App.AppID, "install", "one", "two")
		w.say(made.App.AppID, "stdout", "three", "four", "five")
		if lines, out := read("limit", 2); !slices.Equal(lines, []string{"stdout four", "stdout five"}) || out.Next != 5 {
			t.Errorf("%s: the end is %q %+v", name, lines, out)
		}
		if lines, out := read("limit", 2, "after", 1); !slices.Equal(lines, []string{"install two", "stdout three"}) || out.Next != 3 || !out.More || out.Missed {
			t.Errorf("%s: after the first line: %q %+v", name, lines, out)
		}
		if lines, out := read("after", 5); len(lines) != 0 || out.Next != 5 || out.More {
			t.Errorf("%s: at the end: %q %+v", name, lines, out)
		}
		w.logs[made.App.AppID] = w.logs[made.App.AppID][3:] // the log has dropped its first lines
		if lines, out := read("after", 1); !slices.Equal(lines, []string{"stdout four", "stdout five"}) || !out.Missed || out.More {
			t.Errorf("%s: after lost lines: %q %+v", name, lines, out)
		}
	}
	w.say(made.App.AppID, "stdout", slices.Repeat([]string{strings.Repeat("<", 8<<10)}, 4)...)
	var out tools.LogView
	c.must("read_app_logs", arguments{"workspace": slugName, "app": "site", "after": 5}, &out)
	if len(out.Lines) != 1 || !out.More || out.Next != 6 {
		t.Errorf("of long lines, the result has %d, next %d", len(out.Lines), out.Next)
	}
	c.must("read_app_logs", arguments{"workspace": slugName, "app": "site"}, &out)
	if len(out.Lines) != 1 || out.Next != 9 {
		t.Errorf("the end of long lines has %d, next %d", len(out.Lines), out.Next)
	}
	for caller, want := range map[string]string{"usr_1": "forbidden: ", "usr_9": "not_found: "} {
		for _, slug := range []string{"site", "none", "A B"} {
			if got := w.client(oauth(caller, entity.FilesRead)).call("read_app_logs", arguments{"workspace": slugName, "app": slug}, nil); !strings.HasPrefix(got, want) {
				t.Errorf("%s, %s: %q", caller, slug, got)
			}
		}
	}
	if got := w.client(oauth("usr_2", entity.Apps)).call("read_app_logs", arguments{"workspace": slugName, "app": "site"}, nil); !strings.HasPrefix(got, "forbidden: ") {
		t.Errorf("a viewer reads the log: %q", got)
	}
	if got := c.call("read_app_logs", arguments{"workspace": slugName, "app": "none"}, nil); got != "not_found: no such app" {
		t.Error(got)
	}
	without := newAppWorld(t, func(o *tools.Options) { o.Apps.Logs = nil })
	c = without.client(person)
	c.must("register_app", arguments{"workspace": slugName, "path": "a", "slug": "site", "command": "serve"}, nil)
	if got := c.call("read_app_logs", arguments{"workspace": slugName, "app": "site"}, nil); got != "unavailable: the server runs no apps" {
		t.Error(got)
	}
}
