// Package mcp is the endpoint of the platform's tools for agents elsewhere, over the Model Context Protocol.
//
// The endpoint is one route, POST /mcp. A request passes these steps:
//
//  1. server.Call.admit authenticates it, as every request of the API, with an API key or an access token. A request without a
//     valid credential gets the address of the endpoint's own metadata (RFC 9728), where a client finds the authorization server.
//     Tokens that were issued for the endpoint alone (RFC 8707) are valid only here.
//  2. serve refuses cookies and pages of other sites, because the protocol requires it, and reads the body, which is bounded.
//  3. Call.RunLong counts the request as a stream, because a tool may wait for minutes, and ends it when the credential is revoked
//     or the server shuts down.
//  4. Tools, which cmd/node implements with runner/tools, answers. The entities authorize the commands of the tools.
//
// Nothing is stored between requests: any member can answer each one.
package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Path is the path of the endpoint.
const Path = "/mcp"

const (
	// maxRequest bounds a request, in bytes.
	maxRequest = 2 << 20
	// longest bounds the time of a request. The tools have limits of their own, which are shorter.
	longest = 6 * time.Minute
)

// Resource describes the endpoint to OAuth clients. Without services, the agents of sessions that a client starts run no commands.
var Resource = oauth.Resource{
	Path: Path, Name: "the tools for agents",
	Scopes: []string{entity.FilesRead, entity.FilesWrite, entity.Services, entity.Sessions},
}

// Tools serves the tools.
type Tools interface {
	// ServeTools answers one request of the protocol. The caller is authenticated, and authorized for nothing yet; authenticate
	// verifies the credential again, right before a change that no entity decides. The tools end with the request's context, and their
	// waits with the contexts that wait returns.
	ServeTools(w http.ResponseWriter, r *http.Request, caller *wirev1.Principal, requestID string, authenticate func() error, wait Wait)
}

// Wait returns a context for a wait of a tool for at most a time within ctx. The wait ends earlier if the client may have gone.
type Wait = func(ctx context.Context, most time.Duration) (waiting context.Context, end context.CancelFunc)

// Routes returns the table of the endpoint. If tools is nil, there are none, and the endpoint answers not_found.
func Routes(tools Tools) []server.Route {
	e := endpoint{tools}
	return []server.Route{{
		Method: http.MethodPost, Path: Path, Scope: server.ScopeKey, Summary: "Call the tools for agents", Handler: e.serve,
		Timing: server.Streaming, Resource: Path,
	}}
}

type endpoint struct{ tools Tools }

// serve answers a request. Errors: unauthorized, forbidden, not_found, the errors of ReadBody and of RunLong.
func (e endpoint) serve(c *server.Call) error {
	if _, ok := c.Request.Header["Authorization"]; !ok { // a cookie, which browsers add by themselves
		return server.ErrUnauthorized
	}
	if err := c.CheckSameOrigin(); err != nil {
		return err
	}
	if e.tools == nil {
		return server.ErrNotFound
	}
	body, err := c.ReadBody(maxRequest)
	if err != nil {
		return err
	}
	return c.RunLong(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		c.AwaitAnswer()
		r := c.Request.WithContext(ctx)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		c.Response.Header().Set("X-Content-Type-Options", "nosniff")
		e.tools.ServeTools(c.Response, r, c.Caller.Principal, c.Response.ID, c.Reauthenticate, c.Waiting)
		return endOf(ctx)
	})
}

// endOf returns the error that has ended a request before its answer; nil if the request has not ended. The server ignores it if the
// answer has begun.
func endOf(ctx context.Context) error {
	if refused := server.Refusal(ctx); refused != nil {
		return refused
	}
	return ctx.Err()
}
