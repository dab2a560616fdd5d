// Package modeltest is a model server for tests. It speaks the three wire formats of package model, with streams, calls of
// tools, refusals, cut connections and malformed replies, and gives the answers that the test has scripted:
//
//	server := modeltest.New(t)
//	server.Reply(modeltest.Reply{Calls: []model.Call{{ID: "1", Name: "shell", Arguments: `{"command":"ls"}`}}})
//	server.Reply(modeltest.Reply{Text: []string{"There are ", "no files."}})
//
// The path of a request says its format: it ends in /chat/completions, /responses or /messages. The replies go to the requests
// in their order, unless Respond has set a function. A request after the last reply is refused with status 400. Requests
// without tools, which agents send for titles, get the reply of WithoutTools, if there is one, and take none of the others.
package modeltest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

// A Reply is an answer of the server. The zero value is an empty text.
type Reply struct {
	// Thoughts and Text are streamed, each part as an event of its own, then the Calls, in several parts.
	Thoughts, Text []string
	Calls          []model.Call
	Stop           model.Stop
	// Usage defaults to 10 tokens of input and 5 of output.
	Usage model.Usage
	// Hold delays the end of the reply, after all parts, until the channel is closed or the client is gone.
	Hold <-chan struct{}
	// CutAfter closes the connection after this number of events. 0 does not.
	CutAfter int
	// MalformedAfter sends an event that is no JSON after this number of events, and then the others. 0 does not.
	MalformedAfter int
	// Status, if not 0 or 200, refuses the request, with a message and RetryAfter in seconds.
	Status     int
	Message    string
	RetryAfter int
	// Raw, if set, is the whole body of the answer.
	Raw string
}

// A Request is a request of a client, in the terms of package model.
type Request struct {
	Wire     model.Wire
	Model    string
	System   string
	Messages []model.Message
	// Tools has the names of the tools.
	Tools     []string
	MaxTokens int
	Header    http.Header
	Body      []byte
}

// Last returns the last message.
func (r Request) Last() model.Message {
	if len(r.Messages) == 0 {
		return model.Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// A Server is a model server.
type Server struct {
	// URL is the address, without /v1.
	URL string

	lock         sync.Mutex
	replies      []Reply
	respond      func(Request) Reply
	withoutTools *Reply
	requests     []Request
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Reply appends replies to the script.
func (s *Server) Reply(replies ...Reply) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.replies = append(s.replies, replies...)
}

// Respond sets a function that replies to each request, instead of the script. It is called by several goroutines.
func (s *Server) Respond(f func(Request) Reply) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.respond = f
}

// WithoutTools sets the reply to requests without tools.
func (s *Server) WithoutTools(reply Reply) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.withoutTools = &reply
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.requests)
}

// next records a request and returns its reply.
func (s *Server) next(r Request) Reply {
	s.lock.Lock()
	s.requests = append(s.requests, r)
	respond := s.respond
	var reply Reply
	switch {
	case len(r.Tools) == 0 && s.withoutTools != nil:
		respond, reply = nil, *s.withoutTools
	case respond != nil:
	case len(s.replies) > 0:
		reply, s.replies = s.replies[0], s.replies[1:]
	default:
		reply = Reply{Status: http.StatusBadRequest, Message: "the script of the test is over"}
	}
	s.lock.Unlock()
	if respond != nil {
		return respond(r)
	}
	return reply
}

const maxRequest = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	if h.Method == http.MethodGet && strings.HasSuffix(h.URL.Path, "/models") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"test","object":"model"}]}`)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, h.Body, maxRequest))
	if err != nil {
		refuse(w, Reply{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	request, err := decode(h.URL.Path, body)
	if err != nil {
		refuse(w, Reply{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	request.Header = h.Header
	reply := s.next(request)
	if reply.Status != 0 && reply.Status != http.StatusOK {
		refuse(w, reply)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if reply.Raw != "" {
		_, _ = io.WriteString(w, reply.Raw)
		return
	}
	if reply.Usage == (model.Usage{}) {
		reply.Usage = model.Usage{Input: 10, Output: 5}
	}
	s.stream(w, h, encode(request, reply), reply)
}

// stream sends the events of a reply, each at once.
func (s *Server) stream(w http.ResponseWriter, h *http.Request, events script, reply Reply) {
	control := http.NewResponseController(w)
	for i, e := range events.all() {
		if reply.Hold != nil && i == len(events.parts) {
			select {
			case <-reply.Hold:
			case <-h.Context().Done():
				return
			}
		}
		if reply.MalformedAfter > 0 && i == reply.MalformedAfter {
			_, _ = io.WriteString(w, "data: {\"broken\n\n")
		}
		_, err := io.WriteString(w, e.String())
		if err != nil || control.Flush() != nil {
			return // the client is gone
		}
		if reply.CutAfter == i+1 {
			panic(http.ErrAbortHandler)
		}
	}
}

func refuse(w http.ResponseWriter, r Reply) {
	w.Header().Set("Content-Type", "application/json")
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": "test", "message": r.Message}})
}

type object = map[string]any

// An event is a server-sent event. Without a name it has only data.
type event struct {
	name string
	data any
}

func (e event) String() string {
	data, isText := e.data.(string)
	if !isText {
		text, err := json.Marshal(e.data)
		if err != nil {
			panic(err) // the encoders of this package make only values that can be encoded
		}
		data = string(text)
	}
	if e.name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + e.name + "\ndata: " + data + "\n\n"
}

// A script has the events of a reply: its parts, and its end.
type script struct{ parts, end []event }

func (s script) all() []event { return slices.Concat(s.parts, s.end) }

func encode(r Request, reply Reply) script {
	switch r.Wire {
	case model.Responses:
		return encodeResponses(r, reply)
	case model.Anthropic:
		return encodeAnthropic(r, reply)
	}
	return encodeChat(r, reply)
}

func decode(path string, body []byte) (Request, error) {
	var r Request
	var err error
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		r, err = decodeChat(body)
	case strings.HasSuffix(path, "/responses"):
		r, err = decodeResponses(body)
	case strings.HasSuffix(path, "/messages"):
		r, err = decodeAnthropic(body)
	default:
		err = errors.New("modeltest: unknown path " + path)
	}
	r.Body = body
	return r, err
}

// fragments cuts a text into parts of a few bytes, as servers do with arguments.
func fragments(text string) []string {
	const size = 7
	var all []string
	for len(text) > size {
		all, text = append(all, text[:size]), text[size:]
	}
	return append(all, text)
}

func image(url string) model.Image {
	header, data, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ",")
	return model.Image{MediaType: strings.TrimSuffix(header, ";base64"), Base64: data}
}
