package node

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/tests/race"
)

const (
	testAppID    = "app_01jd0000000000000000000001"
	testAnchorID = "anc_01jd0000000000000000000001"
	testAppPath  = "site"
)

// anApp is an app of the workspace of an agentSite.
type anApp struct {
	*agentSite
	client *http.Client
}

// newApp registers an app, and waits until its first configuration is reconciled or has failed.
func newApp(t *testing.T, runtime *appv1.Runtime, change ...func(*Options)) (*anApp, *appv1.App) {
	t.Helper()
	a := &anApp{agentSite: newAgentSite(t, func(o *Options) {
		o.Apps.FirstPause, o.Apps.Ready, o.Apps.Grace = 50*time.Millisecond, 20*time.Second, time.Second
		for _, c := range change {
			c(o)
		}
	})}
	a.client = a.newClient()
	a.put(testAppPath+"/index.html", "home")
	_, err := a.ask(entity.KindWorkspace, a.workspaceID, &workspacev1.RegisterApp{Registration: &appv1.Registration{
		AppId: testAppID, AnchorId: testAnchorID, Path: testAppPath, Slug: "site", CreatedByUserId: a.userID, Runtime: runtime,
	}})
	a.check(err)
	a.check(a.Router.Settle(t.Context(), entity.KindWorkspace, a.workspaceID))
	return a, a.await(1)
}

// newClient returns a client that sends all requests to the app.
func (a *anApp) newClient() *http.Client {
	return &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return a.serving.Load().apps.Dial(ctx, a.workspaceID, testAppID)
		},
	}}
}

func (a *anApp) ask(kind, identity string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(a.Context(), testTimeout)
	defer cancel()
	return a.Router.Ask(ctx, entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m})
}

// tell sends a command to the app, and returns its state.
func (a *anApp) tell(m proto.Message) *appv1.App {
	a.Helper()
	reply, err := a.ask(entity.KindApp, app.Identity(a.workspaceID, testAppID), m)
	a.check(err)
	return reply.(*appv1.Description).GetApp()
}

// await waits until a generation is reconciled or has failed.
func (a *anApp) await(generation uint64) *appv1.App {
	a.Helper()
	return a.tell(&appv1.AwaitApp{Generation: generation})
}

// put writes a file of the drive.
func (a *anApp) put(path, content string) {
	a.Helper()
	r, err := http.NewRequest("PUT", a.url+"/v1/ws/acme/drive/"+path, strings.NewReader(content))
	a.check(err)
	if folder := filepath.Dir(path); folder != "." {
		m, err := http.NewRequest("MKCOL", a.url+"/v1/ws/acme/drive/"+folder, nil)
		a.check(err)
		m.Header.Set("Authorization", "Bearer "+a.key)
		made, err := http.DefaultClient.Do(m)
		a.check(err)
		made.Body.Close()
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	response, err := http.DefaultClient.Do(r)
	a.check(err)
	response.Body.Close()
	if response.StatusCode >= 300 {
		a.Fatalf("PUT %s: %s", path, response.Status)
	}
}

// get requests a path of the app.
func (a *anApp) get(path string) (int, string) {
	a.Helper()
	response, err := a.client.Get("http://app" + path)
	a.check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	a.check(err)
	return response.StatusCode, string(body)
}

// command returns the command of an app that answers with the arguments.
func command(arguments string) string {
	return computer.ProgramPath + " " + probe.Command + " " + probe.App + " " + arguments
}

func TestAppRuns(t *testing.T) { testAppRuns(t) }

func testAppRuns(t *testing.T, changes ...func(*Options)) {
	a, made := newApp(t, &appv1.Runtime{
		Command: command("one"), InstallCommand: "env >install-env; echo installed", Port: 20000, ApiScopes: []string{entity.FilesRead, entity.FilesWrite},
	}, changes...)
	if made.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED {
		t.Fatalf("the app is %v: %s", made.GetRuntimeStatus(), made.GetReconciliationError())
	}
	if _, body := a.get("/"); body != "one" {
		t.Errorf("the app answers %q", body)
	}
	_, env := a.get("/env")
	var variables []string
	a.check(json.Unmarshal([]byte(env), &variables))
	var key string
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "SERVICE_APP_API_KEY":
			key = value
		case "PORT", "SERVICE_API_URL", "HOME", "PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "USER", "LOGNAME", "SHELL",
			"HOSTNAME", "TERM", "container": // of an engine
		default:
			if !strings.HasSuffix(strings.ToLower(name), "_proxy") {
				t.Errorf("the process has the variable %s", name)
			}
		}
	}
	if !strings.HasPrefix(key, "atlapp_") {
		t.Fatalf("the key is %q", key)
	}

	// The app calls the API with exactly its scopes, and is the author of its changes.
	response, err := a.client.Post("http://app/api?method=PUT&path=/v1/ws/acme/drive/made.txt", "text/plain", strings.NewReader("made"))
	a.check(err)
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Errorf("the app writes a file: %s", response.Status)
	}
	if status, body := a.get("/api?method=GET&path=/v1/whoami"); status != 200 || !strings.Contains(body, `"kind":"app"`) ||
		!strings.Contains(body, "ws:acme:files:read") || strings.Contains(body, "ws:acme:sessions") {
		t.Errorf("whoami is %d %s", status, body)
	}
	if status, body := a.get("/api?method=GET&path=/v1/ws/acme" + sessionsPath); status != http.StatusForbidden {
		t.Errorf("the app lists sessions: %d %s", status, body)
	}
	if status, _ := a.get("/api?method=GET&path=/sign-in"); status != http.StatusNotFound {
		t.Errorf("the app reaches a page for browsers: %d", status)
	}
	if status, feed := a.get("/api?method=GET&path=/v1/ws/acme/file-activity/feed"); status != 200 || !strings.Contains(feed, `"actor":"api-key:`+testAppID) {
		t.Errorf("the feed is %d %s", status, feed)
	}

	a.keyIsNowhere(key)
	a.tell(&appv1.SetDisabled{Disabled: true})
	a.check(a.Router.Settle(t.Context(), entity.KindApp, app.Identity(a.workspaceID, testAppID)))
	r, err := http.NewRequest("GET", a.url+"/v1/whoami", nil)
	a.check(err)
	r.Header.Set("Authorization", "Bearer "+key)
	a.until(func() bool { // a key is cached for a second
		refused, err := http.DefaultClient.Do(r)
		a.check(err)
		refused.Body.Close()
		return refused.StatusCode == http.StatusUnauthorized
	})
}

