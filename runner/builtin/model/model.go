// Package model is a client of model servers: a request with a conversation and tools, and a reply that is streamed.
//
// Three formats are implemented over net/http: OpenAI's Chat Completions, which most servers understand, OpenAI's Responses,
// and Anthropic's Messages. The clients of the vendors would add up to 31 MB to the program and a second opinion on retries.
//
// # Failures
//
// Every error of Stream is a *Error with a code of package meta, or the error of the context. A request that the server refuses
// because of its limits or its load (429, 529, 5xx), or that breaks before the first delta, is sent up to three times, after
// an increasing and random time, or the time that the server names. After the first delta nothing is repeated: the caller has
// shown it. A reply that ends without its end mark is an error, even if all of its text is there.
//
// Lines, replies, arguments of tools and error texts are bounded. If the server sends nothing for some minutes, the request
// fails. The key is sent in a header and appears in no error.
package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/meta"
)

// A Model answers requests.
type Model interface {
	// Stream sends a request, calls emit for each part of the reply as it arrives, and returns the reply when it is complete.
	Stream(ctx context.Context, r Request, emit func(Delta)) (Reply, error)
}

// A Request is a conversation; the model writes its next message.
type Request struct {
	System   string
	Messages []Message
	Tools    []Tool
	// MaxTokens bounds the reply; 0 stands for the bound of the Server.
	MaxTokens int
}

// A Role is the author of a message.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	// ToolResult is the author of the result of a call.
	ToolResult Role = "tool"
)

// A Message is a part of a conversation.
type Message struct {
	Role   Role
	Text   string
	Images []Image // of User
	// Thoughts and Calls belong to Assistant.
	Thoughts []Thought
	Calls    []Call
	// CallID and IsError belong to ToolResult.
	CallID  string
	IsError bool
}

// An Image is a picture, as base64.
type Image struct{ MediaType, Base64 string }

// A Thought is a part of a reply that later requests must repeat unchanged, with the calls that follow from it.
type Thought struct {
	Text, Signature string
	// Redacted, or Raw as JSON, is a thought that only the server can read.
	Redacted, Raw string
}

// A Call is the model's call of a tool. Arguments is the text of the model, which may be invalid JSON.
type Call struct{ ID, Name, Arguments string }

// A Tool is a function that the model may call. Schema is the JSON schema of the arguments.
type Tool struct {
	Name, Description string
	Schema            any
}

// A Delta is a part of a reply.
type Delta struct {
	Text, Thought string
	// Usage is the usage of the request so far, if the server has reported it.
	Usage *Usage
}

// Usage counts tokens.
type Usage struct{ Input, Output int64 }

// A Stop says why a reply has ended.
type Stop int

// The reasons.
const (
	// Complete: the model has said everything, or calls tools.
	Complete Stop = iota
	// Truncated: the reply has as many tokens as it may have.
	Truncated
	// Refused: the model, or a filter of its server, has refused to reply.
	Refused
)

// A Reply is the model's message.
type Reply struct {
	Message Message
	Stop    Stop
	Usage   Usage
}

// A Wire is the format of a server.
type Wire string

// The formats.
const (
	Chat      Wire = "chat"
	Responses Wire = "responses"
	Anthropic Wire = "anthropic"
)

// A Server names a model, and its address.
type Server struct {
	Wire Wire
	// BaseURL is the address before /chat/completions, /responses or /v1/messages; empty for the vendor's address.
	BaseURL string
	Model   string
	Key     string
	// MaxTokens bounds a reply; 0 for the server's own bound, where the format has one.
	MaxTokens int
	HTTP      *http.Client
	// Wait waits before an attempt; nil for the clock.
	Wait func(context.Context, time.Duration) error
	// Idle is how long the server may be silent; 0 for five minutes.
	Idle time.Duration
}

// An Error is the failure of a request.
type Error struct {
	// Code is one of the codes of package meta.
	Code    string
	Message string

	isTemporary bool
	retryAfter  time.Duration
}

func (e *Error) Error() string { return e.Message }

func failed(code, format string, arguments ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

func temporary(code, format string, arguments ...any) *Error {
	e := failed(code, format, arguments...)
	e.isTemporary = true
	return e
}

const (
	attempts      = 3
	defaultIdle   = 5 * time.Minute
	openAIURL     = "https://api.openai.com/v1"
	anthropicURL  = "https://api.anthropic.com"
	defaultTokens = 8192 // Anthropic's format requires a bound
)

// New returns a client of a server. It returns an error if the settings are invalid.
func New(s Server) (Model, error) {
	if s.Model == "" {
		return nil, errors.New("no model is named")
	}
	c := &client{Server: s}
	base := s.BaseURL
	switch s.Wire {
	case Chat:
		c.format, base = chat{}, cmp.Or(base, openAIURL)
	case Responses:
		c.format, base = responses{}, cmp.Or(base, openAIURL)
	case Anthropic:
		c.format, base = anthropic{}, cmp.Or(base, anthropicURL)
	default:
		return nil, fmt.Errorf("the wire format %q is not chat, responses or anthropic", s.Wire)
	}
	at, err := url.Parse(base)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return nil, errors.New("the base URL of the model server is not like https://host/v1")
	}
	c.url = c.format.url(strings.TrimRight(base, "/"))
	c.server = at.Host
	if c.HTTP == nil {
		// A redirect would carry the key to another server.
		c.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.Idle == 0 {
		c.Idle = defaultIdle
	}
	return c, nil
}

func wait(ctx context.Context, d time.Duration) error {
	if !retry.Pause(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// Stream implements Model.
func (c *client) Stream(ctx context.Context, r Request, emit func(Delta)) (Reply, error) {
	if r.MaxTokens == 0 {
		r.MaxTokens = c.MaxTokens
	}
	hasEmitted := false
	for attempt := 1; ; attempt++ {
		reply, err := c.attempt(ctx, r, func(d Delta) {
			hasEmitted = hasEmitted || d.Text != "" || d.Thought != ""
			emit(d)
		})
		if err == nil {
			return reply, nil
		}
		if stopped := ctx.Err(); stopped != nil {
			return Reply{}, stopped
		}
		failure := asError(err)
		if !failure.isTemporary || hasEmitted || attempt == attempts || failure.retryAfter > retrying.Longest {
			return Reply{}, failure
		}
		if err := c.Wait(ctx, pause(attempt, failure.retryAfter)); err != nil {
			return Reply{}, err
		}
	}
}

func asError(err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}
	return failed(meta.CodeModelError, "%s", err)
}

// retrying has the pauses between the attempts at a request.
var retrying = retry.Policy{First: time.Second, Longest: time.Minute}

// pause returns the time before the next attempt: at least the time that the server asks for, and random, so that agents that were
// refused together do not return together.
func pause(attempt int, asked time.Duration) time.Duration {
	return min(max(retrying.After(attempt), asked+rand.N(retrying.First/2)), retrying.Longest)
}
