package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// row returns the event of a row of a session. delta returns the event of text that is being written.
func row(seq int, kind, fields string) string {
	return fmt.Sprintf("id: c%d\nevent: %s\ndata: {\"seq\":%d,\"createdAt\":1,\"kind\":%q%s}\n\n", seq, kind, seq, kind, fields)
}

func delta(text string) string {
	return fmt.Sprintf("event: delta\ndata: {\"inputSeq\":1,\"text\":%q}\n\n", text)
}

// followSession returns the frames of a stream of a session as one text, and its error.
func followSession(t *testing.T, connections ...connection) (s *script, got string, failed error) {
	s = &script{t: t, connections: connections, begin: time.Now()}
	c, err := New("http://localhost", "atl_key", WithHTTPClient(&http.Client{Transport: s}))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for frame, err := range c.SessionEvents(t.Context(), "acme", "ses_1", "c0") {
		switch {
		case err != nil:
			return s, strings.TrimSpace(out.String()), err
		case frame.Delta != nil && frame.Row == nil:
			fmt.Fprintf(&out, "delta(%d %s) ", frame.Delta.InputSeq, frame.Delta.Text)
		case frame.Cursor == fmt.Sprintf("c%d", frame.Row.Seq):
			fmt.Fprintf(&out, "%s(%d %s) ", frame.Row.Kind, frame.Row.Seq, frame.Row.Text)
		default:
			t.Errorf("the frame is %+v", frame)
		}
	}
	return s, out.String(), nil
}

func TestSessionEvents(t *testing.T) {
	long := strings.Repeat(`\u0001`, 200_000)
	for _, test := range []struct {
		name        string
		connections []connection
		want        string
		// cursors are the positions of the connections.
		cursors string
	}{
		{
			"deltas_and_rows",
			[]connection{{status: 200, sends: "retry: 1000\n\n" + row(1, "input", `,"text":"hi"`) + delta("He") + ": heartbeat\n" + delta("llo") + row(4, "text", `,"inputSeq":1,"text":"Hello"`)}, gone},
			"input(1 hi) delta(1 He) delta(1 llo) text(4 Hello)", "c0 c4",
		},
		{
			"a_delta_does_not_move_the_position",
			[]connection{{status: 200, sends: row(3, "input", "") + delta("He"), end: errCut}, {status: 200, sends: row(4, "text", `,"text":"Hello"`)}, gone},
			"input(3 ) delta(1 He) text(4 Hello)", "c0 c3 c4",
		},
		{
			"an_incomplete_row_is_sent_again",
			[]connection{{status: 200, sends: row(3, "input", "") + "id: c5\nevent: text\ndata: {\"se", end: errCut}, {status: 200, sends: row(5, "text", "")}, gone},
			"input(3 ) text(5 )", "c0 c3 c5",
		},
		{
			"the_longest_row",
			[]connection{{status: 200, sends: row(1, "input", `,"text":"`+long+`"`)}, gone},
			"input(1 " + strings.Repeat("\x01", 200_000) + ")", "c0 c1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, got, err := followSession(t, test.connections...)
				if !HasCode(err, "not_found") {
					t.Error("the stream ended with ", err)
				}
				if got != test.want {
					t.Errorf("got  %.200s\nwant %.200s", got, test.want)
				}
				if cursors := strings.Join(s.cursors, " "); cursors != test.cursors {
					t.Errorf("resumed after %q, want %q", cursors, test.cursors)
				}
			})
		})
	}
}

func TestSessionEventsMalformed(t *testing.T) {
	for name, sends := range map[string]string{
		"row": "id: c2\nevent: text\ndata: {\"seq\":\"two\"}\n\n", "delta": "event: delta\ndata: 7\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, got, err := followSession(t, connection{status: 200, sends: row(1, "input", "") + sends})
				if !errors.Is(err, errMalformed) || got != "input(1 )" {
					t.Errorf("%v after %s", err, got)
				}
			})
		})
	}
}

// TestWait checks which failures of a request that waits are repeated: only failures after the server has taken the input.
func TestWait(t *testing.T) {
	const (
		waiting = `{"sessionId":"ses_1","inputSeq":2}`
		ended   = `{"sessionId":"ses_1","inputSeq":2,"terminal":{"seq":5,"createdAt":1,"kind":"terminal","turnStatus":"ask","inputSeq":2}}`
	)
	for _, test := range []struct {
		name        string
		connections []connection
		// code is the code of the error; empty: there is a terminal.
		code string
	}{
		{"it_is_repeated_until_the_terminal", []connection{{status: 202, sends: waiting}, {status: 202, sends: waiting}, {status: 200, sends: ended}}, ""},
		{"a_restart_is_survived", []connection{
			{status: 202, sends: waiting}, {status: 200, end: errCut}, {status: 503, sends: `{"error":"unavailable"}`}, {status: 200, sends: ended},
		}, ""},
		{"an_unavailable_server", []connection{{status: 503, sends: `{"error":"unavailable"}`}}, "unavailable"},
		{"a_deleted_session", []connection{{status: 202, sends: waiting}, gone}, "not_found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, connections: test.connections, begin: time.Now()}
				c, err := New("http://localhost", "atl_key", WithHTTPClient(&http.Client{Transport: s}))
				if err != nil {
					t.Fatal(err)
				}
				found, err := c.SendMessageAndWait(t.Context(), "acme", "ses_1", SessionMessage{Text: "hi"})
				switch {
				case len(s.connections) > 0:
					t.Errorf("%d requests are missing", len(s.connections))
				case test.code != "" && !HasCode(err, test.code), test.code == "" && err != nil:
					t.Error(err)
				case test.code == "" && (found.Terminal == nil || found.Terminal.TurnStatus != "ask"):
					t.Errorf("%+v", found)
				}
			})
		})
	}
}

func TestNewRequestID(t *testing.T) {
	first, second := NewRequestID(), NewRequestID()
	if first == second || len(first) != 36 || first[14] != '4' || !strings.Contains("89ab", first[19:20]) {
		t.Error(first, second)
	}
}
