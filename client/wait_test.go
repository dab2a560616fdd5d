package client_test

import (
	"errors"
	"io"
	nethttp "net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/client"
)

// answers is a transport that gives one answer after the other. An answer is a body, or the seconds of Retry-After for 429.
type answers struct{ rest []string }

func (a *answers) RoundTrip(*nethttp.Request) (*nethttp.Response, error) {
	if len(a.rest) == 0 {
		return nil, errors.New("there is no further answer")
	}
	next := a.rest[0]
	a.rest = a.rest[1:]
	w := &nethttp.Response{StatusCode: nethttp.StatusOK, Header: nethttp.Header{}, Body: io.NopCloser(strings.NewReader(next))}
	if _, err := strconv.Atoi(next); err == nil {
		w.StatusCode = nethttp.StatusTooManyRequests
		w.Header.Set("Retry-After", next)
	}
	return w, nil
}

const (
	stillRuns = `{"sessionId":"ses_1","inputSeq":1}`
	hasEnded  = `{"sessionId":"ses_1","inputSeq":1,"terminal":{"seq":2,"kind":"terminal","turnStatus":"complete"}}`
)

func waitWith(t *testing.T, a *answers) (client.SessionWaited, error) {
	c, err := client.New("http://127.0.0.1:1", "atl_key", client.WithHTTPClient(&nethttp.Client{Transport: a}))
	if err != nil {
		t.Fatal(err)
	}
	return c.SendMessageAndWait(t.Context(), "acme", "ses_1", client.SessionMessage{Text: "hello"})
}

// A wait that the server refuses for its rate pauses as long as the server demands.
func TestWaitHeedsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := waitWith(t, &answers{[]string{stillRuns, "20", hasEnded}})
		if err != nil || got.Terminal == nil {
			t.Errorf("%v, %v", got, err)
		}
		if took := time.Since(began); took < 20*time.Second {
			t.Errorf("it was repeated after %s", took)
		}
	})
}

// A wait ends with an error if something else than the server answers with success; it is not repeated without end.
func TestWaitEndsWithForeignAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{[]string{stillRuns, "<html>", "<html>", hasEnded}}
		if got, err := waitWith(t, a); err == nil || got.SessionID != "ses_1" || len(a.rest) != 2 {
			t.Errorf("%v, %v, %d answers are left", got, err, len(a.rest))
		}
	})
}
