package http_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// ask sends a request, expects a status and decodes the response.
func (s *stage) ask(h nethttp.Handler, key, method, path, body string, status int, out any) {
	s.Helper()
	answer := request(s, h, method, path, key, body)
	if answer.Code != status {
		s.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	if out != nil {
		if err := json.Unmarshal(answer.Body.Bytes(), out); err != nil {
			s.Fatal(err)
		}
	}
}

// An impersonation acts as the person until it expires, and the audit logs name the impersonator.
func TestImpersonation(t *testing.T) {
	s := newStage(t)
	s.person("alice")
	s.person("bob")
	s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/workspaces", `{"slug":"acme","name":"Acme"}`, 201, nil)
	admin := s.node.Server.Admin()
	s.ask(admin, "", "PATCH", "/admin/users", `{"email":"bob@example.com","internalAdmin":true}`, 200, nil)
	var started struct {
		UserID, ImpersonatorID, Key string
		ExpiresAt                   int64
	}
	s.ask(admin, "", "POST", "/admin/impersonations",
		`{"email":"alice@example.com","admin":"bob@example.com","reason":"a lost file","seconds":600}`, 201, &started)
	if started.ExpiresAt != s.clock.Now().Add(10*time.Minute).UnixMilli() || !strings.HasPrefix(started.Key, "atlimp_") {
		t.Errorf("%+v", started)
	}

	var who struct {
		User       struct{ ID string }
		Credential struct{ Kind string }
	}
	s.ask(s.node.Server, started.Key, "GET", "/v1/whoami", "", 200, &who)
	if who.User.ID != started.UserID || who.Credential.Kind != "impersonation" {
		t.Errorf("%+v", who)
	}
	s.ask(s.node.Server, started.Key, "POST", "/v1/user/api-keys", `{"name":"a way to stay"}`, 403, nil)
	s.ask(s.node.Server, started.Key, "PUT", "/v1/ws/acme/default-model", `{"tier":"balanced"}`, 200, nil)
	lines := s.export("/admin/audit?slug=acme")
	if got := lines[0]; got.Event != "default_model.changed" || got.ActorID != started.UserID || got.Provenance.Actor != started.ImpersonatorID {
		t.Errorf("row of the change: %+v", got)
	}
	if got := lines[1]; got.Event != "impersonation.started" || got.ActorID != started.ImpersonatorID || got.Provenance.Reason != "a lost file" {
		t.Errorf("row of the impersonation: %+v", got)
	}

	s.clock.advance(10 * time.Minute)
	s.ask(s.node.Server, started.Key, "GET", "/v1/whoami", "", 401, nil)
}

// An impersonation ends when its operator is disabled or is no longer an internal admin.
func TestImpersonationEndsWithItsOperator(t *testing.T) {
	s := newStage(t)
	s.person("alice")
	s.person("bob")
	admin := s.node.Server.Admin()
	for _, change := range []string{`"disabled":true`, `"internalAdmin":false`} {
		s.ask(admin, "", "PATCH", "/admin/users", `{"email":"bob@example.com","disabled":false,"internalAdmin":true}`, 200, nil)
		var started struct{ Key string }
		s.ask(admin, "", "POST", "/admin/impersonations",
			`{"email":"alice@example.com","admin":"bob@example.com","reason":"a lost file"}`, 201, &started)
		s.ask(s.node.Server, started.Key, "GET", "/v1/whoami", "", 200, nil)
		s.ask(admin, "", "PATCH", "/admin/users", `{"email":"bob@example.com",`+change+`}`, 200, nil)
		s.ask(s.node.Server, started.Key, "GET", "/v1/whoami", "", 401, nil)
		s.ask(s.node.Server, s.keys["alice"], "GET", "/v1/whoami", "", 200, nil)
	}
}

type exported struct {
	WorkspaceID, UserID, Event, ActorID string
	At                                  int64
	Provenance                          struct{ Actor, Reason, Name string }
}

func (s *stage) export(path string) (lines []exported) {
	s.Helper()
	answer := request(s, s.node.Server.Admin(), "GET", path, "", "")
	if answer.Code != 200 {
		s.Fatalf("%d %s", answer.Code, answer.Body)
	}
	for line := range strings.Lines(answer.Body.String()) {
		var e exported
		if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.HasSuffix(line, "}\n") {
			s.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, e)
	}
	return lines
}

// An export has every row of every log exactly once, newest first within a log, across pages of logs and of rows.
func TestExportReadsAllPages(t *testing.T) {
	s := newStage(t)
	s.person("alice")
	const workspaces, changes = 3, 250
	for i := range workspaces {
		s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/workspaces", fmt.Sprintf(`{"slug":"acme-%d","name":"Acme"}`, i), 201, nil)
	}
	tiers := []string{"frontier", "balanced"}
	for i := range changes {
		s.clock.advance(time.Millisecond)
		s.ask(s.node.Server, s.keys["alice"], "PUT", "/v1/ws/acme-1/default-model", fmt.Sprintf(`{"tier":%q}`, tiers[i%2]), 200, nil)
	}
	for i := range 120 { // more accounts than fit on a page
		s.ask(s.node.Server.Admin(), "", "POST", "/admin/users", fmt.Sprintf(`{"email":"p%d@example.com","keyless":true}`, i), 201, nil)
	}
	people, owned, changed := map[string]int{}, map[string]int{}, 0
	last := map[string]int64{}
	for _, e := range s.export("/admin/audit") {
		if before, seen := last[e.WorkspaceID+e.UserID]; seen && e.At > before {
			t.Errorf("%+v comes after an older row", e)
		}
		last[e.WorkspaceID+e.UserID] = e.At
		switch {
		case e.Event == "user.created":
			people[e.UserID]++
		case e.Event == "workspace.created":
			owned[e.WorkspaceID]++
		case e.Event == "default_model.changed":
			changed++
		}
	}
	if len(people) != 121 || len(owned) != workspaces || changed != changes {
		t.Errorf("%d people, %d workspaces, %d changes", len(people), len(owned), changed)
	}
	for id, n := range people {
		if n != 1 {
			t.Errorf("%s was created %d times", id, n)
		}
	}
	since := s.clock.Now().Add(-9 * time.Millisecond).UnixMilli()
	if got := s.export(fmt.Sprintf("/admin/audit?slug=acme-1&since=%d", since)); len(got) != 10 {
		t.Errorf("%d rows of the last ten milliseconds", len(got))
	}
}

// Disabling an account ends its streams at once.
func TestDisablingEndsStreams(t *testing.T) {
	s := newStage(t)
	s.person("alice")
	s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/workspaces", `{"slug":"acme","name":"Acme"}`, 201, nil)
	r, err := nethttp.NewRequestWithContext(t.Context(), "GET", s.live.URL+"/v1/ws/acme/file-activity/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	response, err := s.live.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.ask(s.node.Server.Admin(), "", "PATCH", "/admin/users", `{"email":"alice@example.com","disabled":true}`, 200, nil)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); { // the stream must end
	}
}

// A password link opens the form until a newer link replaces it.
func TestPasswordLink(t *testing.T) {
	s := newStage(t)
	var first, second struct{ PasswordLink string }
	admin := s.node.Server.Admin()
	s.ask(admin, "", "POST", "/admin/users", `{"email":"carol@example.com","keyless":true,"link":true}`, 201, &first)
	open := func(link string) int {
		at, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.node.Server.ServeHTTP(w, httptest.NewRequest("GET", at.RequestURI(), nil))
		return w.Code
	}
	if got := open(first.PasswordLink); got != 200 {
		t.Errorf("the link was answered %d", got)
	}
	s.ask(admin, "", "POST", "/admin/links", `{"email":"carol@example.com"}`, 201, &second)
	if got, old := open(second.PasswordLink), open(first.PasswordLink); got != 200 || old != 403 {
		t.Errorf("the new link was answered %d, the old one %d", got, old)
	}
}
