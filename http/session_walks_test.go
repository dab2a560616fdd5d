package http_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// listed is a page of sessions, or of rows.
type listed struct {
	Items []struct {
		ID                 string
		Seq                uint64
		Unread             bool
		CreatedBySessionID string
	}
	NextCursor *string
}

// page reads a page below the workspace of a scene.
func (sc *scene) page(who, path string) (p listed) {
	sc.t.Helper()
	got := sc.drive("GET", path, who, "")
	if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != 200 {
		sc.t.Fatalf("%s: %d %s", path, got.Code, got.Body)
	}
	return p
}

func (p listed) ids() (ids []string) {
	for _, item := range p.Items {
		ids = append(ids, item.ID)
	}
	return ids
}

func (sc *scene) expectInvalidCursor(who, path, cursor string) {
	sc.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	path += separator + "cursor=" + url.QueryEscape(cursor)
	if got := sc.drive("GET", path, who, ""); got.Code != 400 || got.Body.String() != `{"error":"invalid_cursor"}` {
		sc.t.Errorf("%s as %s: %d %s", path, who, got.Code, got.Body)
	}
}

const sessionsIn = "/agent/sessions"

// TestSessionWalk walks through the sessions while others are started, renamed, archived and deleted, and written to.
func TestSessionWalk(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	var stay, others []string
	for i := range 24 {
		id := sc.startedAs("owner", fmt.Sprintf(`{"prompt":"Session %d"}`, i))
		if i%4 == 3 {
			others = append(others, id)
		} else {
			stay = append(stay, id)
		}
		b.stage.clock.advance(time.Duration(i%2) * time.Second) // some in one millisecond
	}
	seen, cursor := map[string]int{}, ""
	for i := 0; ; i++ {
		p := sc.page("owner", sessionsIn+"?limit=5&bucket=running"+cursor)
		for _, id := range p.ids() {
			seen[id]++
		}
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
		sc.startedAs("editor", `{"prompt":"Meanwhile"}`)
		sc.must("POST", sessionsIn+"/"+stay[0]+"/messages", `{"text":"Meanwhile"}`)
		sc.must("PATCH", sessionsIn+"/"+stay[len(stay)-1], fmt.Sprintf(`{"title":"Title %d"}`, i))
		if len(others) > 1 {
			sc.must("DELETE", sessionsIn+"/"+others[0], "")
			sc.must("PUT", sessionsIn+"/"+others[1]+"/archive", `{"scope":"global","archived":true}`)
			others = others[2:]
		}
	}
	for _, id := range stay {
		if seen[id] != 1 {
			t.Errorf("%s was seen %d times", id, seen[id])
		}
	}
	for id, times := range seen {
		if times > 1 {
			t.Errorf("%s was seen %d times", id, times)
		}
	}
}

// TestSessionCursors uses the cursors of walks in others.
func TestSessionCursors(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	other := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	var parents []string
	for range 2 {
		parent := sc.startedAs("owner", `{"prompt":"Parent"}`)
		parents = append(parents, parent)
		for range 2 {
			sc.must("POST", sessionsIn+"/"+parent+"/sessions", `{"prompt":"Child"}`)
		}
		sc.must("POST", sessionsIn+"/"+parent+"/messages", `{"text":"More"}`)
	}
	children, histories := sessionsIn+"/"+parents[0]+"/sessions", sessionsIn+"/"+parents[0]+"/history"

	all := *sc.page("owner", sessionsIn+"?limit=1").NextCursor
	sc.page("owner", sessionsIn+"?limit=2&cursor="+all) // the limit may change
	below := *sc.page("owner", children+"?limit=1").NextCursor
	rows := *sc.page("owner", histories+"?limit=1").NextCursor
	sc.page("editor", histories+"?limit=1&cursor="+rows) // all readers have the same rows
	for _, cursor := range []string{"", "x", all[:len(all)-2], all + "A", flipped(all), below, rows} {
		sc.expectInvalidCursor("owner", sessionsIn, cursor)
	}
	sc.expectInvalidCursor("editor", sessionsIn, all)
	other.expectInvalidCursor("owner", sessionsIn, all)
	for _, filter := range []string{
		"bucket=running", "archived=only", "search=a", "agentId=a", "excludeDefault=true", "topLevel=true",
	} {
		sc.expectInvalidCursor("owner", sessionsIn+"?"+filter, all)
		sc.expectInvalidCursor("owner", children+"?"+filter, below)
	}
	for _, cursor := range []string{"", all, rows, flipped(below)} {
		sc.expectInvalidCursor("owner", children, cursor)
	}
	sc.expectInvalidCursor("owner", sessionsIn+"/"+parents[1]+"/sessions", below)
	sc.expectInvalidCursor("owner", sessionsIn+"/"+parents[1]+"/history", rows)
	sc.expectInvalidCursor("owner", histories+"?order=asc", rows)
	sc.expectInvalidCursor("owner", histories+"?order=asc&afterSeq=1", *sc.page("owner", histories+"?order=asc&limit=1").NextCursor)
	for _, cursor := range []string{"1", "2", all, rows, flipped(rows)} {
		sc.expectInvalidCursor("owner", sessionsIn+"/"+parents[0]+"/events", cursor)
	}
}

