package edge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// hello answers with what the app sees of a request.
func hello(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s%s cookie=%q authorization=%q body=%q", r.Method, r.Host, r.RequestURI, r.Header.Get("Cookie"), r.Header.Get("Authorization"), body)
}

func TestServes(t *testing.T) {
	s := newStage(t)
	for host, want := range map[string]bool{
		"notes--acme.apps.test": true, "NOTES--acme.Apps.Test": true, "notes--acme.apps.test.": true, "notes--acme.apps.test:8080": true,
		"anything.apps.test": true, "a.b.apps.test": true,
		"atelier.test": false, "ATELIER.test.:80": false, "localhost": false, "localhost:8080": false, "127.0.0.1": false, "127.0.0.1:80": false,
		"[::1]:80": false, "::1": false, "": false, "notes--acme.apps.test:x": false, "a..b": false, "notes_acme.apps.test": false,
		"x.localhost": false, "www.elsewhere.test": false, strings.Repeat("a", 64) + ".test": false, strings.Repeat("abc.", 64) + "test": false,
	} {
		if got := s.edge.Serves(&http.Request{Host: host}); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestPublicApp(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	s.publish(id)
	response, body := s.get("/a%2Fb//c?x=1;y&z", "Host", "notes--acme.apps.test:8080")
	s.expect(response, body, 200, `GET notes--acme.apps.test:8080/a%2Fb//c?x=1;y&z cookie=""`)
	if got := response.Header.Get("X-Robots-Tag"); got != "noindex" {
		t.Errorf("X-Robots-Tag is %q at the standard address", got)
	}
	for _, host := range []string{"tasks--acme.apps.test", "notes--other.apps.test", "acme.apps.test", "elsewhere.test", "no--te--s.apps.test"} {
		response, body := s.get("/", "Host", host)
		s.expect(response, body, 404, `{"error":"not_found"`)
		response, body = s.get("/", append(document, "Host", host)...)
		s.expect(response, body, 404, "<h1>No app here</h1>")
	}
}

func TestCustomDomain(t *testing.T) {
	const active, removing, pending = appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_REMOVING, appv1.DomainStatus_DOMAIN_STATUS_PENDING
	s := newStage(t)
	id := s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Robots-Tag", "all")
		hello(w, r)
	})
	s.publish(id)
	for name, of := range map[string]struct {
		binding, copied appv1.DomainStatus
		status          int
	}{
		"active": {active, active, 200}, "pending": {pending, pending, 404}, "being removed": {active, removing, 404}, "released": {removing, active, 404},
	} {
		s.bind(id, of.binding, of.copied)
		s.advance(2 * time.Second)
		response, body := s.get("/", "Host", domain)
		if response.StatusCode != of.status {
			t.Errorf("%s: %s %s", name, response.Status, body)
		}
		if want := map[int]string{200: "all", 404: "noindex"}[of.status]; response.Header.Get("X-Robots-Tag") != want {
			t.Errorf("%s: X-Robots-Tag is %q", name, response.Header.Get("X-Robots-Tag"))
		}
	}
}