// keyIsNowhere fails the test if a key is in a file below the data directory, or in the environment of the install command.
func (a *anApp) keyIsNowhere(key string) {
	a.Helper()
	_, secret, _ := strings.Cut(strings.TrimPrefix(key, "atlapp_"), "_")
	found := 0
	a.check(filepath.WalkDir(a.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // a file that was removed meanwhile
		}
		content, err := os.ReadFile(path)
		if err == nil && bytes.Contains(content, []byte(secret)) {
			a.Errorf("the key is in %s", path)
		}
		if strings.HasSuffix(path, "install-env") {
			found++
			if bytes.Contains(content, []byte("SERVICE_")) || !bytes.Contains(content, []byte("PORT=20000")) {
				a.Errorf("the environment of the install command is %s", content)
			}
		}
		return nil
	}))
	if found != 1 {
		a.Error("the install command has not run")
	}
	read, release, err := a.apps.Logs(a.workspaceID, testAppID)
	a.check(err)
	defer release()
	var said []string
	for _, line := range read(0, 100).Lines {
		said = append(said, line.Stream+" "+line.Text)
	}
	if !slices.Contains(said, "stdout the key is [key]") || !slices.Contains(said, "install installed") {
		a.Errorf("the log is %q", said)
	}
}

// TestAppIsEdited changes the configuration of a running app, first to one that fails.
func TestAppIsEdited(t *testing.T) { testAppIsEdited(t) }

func testAppIsEdited(t *testing.T, changes ...func(*Options)) {
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000}, changes...)
	failed := a.await(a.tell(&appv1.UpdateApp{Command: proto.String("echo broken; exit 3"), Name: proto.String("Site")}).GetGeneration())
	if failed.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_FAILED || !strings.Contains(failed.GetReconciliationError(), "exit status 3") ||
		!strings.Contains(failed.GetReconciliationError(), "broken") {
		t.Errorf("the app is %v: %q", failed.GetRuntimeStatus(), failed.GetReconciliationError())
	}
	if failed.GetName() != "Site" || failed.GetAccepted().GetCommand() != command("one") {
		t.Errorf("the app is %v", failed)
	}
	if _, body := a.get("/"); body != "one" {
		t.Errorf("after a failed edit the app answers %q", body)
	}
	edited := a.await(a.tell(&appv1.UpdateApp{Command: proto.String(command("two"))}).GetGeneration())
	if edited.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED {
		t.Fatalf("the app is %v: %q", edited.GetRuntimeStatus(), edited.GetReconciliationError())
	}
	if _, body := a.get("/"); body != "two" {
		t.Errorf("after the edit the app answers %q", body)
	}
}

