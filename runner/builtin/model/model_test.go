package model_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/modeltest"
)

const key = "sk-very-secret"

var wires = []model.Wire{model.Chat, model.Responses, model.Anthropic}

// eachWire runs a test with a server and a client of each format. The client records its pauses and does not wait.
func eachWire(t *testing.T, test func(t *testing.T, c *caller)) {
	t.Helper()
	for _, wire := range wires {
		t.Run(string(wire), func(t *testing.T) {
			c := &caller{t: t, Server: modeltest.New(t), wire: wire}
			m, err := model.New(model.Server{
				Wire: wire, BaseURL: c.URL + "/v1", Model: "test-1", Key: key,
				Wait: func(_ context.Context, d time.Duration) error {
					c.pauses = append(c.pauses, d)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.model = m
			test(t, c)
		})
	}
}

type caller struct {
	*modeltest.Server
	t        *testing.T
	wire     model.Wire
	model    model.Model
	pauses   []time.Duration
	text     strings.Builder
	thoughts strings.Builder
	deltas   int
	usage    model.Usage
}

func (c *caller) call(r model.Request) (model.Reply, error) {
	return c.model.Stream(c.t.Context(), r, func(d model.Delta) {
		c.deltas++
		c.text.WriteString(d.Text)
		c.thoughts.WriteString(d.Thought)
		if d.Usage != nil {
			c.usage = *d.Usage
		}
	})
}

func question(text string) model.Request {
	return model.Request{Messages: []model.Message{{Role: model.User, Text: text}}}
}

// fails expects an error with a code. Its message has a part and not the key.
func (c *caller) fails(err error, code, part string) {
	c.t.Helper()
	var failure *model.Error
	if !errors.As(err, &failure) || failure.Code != code || !strings.Contains(failure.Message, part) {
		c.t.Errorf("the error is %v, want %s with %q", err, code, part)
	}
	if err != nil && strings.Contains(err.Error(), key) {
		c.t.Errorf("the error has the key: %v", err)
	}
}

func TestStreamText(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{
			Thoughts: []string{"Let me ", "think."}, Text: []string{"Hello, ", "wörld", "!"}, Usage: model.Usage{Input: 12, Output: 7},
		})
		reply, err := c.call(model.Request{System: "Be brief.", Messages: question("Hi").Messages, MaxTokens: 99})
		if err != nil {
			t.Fatal(err)
		}
		if reply.Message.Text != "Hello, wörld!" || c.text.String() != reply.Message.Text || c.thoughts.String() != "Let me think." {
			t.Errorf("%+v, %q, %q", reply, c.text.String(), c.thoughts.String())
		}
		if want := (model.Usage{Input: 12, Output: 7}); reply.Usage != want || c.usage != want || reply.Stop != model.Complete {
			t.Errorf("%+v, %+v", reply, c.usage)
		}
		sent := c.Requests()[0]
		if sent.Wire != c.wire || sent.Model != "test-1" || sent.System != "Be brief." || sent.MaxTokens != 99 {
			t.Errorf("%+v", sent)
		}
		if got := sent.Header.Get("Authorization") + sent.Header.Get("X-Api-Key"); !strings.HasSuffix(got, key) {
			t.Errorf("the key was sent as %q", got)
		}
	})
}

func TestStreamCallsAndTheirResults(t *testing.T) {
	schema := map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}}
	eachWire(t, func(t *testing.T, c *caller) {
		calls := []model.Call{
			{ID: "call-1", Name: "shell", Arguments: `{"command":"ls -l /a/long/path"}`},
			{ID: "call-2", Name: "shell", Arguments: `{}`},
		}
		c.Reply(modeltest.Reply{Thoughts: []string{"Hm."}, Text: []string{"I look."}, Calls: calls})
		c.Reply(modeltest.Reply{Text: []string{"Done."}})
		r := question("List")
		r.Tools = []model.Tool{{Name: "shell", Description: "Runs a command", Schema: schema}}
		reply, err := c.call(r)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(reply.Message.Calls, calls) || reply.Message.Text != "I look." {
			t.Fatalf("%+v", reply)
		}
		r.Messages = append(r.Messages, reply.Message,
			model.Message{Role: model.ToolResult, CallID: "call-1", Text: "a b"},
			model.Message{Role: model.ToolResult, CallID: "call-2", Text: "no command", IsError: true},
			model.Message{Role: model.User, Text: "Go on"})
		if _, err := c.call(r); err != nil {
			t.Fatal(err)
		}
		sent := c.Requests()[1]
		if !reflect.DeepEqual(sent.Tools, []string{"shell"}) || len(sent.Messages) != 5 {
			t.Fatalf("%+v", sent)
		}
		back := sent.Messages[1]
		if !reflect.DeepEqual(back.Calls, calls) || back.Text != "I look." || sent.Messages[2].Text != "a b" ||
			sent.Messages[3].CallID != "call-2" || sent.Last().Text != "Go on" {
			t.Errorf("%+v", sent.Messages)
		}
		if hasThought := len(back.Thoughts) == 1; hasThought != (c.wire != model.Chat) {
			t.Errorf("the thoughts that were sent back are %+v", back.Thoughts)
		}
	})
}

