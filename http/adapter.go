package http

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gorilla/mux"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
)

// call is one request on its way through one operation.
type call struct {
	ctx       context.Context
	server    *Server
	operation *operation
	w         *response
	r         *http.Request
	// caller is nil on public operations.
	caller *credential
	// workspace is set where the path names one.
	workspace *workspace
}

// handler carries out an operation. What it returns is answered as an error.
type handler func(*call) error

// none is the input of operations that take none.
type none struct{}

// answer is the adapter of ordinary operations: decode, ask, encode.
func answer[In, Out any](status int, decode func(*call) (In, error), run func(*call, In) (Out, error)) handler {
	return func(c *call) error {
		in, err := decode(c)
		if err != nil {
			return c.withhold(err)
		}
		out, err := run(c, in)
		if err != nil {
			return err
		}
		c.w.json(status, out)
		return nil
	}
}

// withhold keeps what is wrong with an input from those without access. Entities check it with the question itself, so
// that valid requests are not checked twice.
func (c *call) withhold(err error) error {
	if c.operation.inWorkspace {
		if denied := c.authorize(); denied != nil {
			return denied
		}
	}
	return err
}

// variable is a path variable as the client wrote it.
func (c *call) variable(name string) string { return mux.Vars(c.r)[name] }

// ask sends a command as the caller, or as whom the command says.
func ask[Reply proto.Message](c *call, command entity.Command) (Reply, error) {
	if command.Principal == nil {
		command.Principal = c.caller.principal
	}
	command.RequestID = c.w.id
	return asked[Reply](c.server.options.Asker.Ask(c.ctx, command))
}

// asked holds a reply against its type.
func asked[Reply proto.Message](reply proto.Message, err error) (Reply, error) {
	var none Reply
	if err != nil {
		return none, err
	}
	typed, ok := reply.(Reply)
	if !ok {
		return none, fmt.Errorf("reply is %T, want %T", reply, none)
	}
	return typed, nil
}

func (c *call) settle(kind, identity string) error {
	return c.server.options.Asker.Settle(c.ctx, kind, identity)
}
