// Package gateway is the HTTP server that agents reach inside their computer: the models that the operator has configured, and
// the platform's tools.
//
// A request is authenticated by the token of a run, which is valid only while a turn of its session runs: as a bearer token, in
// the header x-api-key, or as the first segments of the path (/t/TOKEN/...), for programs that only take a URL. The paths are
//
//	/model/NAME/...  the model of the run's tier; NAME must be its name in the configuration
//	/mcp             the tools of the platform (Model Context Protocol)
//
// Requests to a model are passed to the configured server with the operator's key. Only the paths of the model's wire format
// are passed, with or without a leading /v1, and only those headers that the formats define, so that neither the token nor other
// credentials leave the server. The gateway sets the name of the model in the body, so that an agent cannot use a model that the
// operator has not chosen for the tier, and counts the tokens that the replies report. A reply that ends without a report, or does
// not begin, because the agent has closed the connection, is counted by an estimate, so that budgets hold for it, too. Bodies are
// in memory while a request is served; the size of all bodies, and of the bodies of one run, is bounded.
package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A Wire is the format of a model's requests and replies.
type Wire string

// The wire formats.
const (
	// Chat is OpenAI's Chat Completions, which most servers implement.
	Chat Wire = "chat"
	// Responses is OpenAI's Responses.
	Responses Wire = "responses"
	// Anthropic is Anthropic's Messages.
	Anthropic Wire = "anthropic"
)

// paths has the paths below the base URL that a wire format uses.
var paths = map[Wire][]string{
	Chat:      {"chat/completions"},
	Responses: {"responses"},
	Anthropic: {"messages", uncounted},
}

// uncounted is the path of requests that use no tokens.
const uncounted = "messages/count_tokens"

// IsKnown reports whether a wire format exists.
func (w Wire) IsKnown() bool { return paths[w] != nil }

// A Key is the operator's key of a model's server. It is never shown in logs: the value is behind a pointer, because package fmt
// calls no methods of fields that are not exported.
type Key struct{ value *string }

// NewKey returns the key with a value.
func NewKey(value string) Key { return Key{&value} }

// IsSet reports whether there is a key.
func (k Key) IsSet() bool { return k.value != nil }

// LogValue implements slog.LogValuer.
func (Key) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String implements fmt.Stringer.
func (Key) String() string { return "[redacted]" }

// GoString implements fmt.GoStringer.
func (Key) GoString() string { return "[redacted]" }

// MarshalText implements encoding.TextMarshaler.
func (Key) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// A Model is a model on a server.
type Model struct {
	// Name is the name in the configuration.
	Name string
	Wire Wire
	// URL is the address below which the paths of the wire format are, for example https://api.example.com/v1.
	URL *url.URL
	// ID is the name of the model on its server.
	ID string
	// Key may be unset, for servers without authentication.
	Key Key
}

// A Run is a running turn. It has a token.
type Run interface {
	// Model returns the model of the turn; ok is false if it has none.
	Model() (m Model, ok bool)
	// AddTokens counts tokens. It is called while a reply is passed on, and must not block.
	AddTokens(input, output int64)
	// Tools returns the handler of the platform's tools; nil: there are none.
	Tools() http.Handler
}

// A Handler is the gateway's HTTP handler.
type Handler struct {
	// Find returns the run with a token. ok is false if no such turn runs.
	Find func(token string) (run Run, ok bool)
	// Transport sends requests to the models; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Observe is called with the status of each request to a model, for metrics; it may be nil.
	Observe func(model string, status int)
	Log     *slog.Logger

	load load
}

// bodyTime bounds the time in which a body arrives: programs in a computer must not hold the memory that reserve has admitted.
const bodyTime = time.Minute

// MaxBody is the maximum length of a request to a model in bytes. It has room for the images of a session.
const MaxBody = 64 << 20

// passed are the headers of requests that are passed to the model's server.
var passed = []string{"Accept", "Content-Type", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta"}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, token := splitToken(r)
	run, ok := h.Find(token)
	if token == "" || !ok {
		refuse(w, http.StatusUnauthorized, "the token is missing, or its turn has ended")
		return
	}
	if path == "/mcp" {
		h.serveTools(w, r, run)
		return
	}
	rest, ok := strings.CutPrefix(path, "/model/")
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such path: the gateway has /model/NAME/... and /mcp")
		return
	}
	name, below, _ := strings.Cut(rest, "/")
	model, ok := run.Model()
	if !ok || name != model.Name {
		refuse(w, http.StatusForbidden, "the session's tier does not have this model")
		return
	}
	h.serveModel(w, r, run, model, strings.TrimPrefix(below, "v1/"))
}

// splitToken returns the path of a request without a token, and the token.
func splitToken(r *http.Request) (path, token string) {
	path = r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/t/"); ok {
		token, below, _ := strings.Cut(rest, "/")
		return "/" + below, token
	}
	if scheme, value, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return path, strings.TrimSpace(value)
	}
	return path, r.Header.Get("X-Api-Key")
}

