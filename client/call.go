package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// request is what an operation sends.
type request struct {
	// header, where set, is shown the answer's.
	header       func(http.Header)
	method, path string
	query        url.Values
	// in is the JSON body; nil: none.
	in any
	// idempotent operations are declared so; GETs need not be.
	idempotent bool
}

// segment is a part of a path that the caller chose. Dots alone would be cleaned away on the way to the server.
func segment(text string) string {
	switch text {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(text)
}

// workspacePath is a path below a workspace's.
func workspacePath(slug, below string) string { return "/v1/ws/" + segment(slug) + below }

// call sends a request and decodes its answer.
func call[Out any](ctx context.Context, c *Client, r request) (Out, error) {
	var out Out
	response, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	if r.header != nil {
		r.header(response.Header)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	switch {
	case err != nil:
		return out, fmt.Errorf("client: reading an answer: %w", err)
	case len(text) > longestAnswer:
		return out, fmt.Errorf("client: the answer has more than %d bytes", longestAnswer)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("client: the answer is not as the API has it: %w", err)
	}
	return out, nil
}

// do sends a request until it is answered, is refused for good or may not be sent again.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	for attempt := 1; ; attempt++ {
		h, err := c.newRequest(ctx, r.method, r.path, r.query, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if r.in != nil {
			h.Header.Set("Content-Type", "application/json")
		}
		response, err := c.http.Do(h)
		switch {
		case err != nil:
			return nil, err
		case succeeded(response):
			return response, nil
		}
		refused := refusal(response)
		if !r.idempotent && r.method != http.MethodGet || attempt >= c.attempts || !c.worthWaiting(ctx, refused) {
			return nil, refused
		}
		if err := pause(ctx, refused.RetryAfter); err != nil {
			return nil, errors.Join(err, refused)
		}
	}
}

func (c *Client) newRequest(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	h, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		h.Header.Set("Authorization", "Bearer "+c.key)
	}
	return h, nil
}

func succeeded(r *http.Response) bool { return r.StatusCode >= 200 && r.StatusCode < 300 }

func (c *Client) worthWaiting(ctx context.Context, refused *Error) bool {
	if !refused.again || refused.RetryAfter > c.patience {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > refused.RetryAfter
}

// shortestPause keeps a server that asks for no pause from being asked in a tight loop.
const shortestPause = 50 * time.Millisecond

// pause waits at least as long, and up to half as long again, so that clients do not come back in a herd.
func pause(ctx context.Context, d time.Duration) error {
	d = max(d, shortestPause)
	timer := time.NewTimer(d + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
