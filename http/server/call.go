package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
)

// Call is one request on its way through one operation, with the services of the server that a handler needs.
type Call struct {
	// Context ends when the client leaves or the operation's time is over.
	Context  context.Context
	Request  *http.Request
	Response *Response
	// Caller is nil on public operations.
	Caller *Credential
	// Workspace is the workspace that the path names; nil if it names none.
	Workspace *Workspace

	server    *Server
	operation *operation
}

// Handler carries out an operation. The client is answered with the error that it returns.
type Handler func(*Call) error

// None is the input of operations that take none.
type None struct{}

// Answer adapts a function from an input to an output to a handler: it decodes the request, runs the function, and encodes
// the output as JSON with the status.
func Answer[In, Out any](status int, decode func(*Call) (In, error), run func(*Call, In) (Out, error)) Handler {
	return func(c *Call) error {
		in, err := decode(c)
		if err != nil {
			return c.Withhold(err)
		}
		out, err := run(c, in)
		if err != nil {
			return err
		}
		c.Response.WriteJSON(status, out)
		return nil
	}
}

// AnswerCreated is Answer for operations that create something, which is answered with 201, unless it exists already, which
// is answered with 200.
func AnswerCreated[In, Out any](decode func(*Call) (In, error), run func(*Call, In) (out Out, created bool, err error)) Handler {
	return func(c *Call) error {
		in, err := decode(c)
		if err != nil {
			return c.Withhold(err)
		}
		out, created, err := run(c, in)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if created {
			status = http.StatusCreated
		}
		c.Response.WriteJSON(status, out)
		return nil
	}
}

// Withhold returns err, which describes an invalid input, if the caller has the access that the operation needs; else it
// returns the refusal of access. Valid requests are authorized by the entity that decides them, and need no second check.
func (c *Call) Withhold(err error) error {
	if c.operation.inWorkspace {
		if denied := c.Authorize(); denied != nil {
			return denied
		}
	}
	return err
}

// Variable returns a path variable as the client wrote it.
func (c *Call) Variable(name string) string { return mux.Vars(c.Request)[name] }

// Ask sends a command to an entity and returns its reply. A command without a principal is sent as the caller.
func Ask[Reply proto.Message](c *Call, command entity.Command) (Reply, error) {
	if command.Principal == nil {
		command.Principal = c.Caller.Principal
	}
	command.RequestID = c.Response.ID
	return typed[Reply](c.server.options.Asker.Ask(c.Context, command))
}

// typed converts a reply to the type that is expected of it.
func typed[Reply proto.Message](reply proto.Message, err error) (Reply, error) {
	var none Reply
	if err != nil {
		return none, err
	}
	found, ok := reply.(Reply)
	if !ok {
		return none, fmt.Errorf("reply is %T, want %T", reply, none)
	}
	return found, nil
}

// Settle waits until every reaction to what an entity has recorded so far is done; see Asker.
func (c *Call) Settle(kind, identity string) error {
	return c.server.options.Asker.Settle(c.Context, kind, identity)
}

// NewID makes an id of a kind; the prefix has its underscore: "ws_".
func (c *Call) NewID(prefix string) string { return c.server.options.NewID(prefix) }

// Now returns the time by the server's clock.
func (c *Call) Now() time.Time { return c.server.now() }

// Log returns a log whose lines name the request.
func (c *Call) Log() *slog.Logger { return c.server.log.With("request", c.Response.ID) }

// Link returns the public URL of a path of this server.
func (c *Call) Link(path string) string { return c.server.Link(path) }

// RequestTime returns how long an ordinary request may take.
func (c *Call) RequestTime() time.Duration { return c.server.options.Limits.RequestTime }

// SealCursor returns the cursor of a place in a list, bound to a Binding.
func (c *Call) SealCursor(place string, binding []byte) string {
	return c.server.cursors.encode(place, binding)
}

// OpenCursor returns the place that a cursor stands for. Errors: invalid_cursor if it is not bound to the Binding.
func (c *Call) OpenCursor(text string, binding []byte) (string, error) {
	return c.server.cursors.decode(text, binding)
}

// EndCredential forgets what is remembered of a credential or grant and ends its streams. Once the credential is revoked,
// it opens nothing on this member any more; other members notice within a second.
func (c *Call) EndCredential(id string) { c.server.EndCredential(id) }

// ForgetSlug forgets which workspace a slug names, so that the next request looks it up anew.
func (c *Call) InvalidateSlug(slug string) { c.server.workspaces.invalidate(slug) }

// InBackground returns a call for work that continues after the answer to this one. It has no caller: commands must name
// their principal.
func (c *Call) InBackground(ctx context.Context) *Call {
	return c.server.Background(ctx, c.Response.ID)
}

// Background returns a call for work outside any request; its commands and log lines carry id as their request. It has no
// caller: commands must name their principal.
func (s *Server) Background(ctx context.Context, id string) *Call {
	return &Call{Context: ctx, server: s, Response: &Response{ID: id}}
}
