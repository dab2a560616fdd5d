package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is an http.RoundTripper that responds to each request with the next of its connections.
type script struct {
	t           *testing.T
	connections []connection
	cursors     []string
	at          []time.Duration
	begin       time.Time
}

// connection is a response: its data, and then its end, an error or silence.
type connection struct {
	status int
	sends  string
	end    error
	silent bool
}

var errCut = errors.New("cut")

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.cursors = append(s.cursors, r.Header.Get("Last-Event-ID"))
	s.at = append(s.at, time.Since(s.begin))
	if len(s.connections) == 0 {
		s.t.Fatal("more connections than expected")
	}
	next := s.connections[0]
	s.connections = s.connections[1:]
	response := &http.Response{StatusCode: next.status, Header: http.Header{}, Request: r}
	response.Body = io.NopCloser(io.MultiReader(strings.NewReader(next.sends), &ending{r.Context(), next}))
	return response, nil
}

// ending is the end of the body of a connection.
type ending struct {
	ctx context.Context
	connection
}

func (e *ending) Read([]byte) (int, error) {
	switch {
	case e.silent:
		<-e.ctx.Done()
		return 0, e.ctx.Err()
	case e.end != nil:
		return 0, e.end
	}
	return 0, io.EOF
}

func frames(seqs ...int) string {
	var out strings.Builder
	for _, seq := range seqs {
		fmt.Fprintf(&out, "id: c%d\nevent: write\ndata: {\"seq\":%d,\"event\":{\"kind\":\"write\",\"path\":\"a\",\"actor\":\"system\",\"at\":1}}\n\n", seq, seq)
	}
	return out.String()
}

func follow(t *testing.T, connections ...connection) (s *script, seqs []uint64, failed error) {
	s = &script{t: t, connections: connections, begin: time.Now()}
	c, err := New("http://localhost", "atl_key", WithHTTPClient(&http.Client{Transport: s}))
	if err != nil {
		t.Fatal(err)
	}
	for frame, err := range c.Events(t.Context(), "acme", EventsQuery{}) {
		if err != nil {
			return s, seqs, err
		}
		if frame.Cursor != fmt.Sprintf("c%d", frame.Seq) || frame.Event.Path != "a" {
			t.Errorf("the frame is %+v", frame)
		}
		seqs = append(seqs, frame.Seq)
	}
	return s, seqs, nil
}

var gone = connection{status: 404, sends: `{"error":"not_found","message":"not found"}`}

func TestStreamResumesAfterTheLastRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seqs, err := follow(t,
			connection{status: 200, sends: "retry: 2000\n\n: hello\n" + frames(1, 2) + strings.TrimSuffix(frames(3), "\n\n")},
			connection{status: 200, sends: frames(3) + "id: c4\ndata: {\"se", end: errCut},
			connection{status: 503, sends: `{"error":"unavailable"}`},
			connection{status: 200, sends: frames(4), silent: true},
			gone)
		if !HasCode(err, "not_found") {
			t.Error("the stream ended with ", err)
		}
		if got := fmt.Sprint(seqs); got != "[1 2 3 4]" {
			t.Error("rows ", got)
		}
		if got := strings.Join(s.cursors, " "); got != " c2 c3 c3 c4" {
			t.Errorf("resumed after %q", got)
		}
		// The pause is the server's after a normal end and a first failure, twice that after a second failure in a row,
		// and a minute more after silence; each plus up to half of it.
		for i, least := range []time.Duration{0, 2, 2, 4, 62} {
			least *= time.Second
			if i > 0 {
				if pause := s.at[i] - s.at[i-1]; pause < least || pause > least+least/2 {
					t.Errorf("connection %d was opened after %s", i, pause)
				}
			}
		}
	})
}

func TestStoredAppLogEndsWithTheLastLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, begin: time.Now(), connections: []connection{
			{status: 200, sends: "event: missed\ndata: {}\n\nid: c2\nevent: line\ndata: {\"seq\":2,\"text\":\"two\"}\n\n", end: errCut},
			{status: 200, sends: "id: c3\nevent: line\ndata: {\"seq\":3,\"text\":\"three\"}\n\nevent: end\ndata: {}\n\n", silent: true},
		}}
		c, err := New("http://localhost", "atl_key", WithHTTPClient(&http.Client{Transport: s}))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line, err := range c.StoredAppLog(t.Context(), "acme", "shop", "c1") {
			lines = append(lines, fmt.Sprint(line.Text, line.Cursor, line.Missed, err))
		}
		if got := strings.Join(lines, ", "); got != "twoc2true <nil>, threec3false <nil>" {
			t.Error("the lines are ", got)
		}
		if got := strings.Join(s.cursors, " "); got != "c1 c2" {
			t.Errorf("resumed after %q", got)
		}
	})
}

func TestStreamEnds(t *testing.T) {
	for name, last := range map[string]connection{
		"a refusal":       {status: 401, sends: `{"error":"unauthorized","message":"m"}`},
		"malformed row":   {status: 200, sends: "id: c2\ndata: {\"seq\":\"two\"}\n\n"},
		"an endless line": {status: 200, sends: "data: " + strings.Repeat("x", maxLineBytes+1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if _, seqs, err := follow(t, connection{status: 200, sends: frames(1)}, last); err == nil || len(seqs) != 1 {
					t.Errorf("%v after %v", err, seqs)
				}
			})
		})
	}
}

func TestStreamEndsWithCallerAndContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, connections: []connection{{status: 200, sends: frames(1, 2), silent: true}, {status: 200, silent: true}}}
		c, _ := New("http://localhost", "", WithHTTPClient(&http.Client{Transport: s}))
		for frame, err := range c.Events(t.Context(), "acme", EventsQuery{}) {
			if err != nil || frame.Seq != 1 {
				t.Error(frame, err)
			}
			break
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range c.Events(ctx, "acme", EventsQuery{}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
}
