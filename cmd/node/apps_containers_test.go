package node

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/tests/place"
)

// TestAppsInContainers runs apps in computers of the docker driver. Containers have no network: visitors, the supervisor and the API are
// reached through the agent. All tests use one engine: its start takes seconds.
func TestAppsInContainers(t *testing.T) {
	place.Take(t)
	engine := dockertest.Start(t, dockertest.TestAgent)
	inContainers := func(o *Options) {
		o.Computers = ComputerOptions{
			Driver: DockerDriver, Engine: engine.Address, Image: dockertest.Image, Program: engine.Agent, IdleAfter: 500 * time.Millisecond,
		}
		o.HTTP.PublicURL = &url.URL{Scheme: "http", Host: "atelier.test"}
		o.Domains.EdgeHost = "apps.test"
	}
	for _, one := range []struct {
		name string
		test func(*testing.T, ...func(*Options))
	}{
		{"runs", testAppRuns},
		{"is edited", testAppIsEdited},
		{"comes back", testAppComesBack},
		{"sleeps", testAppSleeps},
		{"is removed", func(t *testing.T, changes ...func(*Options)) {
			testAppIsRemoved(t, changes...)
			awaitNoContainer(t, engine)
		}},
		{"is visited", testAppIsVisited},
		{"is restarted by an edit", testAppIsRestarted},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, inContainers) })
	}
}

// awaitNoContainer waits until the engine has no container: the last app that ends leaves none, while the node runs.
func awaitNoContainer(t *testing.T, engine *dockertest.Engine) {
	t.Helper()
	for began := time.Now(); engine.Containers(t) > 0; {
		if time.Since(began) > 3*time.Minute {
			t.Fatal("a container is left")
		}
	}
}

// visit requests a path of the app through the edge of the node.
func (a *anApp) visit(path string) (int, string) {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), "GET", a.url+path, nil)
	a.check(err)
	r.Host = "site--acme.apps.test"
	answer, err := http.DefaultClient.Do(r)
	a.check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

// publish makes the app public.
func (a *anApp) publish() {
	a.Helper()
	a.must(http.StatusOK, a.request("PUT", "/v1/ws/acme/apps/site/visibility", map[string]any{"visibility": "public"}), nil)
}

// testAppIsVisited installs a server of the image and requests its pages through the edge. Its scripts answer with HTTP/1.0, so that only
// the end of the connection ends the response. One of them calls the API.
func testAppIsVisited(t *testing.T, changes ...func(*Options)) {
	a, made := newApp(t, &appv1.Runtime{
		InstallCommand: `mkdir cgi-bin; printf '#!/bin/sh\necho; exec wget -q -O - --header "Authorization: Bearer $SERVICE_APP_API_KEY" $SERVICE_API_URL/v1/whoami' >cgi-bin/who; chmod +x cgi-bin/who`,
		Command:        "echo the command runs; exec busybox httpd -f -p 127.0.0.1:$PORT -h .", Port: 20000, ApiScopes: []string{entity.FilesRead},
	}, changes...)
	if made.GetRuntimeStatus() != appReconciled {
		t.Fatalf("the app is %v: %s", made.GetRuntimeStatus(), made.GetReconciliationError())
	}
	a.publish()
	if status, body := a.visit("/"); status != http.StatusOK || body != "home" {
		t.Errorf("the page is %d %q", status, body)
	}
	if status, body := a.visit("/cgi-bin/who"); status != http.StatusOK || !strings.Contains(body, `"kind":"app"`) {
		t.Errorf("the script answers %d %q", status, body)
	}
	if log := a.log(); !strings.Contains(log, "\nthe command runs\n") {
		t.Errorf("the log is %s", log)
	}
	a.remove()
	if status, _ := a.visit("/"); status != http.StatusNotFound {
		t.Errorf("the page of an app that was removed is %d", status)
	}
}

// log returns the lines of the log.
func (a *anApp) log() string {
	a.Helper()
	read, release, err := a.serving.Load().apps.Logs(a.workspaceID, testAppID)
	a.check(err)
	defer release()
	all := "\n"
	for _, line := range read(0, 1000).Lines {
		all += line.Text + "\n"
	}
	return all
}

// remove removes the app by the API.
func (a *anApp) remove() {
	a.Helper()
	a.must(http.StatusOK, a.request("DELETE", "/v1/ws/acme/apps/site", nil), nil)
}

// testAppIsRestarted edits an app with processes that share a network, so that the old process ends before the new process starts.
// Visitors wait for the new process; only requests that the old process has not answered may fail.
func testAppIsRestarted(t *testing.T, changes ...func(*Options)) {
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000}, changes...)
	a.publish()
	if _, body := a.visit("/"); body != "one" {
		t.Fatalf("the app answers %q", body)
	}
	generation := a.tell(&appv1.UpdateApp{Command: proto.String("sleep 1; exec " + command("two"))}).GetGeneration()
	failures := 0
	for {
		status, body := a.visit("/")
		if body == "two" {
			break
		}
		if body != "one" {
			failures++
		}
		if failures > 2 {
			t.Fatalf("%d requests have failed, the last one with %d %q", failures, status, body)
		}
	}
	if edited := a.await(generation); edited.GetRuntimeStatus() != appReconciled {
		t.Errorf("the app is %v: %s", edited.GetRuntimeStatus(), edited.GetReconciliationError())
	}
	a.remove()
}
