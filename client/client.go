// Package client speaks to an Atelier server: one method for each operation of its API.
//
//	c, err := client.New("https://atelier.example.com", key)
//	who, err := c.Whoami(ctx)
//	for member, err := range c.Members("acme", "").All(ctx) { ... }
//	for frame, err := range c.Events(ctx, "acme", client.EventsQuery{}) { ... }
//
// What the server refuses is an *Error with its status, code and message. GETs and operations that are declared
// idempotent are sent again where the server answers 429 or 503 and says when, a few times and not beyond the context;
// nothing else ever is. Answers are read up to a bound, so that no server can fill memory; files and streams, which
// have none, are read as they come. Fields that a later server adds are passed over.
//
// Timestamps are milliseconds since the Unix epoch. In requests, fields that have their zero value and are not required
// are left out. A Client may be used by many goroutines at a time.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client sends requests to one server with one credential.
type Client struct {
	base     string
	key      string
	http     *http.Client
	attempts int
	patience time.Duration
}

const (
	// DefaultAttempts is how often a request is sent at the most that may be sent again.
	DefaultAttempts = 4
	// DefaultPatience is the longest pause before a request is sent again; a server that asks for more is not asked again.
	DefaultPatience = 30 * time.Second
)

// Option changes a Client that is being made.
type Option func(*Client)

// WithHTTPClient has another http.Client send the requests. Its Timeout would end streams and transfers as well.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithAttempts bounds how often a request is sent; 1: never again.
func WithAttempts(n int) Option { return func(c *Client) { c.attempts = max(n, 1) } }

// WithPatience bounds the pause before a request is sent again.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// New makes a client of the server at a URL, with an API key or another bearer token; without one, only what is public
// answers. It sends nothing yet.
func New(baseURL, key string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: %w", err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("client: %q is no URL of a server", baseURL)
	case base.RawQuery != "", base.Fragment != "", base.User != nil:
		return nil, errors.New("client: the server's URL has a user, a query or a fragment")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("client: the key has characters that no key has")
	}
	c := &Client{
		base: strings.TrimSuffix(base.String(), "/"), key: key, http: newHTTP(),
		attempts: DefaultAttempts, patience: DefaultPatience,
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// newHTTP has connections of its own, and follows no redirect: the API has none, and a key is for one server.
func newHTTP() *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close lets go of the connections that nothing uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }
