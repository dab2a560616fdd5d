package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// newWaitingStage returns a stage that lets requests wait until there is a terminal.
func newWaitingStage(t *testing.T) *stage {
	s := newStage(t)
	s.stop()
	s.sessions.WaitTime = longest
	s.start()
	return s
}

const waitBody = `{"prompt":"Hello","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"}`

// TestConcurrentWaits repeats one request concurrently: there is one session, and each request gets the same terminal. A client
// that disconnects ends nothing but its request.
func TestConcurrentWaits(t *testing.T) {
	s := newWaitingStage(t)
	s.as = "alice"
	s.person(s.as)
	workspaceID, _ := s.startSession("acme", "Another")

	gone, leave := context.WithCancel(t.Context())
	var started struct{ SessionID string }
	s.decode(s.send("POST", "/v1/ws/acme/agent/sessions", waitBody), 201, &started)
	var left sync.WaitGroup
	left.Go(func() {
		if _, err := s.post(gone, "/v1/ws/acme/agent/sessions/wait", waitBody); !errors.Is(err, context.Canceled) {
			t.Errorf("the request that was left returned %v", err)
		}
	})
	leave()
	left.Wait()

	const clients = 200
	answers := make(chan string, clients)
	for range clients {
		go func() {
			answer, err := s.post(t.Context(), "/v1/ws/acme/agent/sessions/wait", waitBody)
			answers <- fmt.Sprint(answer, err)
		}()
	}
	identity := session.Identity(workspaceID, started.SessionID)
	if refused := s.run("claim", identity, "") + s.run("end", identity, `{"status":"TURN_STATUS_COMPLETE"}`); refused != "" {
		t.Fatal(refused)
	}
	want := <-answers
	if !strings.Contains(want, `200 {"sessionId":"`+started.SessionID) || !strings.Contains(want, `"turnStatus":"complete"`) {
		t.Errorf("a request was answered %s", want)
	}
	for range clients - 1 {
		if got := <-answers; got != want {
			t.Errorf("a request was answered %s, another one %s", got, want)
		}
	}
	var page struct{ Items []struct{ Kind string } }
	s.decode(s.send("GET", "/v1/ws/acme/agent/sessions/"+started.SessionID+"/history", ""), 200, &page)
	if len(page.Items) != 2 {
		t.Errorf("the history is %v, want the prompt and one terminal", page.Items)
	}
}

// post sends a request of the current account over the network, and returns the status and the body.
func (s *stage) post(ctx context.Context, path, body string) (string, error) {
	r, err := nethttp.NewRequestWithContext(ctx, "POST", s.live.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+s.keys[s.as])
	r.Header.Set("Content-Type", "application/json")
	response, err := s.live.Client().Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	return fmt.Sprint(response.StatusCode, " ", string(answer)), nil
}

// TestLongWait waits for longer than the server lets an ordinary answer last.
func TestLongWait(t *testing.T) {
	for name, over := range map[string]func(*bubble){"HTTP/1.1": func(*bubble) {}, "HTTP/2.0": (*bubble).overHTTP2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				over(b)
				b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
					switch m := c.Message.(type) {
					case *wirev1.List:
						return &wirev1.Page{}, nil
					case *sessionv1.StartSession:
						return &sessionv1.Accepted{InputSeq: 1, Created: true, Digest: m.GetPrompt().GetDigest()}, nil
					case *sessionv1.AwaitInput:
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return nil, nil
				}
				response := b.request("POST", "/v1/ws/acme/agent/sessions/wait", strings.NewReader(waitBody), "Content-Type", "application/json")
				if text := b.text(response); response.StatusCode != 202 || response.Proto != name {
					b.Errorf("%s over %s: %s", response.Status, response.Proto, text)
				}
			}, func(o *http.Options) { o.Sessions.WaitTime = 10 * time.Minute })
		})
	}
}

// TestWaitEndsWithAccess checks that a request that waits ends when its caller loses the access.
func TestWaitEndsWithAccess(t *testing.T) {
	for _, loss := range accessLosses {
		t.Run(loss.name, func(t *testing.T) {
			b := newBoundaryOn(t, newWaitingStage(t))
			sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
			b.stage.as, b.stage.keys["editor"] = "editor", b.people["editor"].key
			answer := make(chan string, 1)
			go func() {
				got, err := b.stage.post(t.Context(), sc.space("/agent/sessions/wait"), waitBody)
				answer <- fmt.Sprint(got, err)
			}()
			loss.lose(sc)
			if got := <-answer; !strings.HasPrefix(got, fmt.Sprint(loss.status)) || !strings.Contains(got, loss.code) {
				t.Errorf("answered %s, want %d %s", got, loss.status, loss.code)
			}
		})
	}
}

// TestAudienceEndsWaitsAndStreams removes a member from the audience of a session that the member follows and waits for.
func TestAudienceEndsWaitsAndStreams(t *testing.T) {
	b := newBoundaryOn(t, newWaitingStage(t))
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	s, editor := b.stage, b.people["editor"]
	var started struct{ SessionID string }
	s.keys["owner"], s.keys["editor"], s.as = b.people["owner"].key, editor.key, "owner"
	s.decode(s.send("POST", sc.space("/agent/sessions"), fmt.Sprintf(`{"prompt":"Hello","memberUserIds":[%q]}`, editor.id)), 201, &started)
	at := sc.space("/agent/sessions/" + started.SessionID)

	s.as = "editor"
	r, err := nethttp.NewRequestWithContext(t.Context(), "GET", s.live.URL+at+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+editor.key)
	response, err := s.live.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{response.Body, bufio.NewScanner(response.Body)}
	s.streams["events"] = f
	f.frames(1)
	answer := make(chan string, 1)
	go func() {
		got, err := s.post(t.Context(), at+"/messages/wait", `{"text":"Go on","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c02"}`)
		answer <- fmt.Sprint(got, err)
	}()
	f.frames(1) // the message: the request waits, or will soon
	s.as = "owner"
	var changed struct{}
	s.decode(s.send("PATCH", at+"/audience", fmt.Sprintf(`{"remove":[%q]}`, editor.id)), 200, &changed)
	if got := <-answer; !strings.HasPrefix(got, "404 ") {
		t.Errorf("the request was answered %s", got)
	}
	if rest := f.frames(1 << 30); rest != "" || f.lines.Err() != nil {
		t.Errorf("the stream went on with %q, %v", rest, f.lines.Err())
	}
}

// TestCwdConflict checks the answer to a move that lost against an earlier move.
func TestCwdConflict(t *testing.T) {
	w := newFakeEntities()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch m := c.Message.(type) {
		case *sessionv1.DescribeSession:
			return &sessionv1.Description{Session: &sessionv1.Session{Cwd: "before"}}, nil
		case *workspacev1.Authorize:
			return &workspacev1.Authorized{}, nil
		case *sessionv1.MoveCwd:
			if m.GetExpected() != "before" || m.GetCwd() != "a/c" {
				t.Errorf("sent %v", m)
			}
			return nil, entity.Errorf(entity.CwdConflict, "moved")
		}
		return nil, nil
	}
	got := request(t, w.server(t), "POST", "/v1/ws/acme/agent/sessions/ses_01j00000000000000000000aaa/cwd", w.key(alice), `{"cwd":"a/b/../c"}`)
	expect(t, got, 409, `{"error":"cwd_conflict","message":"moved"}`)
}
