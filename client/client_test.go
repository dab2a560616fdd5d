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
			t.Errorf("New accepts the URL %q", url)
		}
	}
	for _, key := range []string{"a b", "a\nb", "schlüssel"} {
		if _, err := New("http://localhost", key); err == nil {
			t.Errorf("New accepts the key %q", key)
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
			_, _ = io.WriteString(w, "<html>"+strings.Repeat("x", 2*maxErrorBytes))
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
	if _, err := c.Profile(t.Context()); err == nil || err.Error() != "the server responded 502 Bad Gateway" {
		t.Error(err)
	}
}

func TestResponsesAreBounded(t *testing.T) {
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

// TestRedirectsAreNotFollowed checks that the key is not sent to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer other.Close()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var refused *Error
	if _, err := c.Whoami(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusFound {
		t.Error(err)
	}
}

// TestSegments checks that a slug or name with special characters stays one segment of the path.
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

func TestRetriesAreBounded(t *testing.T) {
	for name, of := range map[string]struct {
		after   string
		options []Option
		given   time.Duration
		want    int
	}{
		"patience":  {"31", nil, time.Hour, 1},
		"attempts":  {"1", []Option{WithAttempts(2)}, time.Hour, 2},
		"deadline":  {"10", nil, 15 * time.Second, 2},
		"no pause":  {"0", nil, time.Hour, DefaultAttempts},
		"no header": {"", nil, time.Hour, 1},
		"malformed": {"soon", nil, time.Hour, 1},
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

// TestIterationEnds checks that an iteration ends when the caller stops, after an error, and when the server repeats a
// cursor.
func TestIterationEnds(t *testing.T) {
	pages := []string{`{"items":[{"id":"1"},{"id":"2"}],"nextCursor":"a"}`, `{"items":[],"nextCursor":"b"}`, `{"items":[{"id":"3"}],"nextCursor":"b"}`}
	requests := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if limit := r.URL.Query().Get("limit"); limit != "100" {
			t.Errorf("limit is %s", limit)
		}
		_, _ = io.WriteString(w, pages[requests])
		requests++
	})
	var ids []string
	var failed error
	for key, err := range c.APIKeys().All(t.Context()) {
		if failed = err; err == nil {
			ids = append(ids, key.ID)
		}
	}
	if strings.Join(ids, " ") != "1 2 3" || !errors.Is(failed, errRepeatedCursor) {
		t.Errorf("%v, then %v", ids, failed)
	}
	requests = 0
	for range c.APIKeys().All(t.Context()) {
		break
	}
	if requests != 1 {
		t.Errorf("%d pages for one item", requests)
	}
}
