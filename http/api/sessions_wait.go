package api

import (
	"context"
	"net/http"

	"github.com/atelier-run/atelier/http/server"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// waitedView is the response to a request that waits. Without a terminal, the client repeats the request.
type waitedView struct {
	SessionID string      `json:"sessionId"`
	InputSeq  uint64      `json:"inputSeq"`
	Terminal  *historyRow `json:"terminal,omitzero"`
}

var errNoRequestID = server.Invalid("clientRequestId is required: the request is repeated with it")

// waitFor returns the handler of a request that waits for the terminal of an input. submit makes the input durable, or finds it
// if an earlier request has done so; it has the time of an ordinary request. The request counts as a stream, because it needs no
// more resources than one: the query that waits is held by the actor of the session. A client that disconnects ends only the query.
func (s sessions) waitFor(submit func(c *server.Call) (sessionservice.Accepted, error)) server.Handler {
	return func(c *server.Call) error {
		return c.RunLong(func(ctx context.Context) error {
			sent, err := server.Submit(ctx, c, submit)
			if err != nil {
				return err
			}
			c.AwaitAnswer()
			view, err := s.awaitTerminal(ctx, c, sent)
			if refused := server.Refusal(ctx); refused != nil {
				return refused
			}
			if err != nil {
				return err
			}
			status := http.StatusOK
			if view.Terminal == nil {
				status = http.StatusAccepted
			}
			c.Response.WriteJSON(status, view)
			return nil
		})
	}
}

// waiting returns a decoder that requires a clientRequestId.
func waiting(decode func(*server.Call) (*sessionInput, error)) func(*server.Call) (*sessionInput, error) {
	return func(c *server.Call) (*sessionInput, error) {
		in, err := decode(c)
		if err == nil && in.input.GetClientRequestId() == "" {
			err = errNoRequestID
		}
		return in, err
	}
}

func (s sessions) startWaiting(c *server.Call) (sessionservice.Accepted, error) {
	in, err := ofSession(waiting(s.decodeStart))(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.start(c, "", in)
}

func (s sessions) childWaiting(c *server.Call) (sessionservice.Accepted, error) {
	in, err := ofSession(waiting(s.decodeStart))(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	parent, err := pathSession(c, "parentSessionId")
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.start(c, parent, in)
}

func (s sessions) messageWaiting(c *server.Call) (sessionservice.Accepted, error) {
	in, err := ofSession(waiting(s.decodeMessage))(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.sendToPath(c, in)
}

func (s sessions) answerWaiting(c *server.Call) (sessionservice.Accepted, error) {
	in, err := ofSession(waiting(s.decodeAnswer))(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.sendToPath(c, in)
}

// awaitTerminal waits for the terminal of an input, for WaitTime. The terminal is nil if there is none yet, or if the client may have gone.
func (s sessions) awaitTerminal(ctx context.Context, c *server.Call, sent sessionservice.Accepted) (waitedView, error) {
	view := waitedView{SessionID: sent.SessionID, InputSeq: sent.Seq}
	waiting, end := c.Waiting(ctx, s.WaitTime)
	defer end()
	row, err := s.request(c).AwaitTerminal(ctx, waiting, sent, c.RequestTime())
	if err != nil || row == nil {
		return view, err
	}
	terminal := viewTerminal(row)
	view.Terminal = &terminal
	return view, nil
}
