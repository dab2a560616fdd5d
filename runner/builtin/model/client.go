package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/runner/meta"
)

// A format is one of the wire formats.
type format interface {
	url(base string) string
	header(h http.Header, key string)
	// body returns the body of a request, which the client encodes as JSON.
	body(s Server, r Request) any
	decoder() decoder
}

// A decoder assembles a reply from the events of a stream.
type decoder interface {
	// event reads an event; it returns true after the last.
	event(name string, data []byte, emit func(Delta)) (isLast bool, err error)
	// reply returns the reply after the end of the stream, or errCut if the end mark is missing.
	reply() (Reply, error)
}

type client struct {
	Server
	format format
	url    string
	server string // the host, for error messages
}

// The bounds of a server's answer.
const (
	maxLine      = 8 << 20
	maxStream    = 64 << 20
	maxError     = 64 << 10
	maxMessage   = 600 // characters of a server's error that are shown
	maxArguments = 4 << 20
	maxCalls     = 64
)

var (
	errCut  = temporary(meta.CodeModelError, "the model server has cut off its reply")
	errIdle = errors.New("the model server was silent for too long")
)

// attempt sends a request once and reads its reply.
func (c *client) attempt(ctx context.Context, r Request, emit func(Delta)) (Reply, error) {
	body, err := json.Marshal(c.format.body(c.Server, r))
	if err != nil {
		return Reply{}, fmt.Errorf("encode the request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.Idle, func() { cancel(errIdle) })
	defer silence.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return Reply{}, failed(meta.CodeModelUnavailable, "the address of the model server is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	c.format.header(request.Header, c.Key)
	response, err := c.HTTP.Do(request)
	if err != nil {
		reason := c.reason(ctx, err)
		return Reply{}, temporary(meta.CodeModelUnavailable, "the model server %s cannot be reached: %s", c.server, reason)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Reply{}, c.refusal(response)
	}
	if kind := response.Header.Get("Content-Type"); kind != "" && !strings.HasPrefix(kind, "text/event-stream") {
		kind = clipped(kind, 80)
		return Reply{}, failed(meta.CodeModelError, "the model server %s has sent %q instead of a stream", c.server, kind)
	}
	reply, err := c.read(ctx, &alive{response.Body, silence, c.Idle}, emit)
	if err != nil && errors.Is(context.Cause(ctx), errIdle) {
		return Reply{}, failed(meta.CodeModelError, "%s", errIdle)
	}
	return reply, err
}

// read reads the events of a stream until the last.
func (c *client) read(ctx context.Context, body io.Reader, emit func(Delta)) (Reply, error) {
	events, d := newEvents(body), c.format.decoder()
	for {
		name, data, err := events.next()
		switch {
		case errors.Is(err, io.EOF):
			return d.reply()
		case errors.Is(err, errTooLarge):
			return Reply{}, failed(meta.CodeModelError, "%s", err)
		case err != nil:
			return Reply{}, temporary(meta.CodeModelError, "the model server has cut off its reply: %s", c.reason(ctx, err))
		}
		isLast, err := d.event(name, data, emit)
		var failure *Error
		switch {
		case errors.As(err, &failure):
			return Reply{}, &Error{failure.Code, c.redacted(failure.Message), failure.isTemporary, failure.retryAfter}
		case err != nil:
			return Reply{}, failed(meta.CodeModelError, "the model server has sent a malformed reply: %s", err)
		case isLast:
			return d.reply()
		}
	}
}

// reason describes a failed transfer without the address, which url.Error would repeat.
func (c *client) reason(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return c.redacted(err.Error())
}

// redacted returns a text of the server's, bounded, and without the key.
func (c *client) redacted(text string) string {
	if c.Key != "" {
		text = strings.ReplaceAll(text, c.Key, "[key]")
	}
	return clipped(strings.ToValidUTF8(text, "?"), maxMessage)
}

func clipped(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// refusal returns the error for a status other than 200.
func (c *client) refusal(response *http.Response) *Error {
	said := c.message(response.Body)
	status := response.StatusCode
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		// The server's text is left out: some repeat a part of the key.
		return failed(meta.CodeModelUnavailable, "the model server %s refuses the API key (status %d)", c.server, status)
	case status == http.StatusNotFound:
		return failed(meta.CodeModelUnavailable, "the model server %s has no model %q%s", c.server, c.Model, said)
	case status == http.StatusTooManyRequests:
		e := temporary(meta.CodeRateLimited, "the model server %s limits the rate of requests%s", c.server, said)
		e.retryAfter = retryAfter(response.Header)
		return e
	case status >= 500 || status == http.StatusRequestTimeout:
		e := temporary(meta.CodeModelUnavailable, "the model server %s has failed with status %d%s", c.server, status, said)
		e.retryAfter = retryAfter(response.Header)
		return e
	}
	return failed(meta.CodeModelError, "the model server %s has rejected the request with status %d%s", c.server, status, said)
}

// message returns the message in the body of a refusal, after a colon.
func (c *client) message(body io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(body, maxError)) // a part is better than nothing
	var known struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	said := ""
	if json.Unmarshal(text, &known) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(known.Error, &inner) != nil {
			_ = json.Unmarshal(known.Error, &inner.Message) // some servers have a text here
		}
		said = cmp.Or(inner.Message, known.Message)
	}
	if said == "" {
		return ""
	}
	return ": " + c.redacted(said)
}

// retryAfter returns the time that a server asks for, in seconds or as a date; 0 if it does not.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// alive is a body; each read postpones a timer.
type alive struct {
	io.Reader
	silence *time.Timer
	idle    time.Duration
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.silence.Reset(a.idle)
	}
	return n, err
}