// TestStreamSendsNoInvalidCallsBack has a call with invalid arguments, and a result that is an error without a text.
func TestStreamSendsNoInvalidCallsBack(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{Calls: []model.Call{{ID: "call-1", Name: "shell", Arguments: `{"command":"l`}}})
		c.Reply(modeltest.Reply{Text: []string{"Done."}})
		r := question("List")
		reply, err := c.call(r)
		if err != nil || len(reply.Message.Calls) != 1 || reply.Message.Calls[0].Arguments != `{"command":"l` {
			t.Fatal(reply, err)
		}
		r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.ToolResult, CallID: "call-1", IsError: true})
		if _, err := c.call(r); err != nil {
			t.Fatal(err)
		}
		if sent := c.Requests()[1].Messages[1].Calls; len(sent) != 1 || sent[0].Arguments != "{}" {
			t.Errorf("the server has got %+v", sent)
		}
		if text := c.Requests()[1].Messages[2].Text; c.wire == model.Anthropic && text == "" {
			t.Error("the server has got an error without a text, which it refuses")
		}
	})
}

// TestCallsWithTheSameIndex has the calls of servers that give all the same index, and of one that gives each part an id.
func TestCallsWithTheSameIndex(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		if c.wire != model.Chat {
			return // other formats have no index
		}
		raw := ""
		for _, part := range []string{
			`{"id":"a","function":{"name":"one","arguments":"{\"x\":"}}`, `{"id":"other","function":{"arguments":"1}"}}`,
			`{"id":"b","function":{"name":"two","arguments":"{}"}}`, `{"id":"c","function":{"name":"two","arguments":"{}"}}`,
		} {
			raw += `data: {"choices":[{"delta":{"tool_calls":[` + part + "]}}]}\n\n"
		}
		c.Reply(modeltest.Reply{Raw: raw + `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"})
		reply, err := c.call(question("?"))
		want := []model.Call{{ID: "a", Name: "one", Arguments: `{"x":1}`}, {ID: "b", Name: "two", Arguments: "{}"}, {ID: "c", Name: "two", Arguments: "{}"}}
		if err != nil || !reflect.DeepEqual(reply.Message.Calls, want) {
			t.Errorf("%+v, %v", reply.Message.Calls, err)
		}
	})
}

func TestStreamSendsImages(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{Text: []string{"A cat."}})
		r := question("What is it?")
		r.Messages[0].Images = []model.Image{{MediaType: "image/png", Base64: "aGk="}}
		if _, err := c.call(r); err != nil {
			t.Fatal(err)
		}
		if got := c.Requests()[0].Last(); !reflect.DeepEqual(got, r.Messages[0]) {
			t.Errorf("%+v", got)
		}
	})
}

func TestStreamReportsWhyItStopped(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		for _, stop := range []model.Stop{model.Truncated, model.Refused} {
			c.Reply(modeltest.Reply{Text: []string{"No"}, Stop: stop})
			if reply, err := c.call(question("?")); err != nil || reply.Stop != stop {
				t.Errorf("%+v, %v, want %v", reply, err, stop)
			}
		}
	})
}

func TestStreamRetriesRefusals(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{Status: 429, RetryAfter: 7}, modeltest.Reply{Status: 529}, modeltest.Reply{Text: []string{"At last"}})
		reply, err := c.call(question("?"))
		if err != nil || reply.Message.Text != "At last" {
			t.Fatalf("%+v, %v", reply, err)
		}
		if len(c.pauses) != 2 || c.pauses[0] < 7*time.Second || c.pauses[0] > 8*time.Second ||
			c.pauses[1] < time.Second || c.pauses[1] > 2*time.Second {
			t.Errorf("the pauses are %v", c.pauses)
		}
	})
}

func TestStreamGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		replies    []modeltest.Reply
		code, part string
	}{
		"after three rate limits": {
			[]modeltest.Reply{{Status: 429, Message: "slow down"}, {Status: 429}, {Status: 429, Message: "really " + key}},
			meta.CodeRateLimited, "really [key]",
		},
		"at a limit of an hour": {[]modeltest.Reply{{Status: 429, RetryAfter: 3600}},
			meta.CodeRateLimited, "limits the rate"},
		"after three failures": {[]modeltest.Reply{{Status: 500}, {Status: 502}, {Status: 503, Message: "down"}},
			meta.CodeModelUnavailable, "status 503: down"},
		"at an unknown model": {[]modeltest.Reply{{Status: 404, Message: "no such model"}},
			meta.CodeModelUnavailable, `has no model "test-1": no such model`},
		"at a wrong key": {[]modeltest.Reply{{Status: 401, Message: "wrong key " + key[:8]}},
			meta.CodeModelUnavailable, "refuses the API key"},
		"at an invalid request": {[]modeltest.Reply{{Status: 400, Message: "too long"}}, meta.CodeModelError, "status 400: too long"},
		"after a redirect":      {[]modeltest.Reply{{Status: 307}}, meta.CodeModelError, "status 307"},
		"at a connection that is cut three times": {[]modeltest.Reply{{CutAfter: 1}, {CutAfter: 1}, {CutAfter: 1}},
			meta.CodeModelError, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWire(t, func(t *testing.T, c *caller) {
				c.Reply(test.replies...)
				_, err := c.call(question("?"))
				c.fails(err, test.code, test.part)
				if n := len(c.Requests()); n != len(test.replies) {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

func TestStreamDoesNotRepeatWhatWasShown(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{Text: []string{"One", "Two", "Three"}, CutAfter: 6}, modeltest.Reply{Text: []string{"Again"}})
		_, err := c.call(question("?"))
		c.fails(err, meta.CodeModelError, "cut off")
		if len(c.Requests()) != 1 || !strings.HasPrefix(c.text.String(), "One") {
			t.Errorf("%d requests, %q", len(c.Requests()), c.text.String())
		}
	})
}

func TestStreamRefusesMalformedReplies(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		for part, reply := range map[string]modeltest.Reply{
			"malformed reply": {Text: []string{"One"}, MalformedAfter: 2},
			"too large":       {Raw: "data: " + strings.Repeat("x", 9<<20) + "\n\n"},
		} {
			c.Reply(reply)
			_, err := c.call(question("?"))
			c.fails(err, meta.CodeModelError, part)
		}
		if len(c.pauses) != 0 {
			t.Errorf("the pauses are %v", c.pauses)
		}
	})
}

func TestStreamReadsErrorsInTheStream(t *testing.T) {
	raw := map[model.Wire][2]string{
		model.Chat: {`data: {"error":{"message":"broken"}}` + "\n\n", meta.CodeModelError},
		model.Responses: {`data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"broken"}}}` +
			"\n\n", meta.CodeRateLimited},
		model.Anthropic: {"event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"broken"}}` + "\n\n",
			meta.CodeModelUnavailable},
	}
	eachWire(t, func(t *testing.T, c *caller) {
		for range 3 {
			c.Reply(modeltest.Reply{Raw: raw[c.wire][0]})
		}
		_, err := c.call(question("?"))
		c.fails(err, raw[c.wire][1], "broken")
		if len(c.pauses) != 2 {
			t.Errorf("the pauses are %v", c.pauses)
		}
	})
}

