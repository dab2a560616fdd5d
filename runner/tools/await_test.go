package tools_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner/tools"
)

func TestAwaitSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parent := w.started()
		c := w.client(agent(parent, nil))
		var ids []string
		for range 3 {
			var child struct{ SessionID string }
			c.must("start_session", arguments{"prompt": "A part"}, &child)
			ids = append(ids, child.SessionID)
		}
		type answer struct {
			Done    []tools.EndedSession
			Running []string
		}
		await := func(in arguments) chan answer {
			answered := make(chan answer, 1)
			go func() {
				var out answer
				c.must("await_sessions", in, &out)
				answered <- out
			}()
			synctest.Wait()
			return answered
		}
		all, one := await(arguments{"timeoutSeconds": 300}), await(arguments{"sessionIds": ids[:2], "until": "any"})
		w.end(ids[0], "First", &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE})
		if got := <-one; len(got.Done) != 1 || got.Done[0].Text != "First" || got.Done[0].TurnStatus != "complete" || !slices.Equal(got.Running, ids[1:2]) {
			t.Errorf("any: %+v", got)
		}
		w.end(ids[1], "", &sessionv1.EndTurn{
			Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED, Error: &sessionv1.Failure{Code: "runner_lost", Message: "The runner was lost."},
		})
		w.end(ids[2], strings.Repeat("€", 100_000), &sessionv1.EndTurn{
			Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: &sessionv1.Ask{Text: "Which?"},
		})
		got := <-all
		if len(got.Done) != 3 || len(got.Running) != 0 {
			t.Fatalf("all: %+v", got)
		}
		for _, end := range got.Done {
			switch end.SessionID {
			case ids[1]:
				if end.TurnStatus != "interrupted" || end.Error == nil || end.Error.Code != "runner_lost" || end.Text != "" {
					t.Errorf("interrupted: %+v", end)
				}
			case ids[2]:
				if end.TurnStatus != "ask" || end.Question != "Which?" || !end.Truncated || strings.Trim(end.Text, "€") != "" {
					t.Errorf("asking: %.100v", end)
				}
			}
		}
	})
}

// A wait ends early if its caller may have gone. Its result is the result at the end of its time.
func TestAwaitEndsWithTheWaitOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.started()
		patience, leave := context.WithCancel(t.Context())
		caller := person
		caller.Wait = func(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
			if most != 20*time.Second {
				t.Errorf("the wait has %s", most)
			}
			waiting, end := context.WithCancel(ctx)
			unwatch := context.AfterFunc(patience, end)
			return waiting, func() { unwatch(); end() }
		}
		c := w.client(caller)
		began := time.Now()
		time.AfterFunc(3*time.Second, leave)
		var out struct{ Running []string }
		c.must("await_sessions", arguments{"workspace": slugName, "sessionIds": []string{id}, "timeoutSeconds": 20}, &out)
		if waited := time.Since(began); waited != 3*time.Second || !slices.Equal(out.Running, []string{id}) {
			t.Errorf("after %s: %+v", waited, out)
		}
	})
}

func TestAwaitEndsWithItsTimeAndItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.started()
		c := w.client(person)
		in := arguments{"workspace": slugName, "sessionIds": []string{id}, "timeoutSeconds": 20}
		began := time.Now()
		var out struct{ Running []string }
		c.must("await_sessions", in, &out)
		if len(out.Running) != 1 || time.Since(began) != 20*time.Second {
			t.Errorf("%+v after %v", out, time.Since(began))
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "await_sessions", Arguments: in})
			ended <- err
		}()
		synctest.Wait()
		if w.waiting != 1 {
			t.Fatalf("%d queries wait", w.waiting)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if w.waiting != 0 {
			t.Errorf("%d queries wait after the client has gone", w.waiting)
		}
	})
}

func TestAwaitRefusals(t *testing.T) {
	w := newWorld(t)
	id := w.started()
	for _, one := range []struct {
		caller tools.Caller
		in     arguments
		want   string
	}{
		{person, arguments{"workspace": slugName}, "invalid_request: sessionIds is required"},
		{agent(id, nil), arguments{"sessionIds": []string{id}}, "invalid_request: a session cannot await itself"},
		{agent(id, nil), arguments{"sessionIds": []string{"ses_01j99999999999999999999999"}}, "not_found: no such session"},
	} {
		if got := w.client(one.caller).call("await_sessions", one.in, nil); got != one.want {
			t.Errorf("%v: %q, want %q", one.in, got, one.want)
		}
	}
	var out struct{ Done, Running []any }
	w.client(agent(id, nil)).must("await_sessions", nil, &out)
	if len(out.Done)+len(out.Running) != 0 {
		t.Errorf("a session without children awaits %+v", out)
	}
}

// TestAwaitOfASessionThatAsksBeforeAFollowUp expects that the follow-up, which waits for the answer, is not awaited.
func TestAwaitOfASessionThatAsksBeforeAFollowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.started()
		c := w.client(person)
		c.must("message_session", arguments{"workspace": slugName, "sessionId": id, "text": "Later", "behavior": "follow_up"}, nil)
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			w.end(id, "", &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: &sessionv1.Ask{Text: "Which?"}})
		}()
		var out struct{ Done []tools.EndedSession }
		c.must("await_sessions", arguments{"workspace": slugName, "sessionIds": []string{id}}, &out)
		if len(out.Done) != 1 || out.Done[0].Question != "Which?" || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", out, time.Since(began))
		}
	})
}

// TestAwaitOfASessionWithAFollowUp expects the last text of a session that asks, also if a follow-up has arrived since.
func TestAwaitOfASessionWithAFollowUp(t *testing.T) {
	w := newWorld(t)
	id := w.started()
	c := w.client(person)
	w.end(id, "Half of it", &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: &sessionv1.Ask{Text: "Which?"}})
	c.must("message_session", arguments{"workspace": slugName, "sessionId": id, "text": "Later", "behavior": "follow_up"}, nil)
	var out struct{ Done []tools.EndedSession }
	c.must("await_sessions", arguments{"workspace": slugName, "sessionIds": []string{id}}, &out)
	if len(out.Done) != 1 || out.Done[0].Question != "Which?" || out.Done[0].Text != "Half of it" {
		t.Errorf("%+v", out)
	}
}