// TestAppComesBack ends the process of an app in several ways. The app comes back by itself.
func TestAppComesBack(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testAppComesBack(t)
}

func testAppComesBack(t *testing.T, changes ...func(*Options)) {
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000}, changes...)
	answers := func() {
		t.Helper()
		a.until(func() bool {
			response, err := a.client.Get("http://app/")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == 200
		})
	}
	_, err := a.client.Get("http://app/exit?status=4")
	if err == nil {
		t.Error("a request that ends the process is answered")
	}
	answers()
	described := a.tell(&appv1.DescribeApp{})
	if crashes := described.GetCrashes(); len(crashes) != 1 || crashes[0].GetReason() != "exit status 4" {
		t.Errorf("the crashes are %v", crashes)
	}
	if described.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED {
		t.Errorf("after a crash the app is %v", described.GetRuntimeStatus())
	}
	a.loseComputer()
	answers()
	a.restart()
	answers()
}

// TestAppIsRemoved removes an app. Nothing is left of it.
func TestAppIsRemoved(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testAppIsRemoved(t)
}

func testAppIsRemoved(t *testing.T, changes ...func(*Options)) {
	a, _ := newApp(t, &appv1.Runtime{Command: "sleep 1000 & " + command("one"), Port: 20000}, changes...)
	a.tell(&appv1.RemoveApp{TaskId: "task_01jd0000000000000000000001"})
	a.tell(&appv1.AwaitApp{Removal: true})
	a.check(a.Router.Settle(t.Context(), entity.KindApp, app.Identity(a.workspaceID, testAppID)))
	a.until(func() bool { return len(a.running()) == 0 })
	if _, err := os.Stat(filepath.Join(a.dir, "apps", testAppID)); !os.IsNotExist(err) {
		t.Errorf("the log of the app: %v", err)
	}
	if _, err := a.ask(entity.KindWorkspace, a.workspaceID, &workspacev1.FindApp{Slug: "site"}); !entity.IsRefusal(err) {
		t.Errorf("the workspace finds the app: %v", err)
	}
}

// TestAppSleeps ends the process of an app that gets no requests. A request wakes it.
func TestAppSleeps(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testAppSleeps(t)
}

func testAppSleeps(t *testing.T, changes ...func(*Options)) {
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000, SleepAfterMs: 300}, changes...)
	a.until(func() bool { return a.tell(&appv1.DescribeApp{}).GetAsleep() && len(a.running()) == 0 })
	a.until(func() bool {
		a.tell(&appv1.WakeApp{}) // before each request, because the app may be asleep again
		response, err := a.client.Get("http://app/")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == 200
	})
}

// TestAppChangesAtOnce changes an app through the API, and requests it right after each response: the node that answered does not serve
// the app as it was a moment ago.
func TestAppChangesAtOnce(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000}, func(o *Options) {
		o.HTTP.PublicURL = &url.URL{Scheme: "http", Host: "atelier.test"}
		o.Domains.EdgeHost = "apps.test"
		o.Edge.Limits.HeaderTime = 20 * time.Second
	})
	visit := func(status int) {
		t.Helper()
		if got, body := a.visit("/"); got != status {
			t.Errorf("the app answers %d %s, want %d", got, body, status)
		}
	}
	visit(http.StatusUnauthorized)
	for _, change := range []struct {
		path   string
		body   map[string]any
		status int
	}{
		{"visibility", map[string]any{"visibility": "public"}, http.StatusOK},
		{"visibility", map[string]any{"visibility": "folder"}, http.StatusUnauthorized},
		{"visibility", map[string]any{"visibility": "public"}, http.StatusOK},
		{"disabled", map[string]any{"disabled": true}, http.StatusServiceUnavailable},
		{"disabled", map[string]any{"disabled": false}, http.StatusOK},
	} {
		a.must(http.StatusOK, a.request("PUT", "/v1/ws/acme/apps/site/"+change.path, change.body), nil)
		visit(change.status)
	}
	a.must(http.StatusOK, a.request("PUT", "/v1/ws/acme/apps/site/runtime", map[string]any{"responseTimeoutSeconds": 1}), nil)
	if status, body := a.visit("/wait"); status != http.StatusGatewayTimeout || !strings.Contains(body, "within 1s, ") {
		t.Errorf("an app that gives no answer: %d %s", status, body)
	}
	a.must(http.StatusOK, a.request("DELETE", "/v1/ws/acme/apps/site", nil), nil)
	visit(http.StatusNotFound)
}