func TestStreamBoundsArguments(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		var many []model.Call
		for range 65 {
			many = append(many, model.Call{ID: "x", Name: "y", Arguments: "{}"})
		}
		c.Reply(modeltest.Reply{Calls: many})
		_, err := c.call(question("?"))
		c.fails(err, meta.CodeModelError, "too many calls")
	})
}

func TestStreamEndsWithItsContext(t *testing.T) {
	eachWire(t, func(t *testing.T, c *caller) {
		c.Reply(modeltest.Reply{Text: []string{"One"}, Hold: make(chan struct{})})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.model.Stream(ctx, question("?"), func(d model.Delta) {
			if d.Text != "" {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestStreamEndsWhenTheServerIsSilent(t *testing.T) {
	server := modeltest.New(t)
	server.Reply(modeltest.Reply{Text: []string{"One"}, Hold: make(chan struct{})})
	m, err := model.New(model.Server{Wire: model.Chat, BaseURL: server.URL, Model: "m", Idle: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Stream(t.Context(), question("?"), func(model.Delta) {})
	var failure *model.Error
	if !errors.As(err, &failure) || !strings.Contains(failure.Message, "silent") {
		t.Error(err)
	}
}

func TestStreamRefusesOtherServers(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	t.Cleanup(page.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for address, part := range map[string]string{page.URL: `has sent "text/html" instead of a stream`, gone.URL: "cannot be reached"} {
		m, err := model.New(model.Server{Wire: model.Chat, BaseURL: address, Model: "m", Key: key,
			Wait: func(context.Context, time.Duration) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Stream(t.Context(), question("?"), func(model.Delta) {})
		code := meta.CodeModelUnavailable
		if address == page.URL {
			code = meta.CodeModelError
		}
		(&caller{t: t}).fails(err, code, part)
	}
}

func TestNewRefusesInvalidSettings(t *testing.T) {
	for want, s := range map[string]model.Server{
		"no model":   {Wire: model.Chat},
		"not chat":   {Wire: "gopher", Model: "m"},
		"not like":   {Wire: model.Chat, Model: "m", BaseURL: "ftp://host"},
		"is not lik": {Wire: model.Chat, Model: "m", BaseURL: "http://user:secret@host"},
	} {
		if _, err := model.New(s); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