// TestSessionsOfOtherWorkspaces uses the id of a session in another workspace of its creator.
func TestSessionsOfOtherWorkspaces(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	other := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	foreign, own := sc.startedAs("owner", `{"prompt":"Hello"}`), other.startedAs("owner", `{"prompt":"Hello"}`)
	for _, test := range []struct {
		request, body string
		status        int
	}{
		{"GET " + sessionsIn + "/" + foreign, "", 404},
		{"GET " + sessionsIn + "/" + foreign + "/events", "", 404},
		{"POST " + sessionsIn + "/" + foreign + "/sessions", `{"prompt":"Child"}`, 404},
		{"DELETE " + sessionsIn + "/" + foreign, "", 204},
		{"PUT /agent/defaults/root", fmt.Sprintf(`{"sessionId":%q}`, foreign), 400},
		{"POST " + sessionsIn + "/" + own + "/messages", fmt.Sprintf(`{"text":"a","sourceSessionId":%q}`, foreign), 400},
		{"POST " + sessionsIn + "/" + own + "/notes", fmt.Sprintf(`{"text":"a","sourceSessionId":%q}`, foreign), 400},
		{"POST " + sessionsIn + "/" + own + "/messages", fmt.Sprintf(`{"text":"a","sourceSessionId":%q}`, own), 200},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		if got := other.drive(method, path, "owner", test.body); got.Code != test.status {
			t.Errorf("%s %s: %d %s, want %d", test.request, test.body, got.Code, got.Body, test.status)
		}
	}
	if got := sc.drive("GET", sessionsIn+"/"+foreign, "owner", ""); got.Code != 200 {
		t.Errorf("the session was changed: %d %s", got.Code, got.Body)
	}
}

func flipped(cursor string) string {
	letter := "A"
	if cursor[10] == 'A' {
		letter = "B"
	}
	return cursor[:10] + letter + cursor[11:]
}

