package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "localhost:8080", "ftp://host", "http://", "http://a:b@host", "http://host?q=1", "http://host#f", "http://host\x00"} {
		if _, err := New(url, "key"); err == nil {
			t.Errorf("%q is a server", url)
		}
	}
	for _, key := range []string{"a b", "a\nb", "schlüssel"} {
		if _, err := New("http://localhost", key); err == nil {
			t.Errorf("%q is a key", key)
		}
	}
}

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(server.URL+"/", "atl_key")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestErrors(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "req_1")
		if r.URL.Path == profilePath {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>"+strings.Repeat("x", 2*longestError))
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":"forbidden","message":"no"}`)
	})
	_, err := c.Whoami(t.Context())
	var refused *Error
	if !errors.As(err, &refused) || refused.Status != 403 || refused.Code != "forbidden" || refused.Message != "no" ||
		refused.RequestID != "req_1" || refused.RetryAfter != 7*time.Second || err.Error() != "no (forbidden)" {
		t.Errorf("%+v", refused)
	}
	if _, err := c.Profile(t.Context()); err == nil || err.Error() != "the server answered 502 Bad Gateway" {
		t.Error(err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"scopes":["`)
		for part := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	})
	if _, err := c.Whoami(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// A key goes to no other server than the client's.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer other.Close()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var refused *Error
	if _, err := c.Whoami(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusFound {
		t.Error(err)
	}
}

// What a caller names stays one segment of the path.
func TestSegments(t *testing.T) {
	var seen []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.EscapedPath())
		w.WriteHeader(http.StatusNoContent)
	})
	for _, path := range []string{"a b/c#d", "100%?", "../x", "", "ü"} {
		if err := c.Delete(t.Context(), "../w", path); err != nil {
			t.Error(err)
		}
	}
	const drive = "/v1/ws/..%2Fw/drive/"
	want := []string{drive + "a%20b/c%23d", drive + "100%25%3F", drive + "%2E%2E/x", drive, drive + "%C3%BC"}
	if strings.Join(seen, " ") != strings.Join(want, " ") {
		t.Errorf("%q", seen)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	for name, of := range map[string]struct {
		after   string
		options []Option
		given   time.Duration
		want    int
	}{
		"patience":    {"31", nil, time.Hour, 1},
		"attempts":    {"1", []Option{WithAttempts(2)}, time.Hour, 2},
		"the context": {"10", nil, 15 * time.Second, 2},
		"no pause":    {"0", nil, time.Hour, DefaultAttempts},
		"no word":     {"", nil, time.Hour, 1},
		"nonsense":    {"soon", nil, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{status: http.StatusServiceUnavailable, after: of.after}
				c, _ := New("http://localhost", "", append(of.options, WithHTTPClient(&http.Client{Transport: r}))...)
				ctx, cancel := context.WithTimeout(t.Context(), of.given)
				defer cancel()
				var refused *Error
				if _, err := c.Whoami(ctx); !errors.As(err, &refused) || len(r.requests) != of.want {
					t.Errorf("sent %d times: %v", len(r.requests), err)
				}
			})
		})
	}
}

// A walk ends with its caller, with an error, and where a server would keep it going in a circle.
func TestWalksEnd(t *testing.T) {
	pages := []string{`{"items":[{"id":"1"},{"id":"2"}],"nextCursor":"a"}`, `{"items":[],"nextCursor":"b"}`, `{"items":[{"id":"3"}],"nextCursor":"b"}`}
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if limit := r.URL.Query().Get("limit"); limit != "100" {
			t.Errorf("asked for %s", limit)
		}
		_, _ = io.WriteString(w, pages[asked])
		asked++
	})
	var ids []string
	var failed error
	for key, err := range c.APIKeys().All(t.Context()) {
		if failed = err; err == nil {
			ids = append(ids, key.ID)
		}
	}
	if strings.Join(ids, " ") != "1 2 3" || !errors.Is(failed, errStuck) {
		t.Errorf("%v, then %v", ids, failed)
	}
	asked = 0
	for range c.APIKeys().All(t.Context()) {
		break
	}
	if asked != 1 {
		t.Errorf("%d pages for one item", asked)
	}
}