func (h *Handler) serveTools(w http.ResponseWriter, r *http.Request, run Run) {
	tools := run.Tools()
	if tools == nil {
		refuse(w, http.StatusNotFound, "this server gives agents no tools")
		return
	}
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = "/mcp", ""
	inner.Header.Del("Authorization")
	inner.Header.Del("X-Api-Key")
	tools.ServeHTTP(w, inner)
}

func (h *Handler) serveModel(w http.ResponseWriter, r *http.Request, run Run, model Model, path string) {
	switch {
	case r.Method == http.MethodGet && path == "models":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []any{map[string]any{"id": model.ID, "object": "model"}}})
		return
	case !slices.Contains(paths[model.Wire], path):
		refuse(w, http.StatusNotFound, "the model has the wire format "+string(model.Wire)+", which does not have this path")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "the path takes POST requests")
		return
	}
	release, ok := h.load.reserve(run, r.ContentLength)
	if !ok {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "too many requests to models are being served; try again")
		return
	}
	defer release()
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTime)) // fails only without a connection, in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	_ = connection.SetReadDeadline(time.Time{})
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too long")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the request ended early")
		return
	}
	if body, err = rewrite(body, model); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not a JSON object")
		return
	}
	h.proxy(run, model, path, body).ServeHTTP(w, r)
}

// dropped are fields that make servers answer with other models than the named model, or reply before the model does, without its
// tokens.
var dropped = []string{"models", "route", "background"}

// rewrite returns a body with the id of the model, and without the dropped fields. A streamed chat is made to report its tokens.
func rewrite(body []byte, model Model) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, errors.New("gateway: not an object")
	}
	id, err := json.Marshal(model.ID)
	if err != nil {
		return nil, err
	}
	fields["model"] = id
	for _, name := range dropped {
		delete(fields, name)
	}
	var streams bool
	if err := json.Unmarshal(fields["stream"], &streams); model.Wire == Chat && err == nil && streams {
		fields["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	}
	return json.Marshal(fields)
}

// proxy returns the proxy of one request.
func (h *Handler) proxy(run Run, model Model, path string, body []byte) *httputil.ReverseProxy {
	observe := func(status int) {
		if h.Observe != nil {
			h.Observe(model.Name, status)
		}
	}
	var isSent atomic.Bool
	return &httputil.ReverseProxy{
		Transport:     h.Transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			out := p.Out
			out.URL = model.URL.JoinPath(path)
			out.URL.Path = "/" + strings.TrimPrefix(out.URL.Path, "/") // JoinPath adds no slash to a name alone
			out.Host = model.URL.Host
			out.Header = http.Header{}
			for _, name := range passed {
				if values := p.In.Header.Values(name); len(values) > 0 {
					out.Header[name] = slices.Clone(values)
				}
			}
			// Compressed replies could not be searched for their usage.
			out.Header.Set("Accept-Encoding", "identity")
			out.Header.Set("User-Agent", "atelier")
			authorize(out.Header, model)
			out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			p.Out = out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{
				WroteRequest: func(wrote httptrace.WroteRequestInfo) { isSent.Store(wrote.Err == nil) },
			}))
		},
		ModifyResponse: func(r *http.Response) error {
			observe(r.StatusCode)
			r.Header.Del("Set-Cookie")
			switch {
			case r.StatusCode == http.StatusUnauthorized, r.StatusCode == http.StatusForbidden:
				// The body may quote the key.
				return replaceBody(r, "the model's server has refused the operator's key")
			case r.StatusCode >= 300 && r.StatusCode < 400:
				r.Header.Del("Location")
				r.StatusCode = http.StatusBadGateway
				return replaceBody(r, "the model's server has redirected the request")
			case r.StatusCode == http.StatusOK && path != uncounted:
				isStream := strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream")
				r.Body = &meter{body: r.Body, wire: model.Wire, isStream: isStream, request: len(body), add: run.AddTokens}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case r.Context().Err() == nil:
				observe(http.StatusBadGateway)
				h.Log.Warn("cannot reach the server of a model", slog.String("model", model.Name), slog.Any("error", err))
			case isSent.Load() && path != uncounted:
				run.AddTokens(int64(len(body))/4, 0) // the server has the request, and the agent has not waited for the reply
			}
			refuse(w, http.StatusBadGateway, "the model's server cannot be reached")
		},
	}
}

// authorize sets the header with the operator's key.
func authorize(header http.Header, model Model) {
	switch {
	case !model.Key.IsSet():
	case model.Wire == Anthropic:
		header.Set("X-Api-Key", *model.Key.value)
		if header.Get("Anthropic-Version") == "" {
			header.Set("Anthropic-Version", "2023-06-01")
		}
	default:
		header.Set("Authorization", "Bearer "+*model.Key.value)
	}
}

func replaceBody(r *http.Response, message string) error {
	_ = r.Body.Close()
	body := errorBody(r.StatusCode, message)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header = http.Header{"Content-Type": {"application/json"}}
	return nil
}

// refuse answers with an error in the form that all three wire formats have.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorBody(status, message))
}

func errorBody(status int, message string) []byte {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		kind = "authentication_error"
	case status >= 500:
		kind = "api_error"
	}
	body, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}})
	return body
}