// TestReadersOfSessions checks the values that each reader has alone: the read marker, the personal archive, and the hidden sessions.
func TestReadersOfSessions(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	parent := sc.startedAs("owner", `{"prompt":"Parent"}`)
	b.stage.clock.advance(time.Second)
	child := func(at, body string) string {
		var started struct{ SessionID string }
		sc.stage.decode(sc.drive("POST", sessionsIn+"/"+at+"/sessions", "owner", body), 201, &started)
		b.stage.clock.advance(time.Second)
		return started.SessionID
	}
	open, hidden := child(parent, `{"prompt":"Open"}`), child(parent, `{"prompt":"Hidden","memberUserIds":[]}`)
	grandchild := child(hidden, `{"prompt":"Grandchild"}`)

	expect := func(who, path string, want ...string) {
		t.Helper()
		if got := sc.page(who, path).ids(); !slices.Equal(got, want) {
			t.Errorf("%s as %s: %v, want %v", path, who, got, want)
		}
	}
	children := sessionsIn + "/" + parent + "/sessions"
	expect("owner", children, hidden, open)
	expect("editor", children, open)
	expect("owner", sessionsIn+"/"+hidden+"/sessions", grandchild)
	expect("editor", sessionsIn+"?topLevel=true", parent)
	expect("editor", sessionsIn, grandchild, open, parent)
	for _, item := range sc.page("editor", sessionsIn+"?search=grand").Items {
		if item.CreatedBySessionID != hidden {
			t.Errorf("the parent of the grandchild is %q", item.CreatedBySessionID)
		}
	}

	// The personal archive and the marker of the viewer are not the archive and the marker of other readers.
	unread := func(who string) bool { return sc.page(who, sessionsIn+"?search=parent&limit=1").Items[0].Unread }
	if !unread("viewer") || !unread("editor") || unread("owner") {
		t.Error("a new session is unread for everybody but its author")
	}
	if got := sc.drive("PUT", sessionsIn+"/"+parent+"/read", "viewer", `{"seq":2}`); got.Code != 200 {
		t.Error(got.Code, got.Body)
	}
	if unread("viewer") || !unread("editor") {
		t.Error("a marker is its reader's own")
	}
	if got := sc.drive("PUT", sessionsIn+"/"+parent+"/archive", "viewer", `{"scope":"personal","archived":true}`); got.Code != 200 {
		t.Error(got.Code, got.Body)
	}
	expect("viewer", sessionsIn+"?topLevel=true")
	expect("viewer", sessionsIn+"?archived=only", parent)
	expect("viewer", children, open) // the parent's archive is not its children's
	expect("editor", sessionsIn+"?topLevel=true", parent)
	expect("editor", sessionsIn+"?archived=only")
	sc.must("PUT", sessionsIn+"/"+open+"/archive", `{"scope":"global","archived":true}`)
	expect("viewer", sessionsIn+"?archived=only", open, parent)
	expect("editor", sessionsIn+"?archived=only", open)
	expect("editor", children+"?archived=only", open)
	expect("editor", children)

	// A deletion covers the descendants.
	sc.must("DELETE", sessionsIn+"/"+parent, "")
	sc.settle(t, sc.id)
	for _, id := range []string{parent, open, hidden, grandchild} {
		b.await(t, func() bool { return sc.drive("GET", sessionsIn+"/"+id, "owner", "").Code == 404 })
	}
	expect("owner", sessionsIn)
	expect("owner", sessionsIn+"?archived=only")
}

// await asks until a condition holds: the work of a task is done in the background.
func (b *boundary) await(t *testing.T, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		if time.Since(began) > longest {
			t.Fatal("it does not hold")
		}
	}
}

// TestAudiencePreview has an audience of more members than a preview shows.
func TestAudiencePreview(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	for _, name := range []string{"host", "admin", "outsider"} {
		sc.admit(sc.stage.newID("inv_"), sc.people[name], workspacev1.Role_ROLE_EDITOR)
	}
	var ids []string
	for _, name := range []string{"viewer", "editor", "target", "host", "admin", "outsider", "owner"} {
		ids = append(ids, sc.people[name].id)
	}
	members, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	at := sessionsIn + "/" + sc.startedAs("owner", `{"prompt":"Hello"}`)
	var changed struct {
		Session struct {
			Audience struct {
				Kind    string
				Count   int
				Preview []map[string]string
			}
		}
	}
	sc.stage.decode(sc.drive("PATCH", at+"/audience", "owner", fmt.Sprintf(`{"kind":"specific","add":%s}`, members)), 200, &changed)
	audience := changed.Session.Audience
	if audience.Kind != "specific" || audience.Count != 7 || len(audience.Preview) != 5 {
		t.Fatalf("%+v", audience)
	}
	want := map[string]string{
		"memberId": ids[0], "userId": ids[0], "name": "viewer", "email": "viewer@example.com", "role": "viewer",
	}
	if got := audience.Preview[0]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the preview has %v, want %v", got, want)
	}
	sc.stage.decode(sc.drive("PATCH", at+"/audience", "owner", `{"kind":"workspace"}`), 200, &changed)
	if got := sc.drive("GET", at, "owner", "").Body.String(); !strings.Contains(got, `"audience":{"kind":"workspace"},`) {
		t.Errorf("the audience is not the workspace: %s", got)
	}
}
