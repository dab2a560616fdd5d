package http_test

import (
	"bufio"
	"context"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestDefaultRetries repeats messages to a default session after another session has become the default, or none, and
// reuses its id for other requests, which must not choose a default.
func TestDefaultRetries(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	const (
		root  = "/agent/defaults/root"
		agent = "/agent/defaults/notes"
		first = `{"text":"Hello","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"}`
	)
	expect := func(method, path, body string, status int, part string) {
		t.Helper()
		if got := sc.drive(method, path, "owner", body); got.Code != status || !strings.Contains(got.Body.String(), part) {
			t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, got.Code, got.Body, status, part)
		}
	}
	var sent struct{ SessionID string }
	sc.stage.decode(sc.drive("POST", root+"/messages", "owner", first), 200, &sent)
	id := fmt.Sprintf(`"sessionId":%q`, sent.SessionID)

	expect("PUT", root, `{"sessionId":null}`, 200, `{"session":null}`)
	expect("POST", root+"/messages", first, 200, id)
	expect("POST", root+"/messages/wait", first, 202, id)
	expect("GET", root, "", 200, `{"session":null}`)
	expect("PUT", root, fmt.Sprintf(`{"sessionId":%q}`, sc.startedAs("owner", `{"prompt":"Other"}`)), 200, "Other")
	expect("POST", root+"/messages/wait", first, 202, id)
	expect("GET", root, "", 200, `"lastEventSeq":2`) // it has not got the message

	const second = `{"text":"Again","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c03"}`
	expect("PUT", root, fmt.Sprintf(`{%s}`, id), 200, sent.SessionID)
	expect("POST", root+"/messages/wait", second, 202, `"inputSeq":4`)
	expect("PUT", root, `{"sessionId":null}`, 200, `{"session":null}`)
	expect("POST", root+"/messages/wait", second, 202, id+`,"inputSeq":4`)
	expect("POST", root+"/messages", strings.Replace(second, "Again", "Else", 1), 422, "request_id_reused")
	expect("GET", root, "", 200, `{"session":null}`)

	expect("POST", agent+"/messages", first, 422, "request_id_reused")
	expect("GET", agent, "", 200, `{"session":null}`)
	sc.startedAs("owner", `{"prompt":"Third","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c02"}`)
	expect("POST", agent+"/messages", `{"text":"Third","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c02"}`, 422, "request_id_reused")
	expect("GET", agent, "", 200, `{"session":null}`)
}

// TestRequestIDsOfSenders sends one request as two people: the second one is no repetition of the first one.
func TestRequestIDsOfSenders(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	at := sessionsIn + "/" + sc.startedAs("owner", `{"prompt":"Hello"}`)
	const body = `{"text":"Go on","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"}`
	for _, test := range []struct {
		who    string
		status int
	}{{"owner", 200}, {"owner", 200}, {"editor", 422}, {"owner", 200}} {
		if got := sc.drive("POST", at+"/messages", test.who, body); got.Code != test.status {
			t.Errorf("as %s: %d %s, want %d", test.who, got.Code, got.Body, test.status)
		}
	}
	const start = `{"prompt":"Go on","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"}`
	if sc.startedAs("owner", start) == sc.startedAs("editor", start) {
		t.Error("two people got one session")
	}
}

// TestHiddenDefault has a default session that a member does not see.
func TestHiddenDefault(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	const root = "/agent/defaults/root"
	hidden := sc.startedAs("owner", `{"prompt":"Hello","memberUserIds":[]}`)
	sc.must("PUT", root, fmt.Sprintf(`{"sessionId":%q}`, hidden))
	for request, want := range map[string]string{
		"GET " + root: `200 {"session":null}`, "GET " + root + "/history": "404 no_default_session", "GET " + root + "/events": "404 no_default_session",
		"POST " + root + "/messages": "404 not_found", "PUT " + root: "400 sessionId must be",
	} {
		method, path, _ := strings.Cut(request, " ")
		body := map[string]string{"POST": `{"text":"a"}`, "PUT": fmt.Sprintf(`{"sessionId":%q}`, hidden)}[method]
		status, part, _ := strings.Cut(want, " ")
		if got := sc.drive(method, path, "editor", body); fmt.Sprint(got.Code) != status || !strings.Contains(got.Body.String(), part) {
			t.Errorf("%s: %d %s, want %s", request, got.Code, got.Body, want)
		}
	}
	if got := sc.drive("GET", root, "owner", ""); !strings.Contains(got.Body.String(), hidden) {
		t.Errorf("the default is %s", got.Body)
	}
}

// follow opens a stream of the workspace as the editor, until the end of the test. last is the header Last-Event-ID; empty: there is none.
func (sc *scene) follow(path, last string) *follower {
	sc.t.Helper()
	r, err := nethttp.NewRequestWithContext(sc.t.Context(), "GET", sc.stage.live.URL+sc.space(path), nil)
	if err != nil {
		sc.t.Fatal(err)
	}
	r.Header.Set("Authorization", sc.bearerOf("editor")["Authorization"])
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	response, err := sc.stage.live.Client().Do(r)
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.t.Cleanup(func() { response.Body.Close() })
	return &follower{response.Body, bufio.NewScanner(response.Body)}
}

