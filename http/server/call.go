package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/service"
)

// Call is a request of an operation, with the services of the server that its handler needs.
type Call struct {
	// Context ends when the client has gone or the operation's time is over; see Server.attend.
	Context  context.Context
	Request  *http.Request
	Response *Response
	// Caller is the authenticated credential; nil on public operations, unless TryAuthenticate set it.
	Caller *Credential
	// Workspace is the workspace in the path; nil if the path has none.
	Workspace *Workspace

	server    *Server
	operation *operation
	// patience is how long the operation waits for a client that may have gone; nil: no client ends the operation.
	patience *patience
	// slots is the kind of slot that the request holds; nil if the call serves no request.
	slots *requestSlots
}

// SignInPath is the path of the sign-in page. Its parameter next is the path to continue with.
const SignInPath = "/sign-in"

// Handler runs an operation. The client is answered with the error that it returns.
type Handler func(*Call) error

// None is the input of operations without one.
type None struct{}

// Answer returns a handler that decodes the request, runs the operation, and encodes its output as JSON with the status. If
// decoding fails, the caller is authorized before the error is returned; see Withhold.
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
		return c.answer(status, out)
	}
}

// AnswerCreated is Answer for operations that create something. Its status is 201, or 200 if it existed already.
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
		return c.answer(status, out)
	}
}

// answer sends an output as JSON. The memory of a large answer is admitted as the memory of bodies is, because a client that reads slowly
// keeps it. Errors, of a request that changes nothing: rate_limited, unavailable. The answer to a change, which is made already, is sent in
// any case; such answers are small.
func (c *Call) answer(status int, out any) error {
	parts := encodeJSON(out)
	if method := c.Request.Method; method == http.MethodGet || method == http.MethodHead {
		if err := c.ReserveAnswer(parts.size()); err != nil {
			return err
		}
	}
	c.Response.WriteJSON(status, parts)
	return nil
}

// Withhold returns err, which describes an invalid input, only to callers who have the access that the operation requires;
// other callers get the refusal of access. Valid inputs need no such check: the entity that receives the command authorizes
// it.
func (c *Call) Withhold(err error) error {
	if c.operation.inWorkspace {
		if denied := c.Authorize(); denied != nil {
			return denied
		}
	}
	return err
}

// Variable returns a variable of the path, in the encoding of the request.
func (c *Call) Variable(name string) string { return c.Response.variables[name] }

// Ask sends a command to an entity and returns its reply. A command without a principal is sent as the caller.
func Ask[Reply proto.Message](c *Call, command entity.Command) (Reply, error) {
	return service.Send[Reply](c, command)
}

var _ service.Request = (*Call)(nil)

// Ask implements service.Request.
func (c *Call) Ask(command entity.Command) (proto.Message, error) {
	return service.Ask[proto.Message](c.Context, c.server.options.Asker, c.sender(), command)
}

// Sender returns the caller as the operations of package service take it.
func (c *Call) Sender() service.Caller {
	sender := c.sender()
	sender.Authenticate = c.Reauthenticate
	return sender
}

// sender is Sender for commands, which need no Authenticate.
func (c *Call) sender() service.Caller {
	if c.Caller == nil {
		return service.Caller{RequestID: c.Response.ID}
	}
	return service.Caller{Principal: c.Caller.Principal, RequestID: c.Response.ID}
}

// Settle waits until all reactions to the events that an entity has recorded so far are done; see Asker.
func (c *Call) Settle(kind, identity string) error {
	return c.server.options.Asker.Settle(c.Context, kind, identity)
}

// NewID returns a new id; prefix names its kind and ends in an underscore: "ws_".
func (c *Call) NewID(prefix string) string { return c.server.options.NewID(prefix) }

// Now returns the time of the server's clock.
func (c *Call) Now() time.Time { return c.server.now() }

// Log returns a logger that adds the id of the request.
func (c *Call) Log() *slog.Logger { return c.server.log.With("request", c.Response.ID) }

// Link returns the public URL of a path of this server.
func (c *Call) Link(path string) string { return c.server.Link(path) }

// Origin returns the server's origin as the client addresses it; see Server.OriginOf.
func (c *Call) Origin() string { return c.server.OriginOf(c.Request) }

// PublicHost returns the host of the server's public URL.
func (c *Call) PublicHost() string { return c.server.options.PublicURL.Host }

// RequestTime returns the time limit of ordinary requests.
func (c *Call) RequestTime() time.Duration { return c.server.options.Limits.RequestTime }

// SealCursor returns a cursor for a position in a list. It is encrypted and authenticated, and valid only with the same
// binding; see Binding.
func (c *Call) SealCursor(position string, binding []byte) string {
	return c.server.cursors.encode(position, binding)
}

// OpenCursor returns the position in a cursor. Errors: invalid_cursor if it was not made with this binding.
func (c *Call) OpenCursor(text string, binding []byte) (string, error) {
	return c.server.cursors.decode(text, binding)
}

// EndCredential makes this process refuse a credential or grant that was revoked, and ends its streams and transfers. Other
// members refuse it within a second.
func (c *Call) EndCredential(id string) { c.server.EndCredential(id) }

// InvalidateSlug removes a slug from the cache, so that the next request looks it up.
func (c *Call) InvalidateSlug(slug string) { c.server.workspaces.Invalidate(slug) }

// With returns the call with another context.
func (c *Call) With(ctx context.Context) *Call {
	other := *c
	other.Context = ctx
	return &other
}

// Outlast implements service.Request.
func (c *Call) Outlast(d time.Duration) (service.Request, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), d)
	return c.With(ctx), cancel
}

// InBackground returns a call for work that continues after the response. It has no caller: its commands must have a
// principal.
func (c *Call) InBackground(ctx context.Context) *Call {
	return c.server.Background(ctx, c.Response.ID)
}

// Background returns a call for work outside a request; its commands and log lines have id as their request. It has no
// caller: its commands must have a principal.
func (s *Server) Background(ctx context.Context, id string) *Call {
	return &Call{Context: ctx, server: s, Response: &Response{ID: id}}
}