func TestPrivateApp(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	response, _ := s.get("/deep/path?x=1", document...)
	const launch = "http://atelier.test/v1/ws/acme/apps/notes/launch?host=notes--acme.apps.test&path=%2Fdeep%2Fpath%3Fx%3D1"
	if to := response.Header.Get("Location"); response.StatusCode != 302 || to != launch {
		t.Errorf("a document: %s %q", response.Status, to)
	}
	for name, headers := range map[string][]string{
		"a frame":   {"Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate", "Accept", "text/html"},
		"a script":  {"Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors"},
		"a program": nil,
	} {
		response, body := s.get("/deep", headers...)
		if response.StatusCode != 401 || !strings.Contains(body, `{"error":"unauthorized"`) || response.Header.Get("X-Robots-Tag") != "noindex" {
			t.Errorf("%s: %s %s", name, response.Status, body)
		}
	}
	response, body := s.send(s.request("POST", "/deep", "x", document...))
	s.expect(response, body, 401, "unauthorized")

	target, host := s.launch(s.alice, id, "", "/deep/path?x=1&service_access=old&y")
	response, _ = s.get(target, append(document, "Host", host)...)
	cookie := response.Header.Get("Set-Cookie")
	if to := response.Header.Get("Location"); response.StatusCode != 303 || to != "http://notes--acme.apps.test/deep/path?x=1&y" {
		t.Errorf("redeeming: %s %q", response.Status, to)
	}
	for _, attribute := range []string{"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=28800"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie %q is not %s", cookie, attribute)
		}
	}
	if strings.Contains(strings.ToLower(cookie), "domain") {
		t.Errorf("the cookie %q is not limited to the host", cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	response, body = s.get("/deep/path?x=1", "Cookie", "a=b; "+value+"; c=d", "Cookie", "atelier=session")
	s.expect(response, body, 200, `GET notes--acme.apps.test/deep/path?x=1 cookie="a=b; c=d"`)
	if text := s.logged.String(); strings.Contains(text, value) || strings.Contains(text, "atlgrant_") || strings.Contains(text, "service_access") {
		t.Errorf("a secret is logged: %s", text)
	}
}

// Access ends with each of the things that it depends on, for good.
func TestAccessEnds(t *testing.T) {
	for name, end := range map[string]func(s *stage, id string){
		"membership": func(s *stage, _ string) {
			s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.RemoveMember{UserId: s.bob.GetUserId()})
			s.settle(s.workspaceID)
		},
		"credential": func(s *stage, _ string) {
			s.ask(entity.KindCredential, s.bob.GetCredentialId(), &credentialv1.RevokeCredential{})
		},
		"account": func(s *stage, _ string) { s.ask(entity.KindUser, s.bob.GetUserId(), &userv1.Disable{}) },
		"time":    func(s *stage, _ string) { s.advance(8 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.register("notes", hello)
			s.join(s.bob)
			cookie := s.visit(s.bob, id)
			response, body := s.get("/", "Cookie", cookie)
			s.expect(response, body, 200, "GET")
			end(s, id)
			s.advance(time.Second)
			response, body = s.get("/", "Cookie", cookie)
			s.expect(response, body, 401, "unauthorized")
			if name == "membership" {
				s.join(s.bob)
				s.advance(2 * time.Second)
				response, body = s.get("/", "Cookie", cookie)
				s.expect(response, body, 401, "unauthorized")
			}
		})
	}
}

func TestStatesOfAnApp(t *testing.T) {
	s := newStage(t)
	id := s.registerOnly("notes")
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_PUBLIC})
	check := func(name string, status int, title, reason string, refreshes bool) {
		t.Helper()
		s.advance(2 * time.Second)
		response, body := s.get("/", document...)
		if response.StatusCode != status || !strings.Contains(body, "<h1>"+title) || strings.Contains(body, "refresh") != refreshes {
			t.Errorf("%s, a document: %s %s", name, response.Status, body)
		}
		if response.Header.Get("Retry-After") == "" || response.Header.Get("X-Robots-Tag") != "noindex" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", name, response.Header)
		}
		response, body = s.get("/")
		s.expect(response, body, status, fmt.Sprintf(`"reason":"%s"`, reason))
	}
	check("first start", 503, "The app is starting", "starting", true)
	s.askApp(id, &appv1.ReportReconciled{Generation: 1})
	s.reason(id, "failed")
	check("crashed", 503, "The app is down", "failed", true)
	s.reason(id, "starting")
	check("restarted", 503, "The app is starting", "starting", true)
	s.askAs(s.alice, entity.KindApp, s.workspaceID+"/"+id, &appv1.SetDisabled{Disabled: true})
	check("disabled", 503, "The app is disabled", "disabled", false)
	s.askAs(s.alice, entity.KindApp, s.workspaceID+"/"+id, &appv1.SetDisabled{})
	s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.Suspend{})
	s.settle(s.workspaceID)
	check("suspended", 503, "The app is suspended", "suspended", false)
	s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.Resume{})
	s.settle(s.workspaceID)
	s.askApp(id, &appv1.RemoveApp{TaskId: newID("tsk_")})
	s.advance(2 * time.Second)
	response, body := s.get("/")
	s.expect(response, body, 404, "not_found")
}

func TestAppThatFailedToStart(t *testing.T) {
	s := newStage(t)
	id := s.registerOnly("notes")
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_PUBLIC})
	s.askApp(id, &appv1.ReportReconciled{Generation: 1, Failure: "exit status 1"})
	response, body := s.get("/", document...)
	s.expect(response, body, 503, "It could not be started")
	if strings.Contains(body, "exit status") {
		t.Errorf("the page shows the reason to everybody: %s", body)
	}
}