// TestSessionStreamPositions resumes a stream with the parameter, and with the header, which has precedence.
func TestSessionStreamPositions(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	at := sessionsIn + "/" + sc.startedAs("owner", `{"prompt":"One"}`)
	sc.must("POST", at+"/messages", `{"text":"Two"}`)
	sc.must("POST", at+"/messages", `{"text":"Three"}`)
	follow := func(query, last string, frames int) string {
		t.Helper()
		return sc.follow(at+"/events"+query, last).frames(frames)
	}
	var ids []string
	for line := range strings.Lines(follow("", "", 3)) {
		if id, is := strings.CutPrefix(line, "id: "); is {
			ids = append(ids, strings.TrimSpace(id))
		}
	}
	if len(ids) != 3 {
		t.Fatal(ids)
	}
	for _, test := range []struct{ query, last, want string }{
		{"?cursor=" + ids[0], "", "Two"}, {"?cursor=" + ids[0], ids[1], "Three"}, {"", ids[0], "Two"}, {"?cursor=" + ids[1], "", "Three"},
	} {
		if got := follow(test.query, test.last, 1); !strings.Contains(got, `"text":"`+test.want+`"`) {
			t.Errorf("after %s %s: %s, want %s", test.query, test.last, got, test.want)
		}
	}
	other := sessionsIn + "/" + sc.startedAs("owner", `{"prompt":"Other"}`)
	for _, id := range ids {
		sc.expectInvalidCursor("owner", other+"/events", id)
		sc.expectInvalidCursor("owner", at+"/history", id)
		if got := sc.drive("GET", other+"/events", "owner", "", "Last-Event-ID", id); got.Body.String() != `{"error":"invalid_cursor"}` {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
}

// TestDefaultStreamGoesOn follows a default session until another session becomes the default: the stream ends, and goes on with the rows of
// that session.
func TestDefaultStreamGoesOn(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	const root = "/agent/defaults/root"
	first, second := sc.startedAs("owner", `{"prompt":"One"}`), sc.startedAs("owner", `{"prompt":"Two"}`)
	choose := func(id string) {
		t.Helper()
		if got := sc.drive("PUT", root, "owner", `{"sessionId":`+id+`}`); got.Code != 200 {
			t.Fatalf("PUT: %d %s", got.Code, got.Body)
		}
	}
	open := func(path, last string) *follower {
		t.Helper()
		return sc.follow(path+"/events", last)
	}
	idOf := func(frame string) string {
		t.Helper()
		_, id, found := strings.Cut(frame, "id: ")
		if !found {
			t.Fatalf("no id: %s", frame)
		}
		id, _, _ = strings.Cut(id, "\n")
		return id
	}
	choose(strconv.Quote(first))
	stream := open(root, "")
	frame := stream.frames(1)
	if !strings.Contains(frame, `"text":"One"`) {
		t.Fatalf("the first frame is %s", frame)
	}
	choose("null") // it does not end the stream: there is no other session to go on with
	choose(strconv.Quote(second))
	for stream.lines.Scan() {
	}
	if err := stream.lines.Err(); err != nil {
		t.Errorf("the stream breaks off: %v", err)
	}
	last := idOf(frame)
	frame = open(root, last).frames(1)
	if !strings.Contains(frame, `"text":"Two"`) {
		t.Errorf("the stream goes on with %s, want the first row of the other session", frame)
	}
	sc.must("POST", root+"/messages", `{"text":"Three"}`)
	for path, after := range map[string]string{root: idOf(frame), sessionsIn + "/" + second: idOf(open(sessionsIn+"/"+second, "").frames(1))} {
		if frame := open(root, after).frames(1); !strings.Contains(frame, `"text":"Three"`) {
			t.Errorf("after an id of %s: %s, want the row after it", path, frame)
		}
	}
	for _, path := range []string{sessionsIn + "/" + second, "/agent/defaults/notes"} {
		if got := sc.drive("GET", path+"/events", "owner", "", "Last-Event-ID", last); got.Code < 400 {
			t.Errorf("%s with an id of the default stream: %d, want a refusal", path, got.Code)
		}
	}
}

// TestDefaultStreamAsksAgain refuses the question for another default session for some time, as an entity does that holds too many. The
// stream ends soon after another session has become the default.
func TestDefaultStreamAsksAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const id = "ses_01j00000000000000000000aaa"
		began := time.Now()
		b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			switch m := c.Message.(type) {
			case *workspacev1.ReadDefaultSessions:
				switch {
				case m.GetOwner() == "":
					return &workspacev1.DefaultSessions{Sessions: map[string]string{workspace.RootOwner: id}}, nil
				case time.Since(began) < time.Minute:
					return nil, entity.Errorf(entity.Unavailable, "too many requests wait for this")
				}
				return &workspacev1.DefaultSessions{}, nil
			case *sessionv1.DescribeSession:
				return &sessionv1.Description{Session: &sessionv1.Session{Id: id}}, nil
			}
			return nil, nil
		}
		b.text(b.request("GET", "/v1/ws/acme/agent/defaults/root/events", nil))
		if lasted := time.Since(began); lasted < time.Minute || lasted > 2*time.Minute {
			b.Errorf("the stream lasted %v", lasted)
		}
		if n := b.world.count(&workspacev1.ReadDefaultSessions{}); n > 30 {
			b.Errorf("%d questions", n)
		}
	})
}
