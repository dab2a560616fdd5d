package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/gateway"
)

// run is a gateway.Run that counts tokens.
type run struct {
	model gateway.Model
	tools http.Handler

	mu            sync.Mutex
	input, output int64
	added         func() // called after tokens were counted, unless it is nil
}

func (r *run) Model() (gateway.Model, bool) { return r.model, r.model.Name != "" }
func (r *run) Tools() http.Handler          { return r.tools }

func (r *run) AddTokens(input, output int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.input, r.output = r.input+input, r.output+output
	if r.added != nil {
		r.added()
	}
}

func (r *run) counted() (input, output int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.input, r.output
}

// seen is a request that an upstream has received.
type seen struct {
	path, body string
	header     http.Header
}

// serve starts an upstream that answers with a reply, and a gateway to it.
func serve(t *testing.T, wire gateway.Wire, status int, kind, reply string) (address string, r *run, requests func() []seen) {
	t.Helper()
	var mu sync.Mutex
	var all []seen
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		all = append(all, seen{req.URL.Path, string(body), req.Header.Clone()})
		mu.Unlock()
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Set-Cookie", "a=b")
		if status >= 300 && status < 400 {
			w.Header().Set("Location", "https://elsewhere.example")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	r = &run{model: gateway.Model{Name: "big", Wire: wire, URL: base, ID: "big-1", Key: gateway.NewKey("sk-operator")}}
	h := &gateway.Handler{
		Find: func(token string) (gateway.Run, bool) { return r, token == "tok" },
		Log:  slog.New(slog.DiscardHandler),
	}
	g := httptest.NewServer(h)
	t.Cleanup(g.Close)
	return g.URL, r, func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func post(t *testing.T, address, body string, header map[string]string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(read), resp.Header
}

const (
	chatStream = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"
	responsesStream = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":5}}}\n\n"
	anthropicStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":20,\"output_tokens\":1}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n"
)

func TestModelRequests(t *testing.T) {
	for _, c := range []struct {
		wire          gateway.Wire
		path, kind    string
		reply         string
		input, output int64
	}{
		{gateway.Chat, "chat/completions", "text/event-stream", chatStream, 7, 3},
		{gateway.Chat, "v1/chat/completions", "application/json", `{"usage":{"prompt_tokens":4,"completion_tokens":2}}`, 4, 2},
		{gateway.Responses, "v1/responses", "text/event-stream; charset=utf-8", responsesStream, 11, 5},
		{gateway.Responses, "responses", "application/json", `{"usage":{"input_tokens":6,"output_tokens":1}}`, 6, 1},
		{gateway.Anthropic, "v1/messages", "text/event-stream", anthropicStream, 22, 9},
		{gateway.Anthropic, "messages", "application/json", `{"usage":{"input_tokens":6,"output_tokens":8}}`, 6, 8},
	} {
		t.Run(fmt.Sprintf("%s %s", c.wire, c.kind), func(t *testing.T) {
			address, r, requests := serve(t, c.wire, http.StatusOK, c.kind, c.reply)
			status, body, header := post(t, address+"/model/big/"+c.path, `{"model":"other","models":["other"],"route":"fallback","background":true,"stream":true,"x":1}`, map[string]string{
				"Authorization": "Bearer tok", "Cookie": "secret=1", "X-Forwarded-For": "1.2.3.4", "Content-Type": "application/json",
				"X-Api-Key": "mine", "Connection": "X-Strange", "X-Strange": "1",
			})
			if status != http.StatusOK || body != c.reply || header.Get("Set-Cookie") != "" {
				t.Errorf("status %d, body %q, header %v", status, body, header)
			}
			all := requests()
			if len(all) != 1 || all[0].path != "/v1/"+strings.TrimPrefix(c.path, "v1/") {
				t.Fatalf("requests: %+v", all)
			}
			got := all[0]
			var fields map[string]any
			if err := json.Unmarshal([]byte(got.body), &fields); err != nil || fields["model"] != "big-1" || fields["x"] != 1.0 {
				t.Errorf("body %s", got.body)
			}
			for _, name := range []string{"models", "route", "background"} {
				if value, has := fields[name]; has {
					t.Errorf("the server has got %s: %v", name, value)
				}
			}
			if _, has := fields["stream_options"]; has != (c.wire == gateway.Chat) {
				t.Errorf("body %s", got.body)
			}
			wantBearer, wantKey := "Bearer sk-operator", ""
			if c.wire == gateway.Anthropic {
				wantBearer, wantKey = "", "sk-operator"
			}
			h := got.header
			if h.Get("Authorization") != wantBearer || h.Get("X-Api-Key") != wantKey {
				t.Errorf("credentials %v", h)
			}
			for _, name := range []string{"Cookie", "X-Forwarded-For", "X-Strange"} {
				if h.Get(name) != "" {
					t.Errorf("the header %s was passed", name)
				}
			}
			if input, output := r.counted(); input != c.input || output != c.output {
				t.Errorf("counted %d and %d tokens, want %d and %d", input, output, c.input, c.output)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer tok"}
	for name, c := range map[string]struct {
		path, body string
		header     map[string]string
		want       int
	}{
		"no_token":           {"/model/big/chat/completions", "{}", nil, 401},
		"wrong_token":        {"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "no"}, 401},
		"other_model":        {"/model/small/chat/completions", "{}", bearer, 403},
		"other_format":       {"/model/big/responses", "{}", bearer, 404},
		"path_outside":       {"/model/big/../../files", "{}", bearer, 404},
		"files":              {"/model/big/v1/files", "{}", bearer, 404},
		"no_object":          {"/model/big/chat/completions", "[]", bearer, 400},
		"no_tools":           {"/mcp", "{}", bearer, 404},
		"unknown_path":       {"/", "{}", bearer, 404},
		"accepted_x_api_key": {"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "tok"}, 200},
		"accepted_in_path":   {"/t/tok/model/big/v1/chat/completions", "{}", nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			address, _, _ := serve(t, gateway.Chat, http.StatusOK, "application/json", "{}")
			if status, body, _ := post(t, address+c.path, c.body, c.header); status != c.want {
				t.Errorf("status %d, want %d: %s", status, c.want, body)
			}
		})
	}
}

func TestRepliesThatAreReplaced(t *testing.T) {
	for upstream, want := range map[int]int{401: 401, 403: 403, 302: 502} {
		address, _, _ := serve(t, gateway.Chat, upstream, "text/plain", "your key sk-operator is wrong")
		status, body, header := post(t, address+"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "tok"})
		if status != want || strings.Contains(body, "sk-operator") || header.Get("Location") != "" {
			t.Errorf("%d: %d %s", upstream, status, body)
		}
	}
	address, _, _ := serve(t, gateway.Chat, 429, "application/json", `{"error":"slow down"}`)
	if status, body, _ := post(t, address+"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "tok"}); status != 429 || !strings.Contains(body, "slow down") {
		t.Errorf("%d %s", status, body)
	}
}

func TestUnreportedUsageIsEstimated(t *testing.T) {
	cut := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", 30)
	address, r, _ := serve(t, gateway.Chat, http.StatusOK, "text/event-stream", cut)
	post(t, address+"/model/big/chat/completions", `{"stream":true,"messages":"`+strings.Repeat("a", 400)+`"}`, map[string]string{"X-Api-Key": "tok"})
	if input, output := r.counted(); input < 100 || output != 30 {
		t.Errorf("counted %d and %d tokens", input, output)
	}
}

// TestReplyOfAnthropicThatIsCutOff has a first report with a few tokens, as the server sends it, and no last one.
func TestReplyOfAnthropicThatIsCutOff(t *testing.T) {
	cut := "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":3}}}\n\n" +
		strings.Repeat("data: {\"type\":\"content_block_delta\"}\n\n", 40)
	address, r, _ := serve(t, gateway.Anthropic, http.StatusOK, "text/event-stream", cut)
	post(t, address+"/model/big/v1/messages", `{"stream":true}`, map[string]string{"X-Api-Key": "tok"})
	if input, output := r.counted(); input != 25 || output != 41 {
		t.Errorf("counted %d and %d tokens", input, output)
	}
}

// TestRequestThatIsGivenUp expects that a request counts if its reply has not begun when the agent closes the connection.
func TestRequestThatIsGivenUp(t *testing.T) {
	received, counted := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		close(received)
		<-req.Context().Done()
	}))
	t.Cleanup(upstream.Close)
	address, r, _ := serve(t, gateway.Chat, http.StatusOK, "", "")
	r.model.URL, _ = url.Parse(upstream.URL + "/v1")
	r.added = func() { close(counted) }
	ctx, cancel := context.WithCancel(t.Context())
	body := strings.NewReader(`{"messages":"` + strings.Repeat("a", 400) + `"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/model/big/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "tok")
	go func() {
		<-received
		cancel()
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("the request has a reply with status %d", resp.StatusCode)
	}
	select {
	case <-counted:
	case <-time.After(3 * time.Minute):
		t.Fatal("the request was not counted")
	}
	if input, output := r.counted(); input < 100 || output != 0 {
		t.Errorf("counted %d and %d tokens", input, output)
	}
}

// TestAddressWithoutPath has a server with paths directly below its name.
func TestAddressWithoutPath(t *testing.T) {
	address, r, requests := serve(t, gateway.Chat, http.StatusOK, "application/json", "{}")
	r.model.URL, _ = url.Parse(strings.TrimSuffix(r.model.URL.String(), "/v1"))
	status, body, _ := post(t, address+"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "tok"})
	if all := requests(); status != http.StatusOK || len(all) != 1 || all[0].path != "/chat/completions" {
		t.Errorf("%d %s, %+v", status, body, all)
	}
}

func TestUnreachableServer(t *testing.T) {
	address, r, _ := serve(t, gateway.Chat, http.StatusOK, "", "")
	dead := httptest.NewServer(nil)
	r.model.URL, _ = url.Parse(dead.URL)
	dead.Close()
	status, body, _ := post(t, address+"/model/big/chat/completions", "{}", map[string]string{"X-Api-Key": "tok"})
	if status != http.StatusBadGateway || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%d %s", status, body)
	}
	if input, output := r.counted(); input != 0 || output != 0 {
		t.Errorf("counted %d and %d tokens of a request that was not sent", input, output)
	}
}

func TestTools(t *testing.T) {
	address, r, _ := serve(t, gateway.Chat, http.StatusOK, "", "")
	r.tools = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.URL.Path+req.Header.Get("Authorization"))
	})
	if status, body, _ := post(t, address+"/mcp", "{}", map[string]string{"Authorization": "Bearer tok"}); status != 200 || body != "/mcp" {
		t.Errorf("%d %s", status, body)
	}
}

func TestKeysAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	m := gateway.Model{Name: "big", Key: gateway.NewKey("sk-operator")}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("model", m), slog.Any("key", m.Key))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("key", m.Key), slog.Any("model", m))
	fmt.Fprintf(&out, "%v %+v %s %#v %v", m, m, m.Key, m.Key, struct{ hidden gateway.Model }{m})
	if strings.Contains(out.String(), "sk-operator") {
		t.Error(out.String())
	}
}

// TestRequestsOfARunAreBounded has bodies that never arrive whole. Their lengths count from the beginning.
func TestRequestsOfARunAreBounded(t *testing.T) {
	address, _, _ := serve(t, gateway.Chat, http.StatusOK, "application/json", "{}")
	request := func(ctx context.Context, body io.Reader) *http.Request {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/model/big/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "tok")
		return req
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var writers []*io.PipeWriter
	patient := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(patient.CloseIdleConnections)
	for range 2 {
		body, writer := io.Pipe() // without a length, which counts as the longest
		known := make(chan struct{})
		req := request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { close(known) }}), body)
		req.Header.Set("Expect", "100-continue")
		waiting.Go(func() {
			if resp, err := patient.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
		<-known // the gateway reads the body of a request that it has admitted
		writers = append(writers, writer)
	}
	post := func() int {
		resp, err := http.DefaultClient.Do(request(t.Context(), strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if status := post(); status != http.StatusServiceUnavailable {
		t.Errorf("the status is %d", status)
	}
	cancel()
	for _, w := range writers {
		_ = w.CloseWithError(io.ErrClosedPipe)
	}
	waiting.Wait()
	for post() != http.StatusOK { // until the gateway knows that they have ended
	}
}
