// Package client calls the API of an Atelier server. It has one method for each operation.
//
//	c, err := client.New("https://atelier.example.com", key)
//	who, err := c.Whoami(ctx)
//	for member, err := range c.Members("acme", "").All(ctx) { ... }
//	for frame, err := range c.Events(ctx, "acme", client.EventsQuery{}) { ... }
//
// If the server refuses a request, the error is an *Error with the status, the code and the message. If the server responds
// 429 or 503 with Retry-After, GET requests and operations that the API declares idempotent are retried, up to
// DefaultAttempts times and until the context ends. Other requests are never retried. Responses are read up to a limit, so
// that a server cannot exhaust memory; files and streams have no limit, because the caller reads them. Unknown fields in
// responses are ignored.
//
// Timestamps are milliseconds since the Unix epoch. Optional fields of requests are omitted if they have their zero value.
// The comment of a method lists codes of errors, after "Codes:", that a caller may want to handle. A Client is safe for
// concurrent use.
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
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// Client sends requests to one server, with one credential.
type Client struct {
	base     string
	key      string
	http     *http.Client
	attempts int
	patience time.Duration
}

const (
	// DefaultAttempts is the greatest number of times that a request is sent.
	DefaultAttempts = 4
	// DefaultPatience is the longest pause before a retry. A request is not retried if the server demands a longer one.
	DefaultPatience = 30 * time.Second
)

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient sets the http.Client that sends the requests. Its Timeout also applies to streams and transfers.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithAttempts sets the greatest number of times that a request is sent; 1 disables retries.
func WithAttempts(n int) Option { return func(c *Client) { c.attempts = max(n, 1) } }

// WithPatience sets the longest pause before a retry.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// New returns a client for the server at a URL, with an API key or another bearer token. If key is empty, only public
// operations succeed. New sends no request. It fails if the URL or the key is malformed.
func New(baseURL, key string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: %w", err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("client: %q is not the URL of a server: want http:// or https:// and a host", baseURL)
	case base.RawQuery != "", base.Fragment != "", base.User != nil:
		return nil, errors.New("client: the URL of the server must not have a user, a query or a fragment")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("client: the key must be printable ASCII without spaces")
	}
	c := &Client{
		base: strings.TrimSuffix(base.String(), "/"), key: key, http: newHTTPClient(),
		attempts: DefaultAttempts, patience: DefaultPatience,
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// newHTTPClient returns an http.Client that follows no redirects: the API has none, and the key must not reach another
// server.
func newHTTPClient() *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is the error of a request that the server refused.
type Error struct {
	Status int
	// Code is the error code of the API, such as "slug_taken". It is empty if something else responded, such as a proxy.
	Code string
	// Message describes the error for people.
	Message string
	// Reason distinguishes the causes of some codes, such as reconcile_failed; empty for others.
	Reason string
	// RequestID is the id of the request in the log of the server.
	RequestID string
	// RetryAfter is the pause that the server demands before a retry; 0 if it names none.
	RetryAfter time.Duration

	// retryable reports whether the server has responded 429 or 503 with Retry-After.
	retryable bool
}

func (e *Error) Error() string {
	switch {
	case e.Code == "":
		return fmt.Sprintf("the server responded %d %s", e.Status, http.StatusText(e.Status))
	case e.Message == "":
		return fmt.Sprintf("the server responded %d %s", e.Status, e.Code)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Code)
}

// HasCode reports whether an error is an *Error with a code.
func HasCode(err error, code string) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == code
}

const (
	// maxResponseBytes is the greatest length of a JSON response, maxErrorBytes the part of an error response that is read.
	maxResponseBytes = 16 << 20
	maxErrorBytes    = 64 << 10
)

// newError reads the response to a refused request and closes its body.
func newError(r *http.Response) *Error {
	defer r.Body.Close()
	refused := &Error{Status: r.StatusCode, RequestID: r.Header.Get("X-Request-Id")}
	var body struct{ Error, Message, Reason string }
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes))
	if json.Unmarshal(text, &body) == nil {
		refused.Code, refused.Message, refused.Reason = body.Error, body.Message, body.Reason
	}
	if after, ok := parseRetryAfter(r.Header.Get("Retry-After")); ok {
		refused.RetryAfter = after
		refused.retryable = r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable
	}
	return refused
}

// parseRetryAfter parses a number of seconds or a date (RFC 9110, section 10.2.3).
func parseRetryAfter(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	return max(0, time.Until(at)), err == nil
}

// request is the request of an operation.
type request struct {
	method, path string
	query        url.Values
	// in is the value of the JSON body; nil for no body.
	in any
	// idempotent marks an operation that the API declares idempotent. GET requests need no mark.
	idempotent bool
	// header, if set, is called with the header of a successful response.
	header func(http.Header)
}

// segment escapes a segment of a path. It also escapes "." and "..", which HTTP clients and proxies remove from paths.
func segment(text string) string {
	switch text {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(text)
}

// workspacePath returns the path of a resource of a workspace.
func workspacePath(slug, below string) string { return "/v1/ws/" + segment(slug) + below }

// call sends a request and decodes the JSON response.
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
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	switch {
	case err != nil:
		return out, fmt.Errorf("client: read the response: %w", err)
	case len(text) > maxResponseBytes:
		return out, fmt.Errorf("%w: it has more than %d bytes", errUndecodable, maxResponseBytes)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("%w: %w", errUndecodable, err)
	}
	return out, nil
}

// errUndecodable is the error of a successful response that is not one of the API, such as the page of a proxy.
var errUndecodable = errors.New("client: decode the response")

// do sends a request, and retries it as the package comment describes. The caller closes the body of the response. Errors:
// *Error if the server refused the request.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return nil, fmt.Errorf("client: encode the request: %w", err)
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
		refused := newError(response)
		if !r.idempotent && r.method != http.MethodGet || attempt >= c.attempts || !c.shouldRetry(ctx, refused) {
			return nil, refused
		}
		if err := pause(ctx, refused.RetryAfter); err != nil {
			return nil, errors.Join(err, refused)
		}
	}
}

// newRequest returns a request with the key of the client.
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

// shouldRetry reports whether the server demands a retry within the patience of the client and the deadline of the context.
func (c *Client) shouldRetry(ctx context.Context, refused *Error) bool {
	if !refused.retryable || refused.RetryAfter > c.patience {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > refused.RetryAfter
}

// shortestPause is the least pause before a retry, so that a server that demands none is not called in a tight loop.
const shortestPause = 50 * time.Millisecond

// pause waits for d and a random part of half of d, so that many clients do not retry at the same time. It returns the
// cause of the context if the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	d = max(d, shortestPause)
	if !retry.Pause(ctx, d+rand.N(d/2)) {
		return context.Cause(ctx)
	}
	return nil
}
