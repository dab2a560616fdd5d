package http_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// TestSessionDeltas follows a session while its run writes. Text that is being written has no cursor, thoughts are not sent
// before they are whole, and the row follows. It is no transcript, because deltas are lost when a partition moves.
func TestSessionDeltas(t *testing.T) {
	s := newStage(t)
	s.as = "alice"
	s.person(s.as)
	workspaceID, sessionID := s.startSession("acme", "Hello")
	identity := session.Identity(workspaceID, sessionID)
	s.as = "alice"
	r, err := nethttp.NewRequestWithContext(t.Context(), "GET", s.live.URL+"/v1/ws/acme/agent/sessions/"+sessionID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	response, err := s.live.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{response.Body, bufio.NewScanner(response.Body)}
	s.streams["events"] = f
	f.frames(1) // the prompt: the stream follows
	if refused := s.run("claim", identity, ""); refused != "" {
		t.Fatal(refused)
	}
	for _, m := range []*sessionv1.PublishDelta{{InputSeq: 2, Text: "I am"}, {InputSeq: 2, Text: "Hm", Thought: true}, {InputSeq: 2, Text: " he"}} {
		_, err := s.node.Router.Ask(t.Context(), entity.Command{Kind: entity.KindSession, Identity: identity, Principal: entity.Platform(), Message: m})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "event: delta\ndata: {\"inputSeq\":2,\"text\":\"I am\"}\nevent: delta\ndata: {\"inputSeq\":2,\"text\":\" he\"}\n"
	if got := f.frames(2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if refused := s.run("record", identity, `{"rows":[{"text":{"text":"I am here.","inputSeq":2}}]}`); refused != "" {
		t.Fatal(refused)
	}
	if got := f.frames(1); !strings.HasPrefix(got, "id: ") || !strings.Contains(got, "event: text\n") {
		t.Errorf("the row is %q", got)
	}
}

// startSession creates a workspace and a session, and returns their ids.
func (s *stage) startSession(slug, prompt string) (workspaceID, sessionID string) {
	s.Helper()
	var created struct{ WorkspaceID string }
	s.decode(s.send("POST", "/v1/workspaces", fmt.Sprintf(`{"slug":%q,"name":"Space"}`, slug)), 201, &created)
	var started struct{ SessionID string }
	s.decode(s.send("POST", "/v1/ws/"+slug+"/agent/sessions", fmt.Sprintf(`{"prompt":%q}`, prompt)), 201, &started)
	return created.WorkspaceID, started.SessionID
}

// send sends a request as the current account.
func (s *stage) send(method, path, body string) *httptest.ResponseRecorder {
	s.Helper()
	return request(s, s.node.Server, method, path, s.keys[s.as], body)
}

// decode decodes a response with a status.
func (s *stage) decode(w *httptest.ResponseRecorder, status int, to any) {
	s.Helper()
	if w.Code != status {
		s.Fatalf("%d %s, want %d", w.Code, w.Body, status)
	}
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		s.Fatal(err)
	}
}

// TestHeadOfAStream expects that HEAD has the status of GET also if the caller does not see the session.
func TestHeadOfAStream(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	hidden := sc.startedAs("owner", `{"prompt":"Hello","memberUserIds":[]}`)
	for _, id := range []string{hidden, "ses_01j00000000000000000000zzz", "nonsense"} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := sc.drive(method, sessionsIn+"/"+id+"/events", "editor", ""); got.Code != 404 {
				t.Errorf("%s of %s: %d", method, id, got.Code)
			}
		}
	}
	if got := sc.drive("HEAD", sessionsIn+"/"+hidden+"/events", "owner", ""); got.Code != 200 {
		t.Errorf("as the owner: %d", got.Code)
	}
}