// A request wakes an app that is asleep, and is answered by its process when it runs.
func TestWaking(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.StartWait = longest })
	id := s.register("notes", nil)
	s.publish(id)
	s.askApp(id, &appv1.ReportAsleep{Generation: 1})
	s.advance(2 * time.Second)
	response, body := s.get("/", document...)
	s.expect(response, body, 503, "The app is starting")
	described := s.ask(entity.KindApp, s.workspaceID+"/"+id, &appv1.DescribeApp{}).(*appv1.Description)
	if described.GetApp().GetAsleep() {
		t.Fatal("the request did not wake the app")
	}
	answered := make(chan string)
	go func() {
		_, body := s.get("/waits")
		answered <- body
	}()
	s.serveBy(id, hello)
	if body := <-answered; !strings.Contains(body, "GET notes--acme.apps.test/waits") {
		t.Errorf("the request that waited: %s", body)
	}
	if wakes := s.asks(&appv1.WakeApp{}); wakes > 2 {
		t.Errorf("%d requests to wake the app", wakes)
	}
}

// Unbound names ask the entities at most as often as the limit of the client permits; cached ones ask none.
func TestUnknownHostsAreLimited(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.AddressBurst, o.Limits.AddressInterval = 5, time.Hour })
	id := s.register("notes", hello)
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_PUBLIC})
	s.get("/")
	before := s.asks(&slugv1.ResolveSlug{})
	limited := 0
	for i := range 100 {
		response, _ := s.get("/", "Host", fmt.Sprintf("notes--space%d.apps.test", i))
		if response.StatusCode == 429 {
			limited++
			if response.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	if asked := s.asks(&slugv1.ResolveSlug{}) - before; asked != 4 || limited != 96 {
		t.Errorf("%d look-ups, %d limited", asked, limited)
	}
	for range 100 {
		response, body := s.get("/")
		s.expect(response, body, 200, "GET")
	}
}

// Names that look like custom domains are looked up before anything else of a request is read. One client cannot occupy the look-ups: its
// further names are refused, while bound names are served to it, and unknown names are looked up for others.
func TestUnknownDomainsAreLimited(t *testing.T) {
	s := newStage(t, func(o *edge.Options) {
		o.Limits.AddressBurst, o.Limits.AddressInterval, o.TrustedProxies = 5, time.Hour, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	id := s.register("notes", hello)
	s.publish(id)
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	const flooding, other = "192.0.2.1", "192.0.2.2"
	request := func(client, host string) *http.Request {
		return s.request("GET", "/", "", "Host", host, "X-Forwarded-For", client)
	}
	serves := func(client, host string) bool {
		r := request(client, host)
		r.RemoteAddr = "127.0.0.1:1"
		return s.edge.Serves(r)
	}
	if !serves(other, domain) {
		t.Fatal("the domain is not served")
	}
	before, limited := s.asks(&bindingv1.DescribeBinding{}), 0
	for i := range 100 {
		if host := fmt.Sprintf("www%d.elsewhere.test", i); serves(flooding, host) {
			limited++
			response, body := s.send(request(flooding, host))
			s.expect(response, body, 429, "rate_limited")
		}
	}
	if asked := s.asks(&bindingv1.DescribeBinding{}) - before; asked != 5 || limited != 95 {
		t.Errorf("%d look-ups, %d limited", asked, limited)
	}
	for range 10 {
		response, body := s.send(request(flooding, domain))
		s.expect(response, body, 200, "GET")
		s.advance(2 * time.Second) // the answer is too old, but the name is known
	}
	if serves(other, "www.elsewhere.test") {
		t.Error("an unknown name is not looked up for another client")
	}
}

// A client has at most AddressLookups look-ups of unknown names at the same time, whether or not it waits for them.
func TestConcurrentLookupsOfUnknownDomains(t *testing.T) {
	s := newStage(t, func(o *edge.Options) {
		o.Limits.AddressLookups, o.TrustedProxies = 2, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	hold, release := make(chan struct{}), make(chan struct{})
	s.holdBindings(hold, release)
	serves := func(client, host string) bool {
		r := s.request("GET", "/", "", "Host", host, "X-Forwarded-For", client)
		r.RemoteAddr = "127.0.0.1:1"
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it has left
		return s.edge.Serves(r.WithContext(ctx))
	}
	var asked sync.WaitGroup
	for i := range 2 {
		asked.Go(func() { serves("192.0.2.1", fmt.Sprintf("www%d.elsewhere.test", i)) })
		<-hold
	}
	if !serves("192.0.2.1", "www2.elsewhere.test") { // the edge answers 429
		t.Error("a third look-up has been made")
	}
	asked.Go(func() {
		if serves("192.0.2.2", "www3.elsewhere.test") {
			t.Error("the look-up of another client has failed")
		}
	})
	<-hold
	close(release)
	asked.Wait()
}

func TestLaunch(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	for _, of := range []struct{ host, path, want string }{
		{"", "", "http://notes--acme.apps.test/?service_access=atlgrant_"},
		{"NOTES--acme.apps.test.", "/x", "http://notes--acme.apps.test/x?service_access=atlgrant_"},
		{domain, "/x?a=b&service%5Faccess=old&c", "http://" + domain + "/x?a=b&c&service_access=atlgrant_"},
	} {
		got, err := s.launcher.Launch(t.Context(), s.alice, s.workspaceID, id, of.host, of.path)
		if err != nil || !strings.HasPrefix(got, of.want) {
			t.Errorf("%q %q: %s %v", of.host, of.path, got, err)
		}
	}
	for _, host := range []string{"elsewhere.test", "tasks--acme.apps.test", "atelier.test", "notes--acme.apps.test@elsewhere.test", "a b"} {
		if got, err := s.launcher.Launch(t.Context(), s.alice, s.workspaceID, id, host, "/"); err == nil {
			t.Errorf("%q leads to %s", host, got)
		}
	}
	for _, path := range []string{"x", "//elsewhere.test", "https://elsewhere.test/", `/\elsewhere.test`, "/a\nb", "/a\x00", "/a#b", "/%zz", "/" + strings.Repeat("a", 9000), "/a b", "/\xff"} {
		if got, err := s.launcher.Launch(t.Context(), s.alice, s.workspaceID, id, "", path); err == nil {
			t.Errorf("%q leads to %s", path, got)
		}
	}
	if got, err := s.launcher.Launch(t.Context(), s.bob, s.workspaceID, id, "", ""); err == nil {
		t.Errorf("a stranger launches %s", got)
	}
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_REMOVING)
	if got, err := s.launcher.Launch(t.Context(), s.alice, s.workspaceID, id, domain, "/"); err == nil {
		t.Errorf("a domain that is being removed leads to %s", got)
	}
}

// TestForget changes apps while the clock stands still, so that no answer ages: requests after Forget see the change, and what lasts ends.
func TestForget(t *testing.T) {
	still := time.Now()
	s := newStage(t, func(o *edge.Options) { o.Clock = func() time.Time { return still } })
	id := s.register("notes", echo(nil))
	s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	s.publish(id)
	for _, step := range []struct {
		host   string
		change func()
		before int
		after  int
	}{
		{domain, func() {
			s.bind(id, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_REMOVING)
		}, 200, 404},
		{"notes--acme.apps.test", func() {
			s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_FOLDER})
		}, 200, 401},
		{"notes--acme.apps.test", func() { s.publish(id) }, 401, 200},
		{"notes--acme.apps.test", func() {
			s.askAs(s.alice, entity.KindApp, app.Identity(s.workspaceID, id), &appv1.SetDisabled{Disabled: true})
		}, 200, 503},
		{"notes--acme.apps.test", func() { s.askApp(id, &appv1.RemoveApp{TaskId: newID("tsk_")}) }, 503, 404},
		{"other--acme.apps.test", func() { id = s.register("other", hello) }, 404, 401},
	} {
		response, body := s.get("/", "Host", step.host)
		s.expect(response, body, step.before, "")
		step.change()
		response, body = s.get("/", "Host", step.host)
		s.expect(response, body, step.before, "") // the answer that is known
		s.edge.Forget(edge.Change{AppID: id})
		response, body = s.get("/", "Host", step.host)
		s.expect(response, body, step.after, "")
	}
}

// TestKnownAppIsDescribedOnly asks about one app again and again. Only the first time the workspace is asked which app the host has.
func TestKnownAppIsDescribedOnly(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	s.publish(id)
	for range 3 {
		response, body := s.get("/")
		s.expect(response, body, 200, "GET")
		s.advance(2 * time.Second)
	}
	if found, described := s.asks(&workspacev1.FindApp{}), s.asks(&appv1.DescribeApp{}); found != 1 || described < 3 {
		t.Errorf("FindApp was asked %d times, DescribeApp %d times", found, described)
	}
	task := newID("tsk_")
	s.askApp(id, &appv1.RemoveApp{TaskId: task})
	s.askApp(id, &appv1.ReportStopped{TaskId: task})
	s.settle(s.workspaceID)
	s.advance(2 * time.Second)
	response, body := s.get("/")
	s.expect(response, body, 404, "")
	s.publish(s.register("notes", hello))
	response, body = s.get("/")
	s.expect(response, body, 200, "GET")
}
