package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/runner/meta"
)

const (
	maxServers     = 16
	maxTools       = 120
	connectTimeout = 15 * time.Second
	callTimeout    = 10 * time.Minute
	// callAttempts is how often a call of the platform that can be repeated is tried while the platform restarts.
	callAttempts = 5
)

// calling has the pauses between these attempts, which are at least 6 s together.
var calling = retry.Policy{First: 800 * time.Millisecond, Longest: 10 * time.Second}

// servers are the MCP servers of a session.
type servers struct {
	all []*server
	// problems has a text for each server that is unavailable.
	problems []string
}

// A server is a connection with an MCP server, which is made again if it was lost.
type server struct {
	name    string
	dial    func() mcp.Transport
	tools   []*mcp.Tool
	lock    sync.Mutex
	session *mcp.ClientSession
}

// connectServers connects to all servers at once. Only the platform's must be available.
func connectServers(ctx context.Context, list []acp.McpServer, environ []string) (*servers, error) {
	if len(list) > maxServers {
		return nil, fmt.Errorf("there are %d MCP servers, at most %d are allowed", len(list), maxServers)
	}
	s := &servers{}
	names := map[string]bool{}
	for _, about := range list {
		one, err := newServer(about, environ)
		if err == nil && names[one.name] {
			err = fmt.Errorf("two MCP servers have the name %q", one.name)
		}
		if err != nil {
			return nil, err
		}
		names[one.name] = true
		s.all = append(s.all, one)
	}
	failures := make([]error, len(s.all))
	var connecting sync.WaitGroup
	for i, one := range s.all {
		connecting.Go(func() { failures[i] = one.open(ctx) })
	}
	connecting.Wait()
	available := s.all[:0:0]
	var failed error
	for i, one := range s.all {
		switch {
		case failures[i] == nil:
			available = append(available, one)
		case one.name == meta.PlatformServer:
			failed = failures[i]
		default:
			s.problems = append(s.problems, fmt.Sprintf("The MCP server %q is unavailable: %s.", one.name, failures[i]))
		}
	}
	s.all = available
	if failed != nil {
		s.close()
		return nil, fmt.Errorf("connect to the platform's MCP server: %w", failed)
	}
	return s, nil
}

// newServer returns a server that is not connected.
func newServer(about acp.McpServer, environ []string) (*server, error) {
	switch {
	case about.Http != nil:
		endpoint, headers := about.Http.Url, about.Http.Headers
		return &server{name: about.Http.Name, dial: func() mcp.Transport {
			return &mcp.StreamableClientTransport{
				Endpoint: endpoint, DisableStandaloneSSE: true,
				HTTPClient: &http.Client{
					Transport: withHeaders(headers),
					// A redirect would carry the headers to another server.
					CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
				},
			}
		}}, nil
	case about.Stdio != nil:
		program := *about.Stdio
		return &server{name: program.Name, dial: func() mcp.Transport {
			command := exec.Command(program.Command, program.Args...)
			command.Env = append([]string{}, environ...)
			for _, variable := range program.Env {
				command.Env = append(command.Env, variable.Name+"="+variable.Value)
			}
			return &mcp.CommandTransport{Command: command, TerminateDuration: time.Second}
		}}, nil
	}
	return nil, errors.New("an MCP server has a transport other than HTTP and standard streams")
}

// withHeaders adds headers to requests.
type withHeaders []acp.HttpHeader

// RoundTrip implements http.RoundTripper.
func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, header := range h {
		r.Header.Set(header.Name, header.Value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// open connects to the server and lists its tools.
func (s *server) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "atelier-agent", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
	}).Connect(ctx, s.dial(), nil)
	if err != nil {
		return err
	}
	var list []*mcp.Tool
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			session.Close()
			return err
		}
		if list = append(list, tool); len(list) > maxTools {
			session.Close()
			return fmt.Errorf("it has more than %d tools", maxTools)
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.session, s.tools = session, list
	return nil
}

func (s *server) close() {
	s.lock.Lock()
	session := s.session
	s.session = nil
	s.lock.Unlock()
	if session != nil {
		session.Close()
	}
}

// reset closes a connection that has failed with err, so that the next call connects again, and returns true. It returns false
// if the server has answered with an error of the protocol, or ctx has ended the call: the connection is as good as before.
func (s *server) reset(ctx context.Context, err error) bool {
	var answered *jsonrpc.Error
	if ctx.Err() != nil || errors.As(err, &answered) && !isOfConnection(answered.Code) {
		return false
	}
	s.close()
	return true
}

// isOfConnection reports whether the library uses a code for errors of the connection: its client or server ends, or the
// message could not be sent.
func isOfConnection(code int64) bool { return code >= -32005 && code <= -32003 }

func (s *servers) close() {
	var closing sync.WaitGroup
	for _, one := range s.all {
		closing.Go(one.close)
	}
	closing.Wait()
}

// call calls a tool. An error is one of the connection or the protocol; a tool that fails returns a result with IsError. If the
// server has restarted and does not know the connection any more, the call is made with a new one.
func (s *server) call(ctx context.Context, tool string, arguments any) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := s.callOnce(ctx, tool, arguments)
	if errors.Is(err, mcp.ErrSessionMissing) {
		s.close()
		answer, err = s.callOnce(ctx, tool, arguments)
	}
	return answer, err
}

// callOnce calls a tool, and connects before if there is no connection.
func (s *server) callOnce(ctx context.Context, tool string, arguments any) (*mcp.CallToolResult, error) {
	s.lock.Lock()
	session := s.session
	s.lock.Unlock()
	if session == nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
		s.lock.Lock()
		session = s.session
		s.lock.Unlock()
	}
	if session == nil {
		return nil, mcp.ErrConnectionClosed // the session ends
	}
	return session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
}

// platform calls a tool of the platform and reads its result, if result is not nil. If the connection fails, calls that can be
// repeated are.
func (s *servers) platform(ctx context.Context, tool string, arguments, result any) error {
	var platform *server
	for _, one := range s.all {
		if one.name == meta.PlatformServer {
			platform = one
		}
	}
	if platform == nil {
		return errors.New("this needs the tools of the platform, which the client does not offer")
	}
	isRepeatable := tool != meta.ToolStartSession && tool != meta.ToolMessageSession
	for attempt := range calling.Attempts(ctx) {
		answer, err := platform.call(ctx, tool, arguments)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && answer.IsError:
			return errors.New(textOf(answer))
		case err == nil && result == nil:
			return nil
		case err == nil:
			return decodeResult(answer, result)
		}
		isLost := platform.reset(ctx, err)
		if !isLost || !isRepeatable || attempt == callAttempts {
			return fmt.Errorf("call the platform: %w", err)
		}
	}
	return ctx.Err()
}

// decodeResult reads the structured content of a result, or its text.
func decodeResult(answer *mcp.CallToolResult, result any) error {
	text := []byte(textOf(answer))
	if answer.StructuredContent != nil {
		var err error
		if text, err = json.Marshal(answer.StructuredContent); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("the platform's answer is no JSON of the expected form: %w", err)
	}
	return nil
}

// textOf returns the texts of a result, bounded.
func textOf(answer *mcp.CallToolResult) string {
	var parts []string
	for _, content := range answer.Content {
		switch c := content.(type) {
		case *mcp.TextContent:
			parts = append(parts, c.Text)
		case *mcp.ImageContent:
			parts = append(parts, fmt.Sprintf("[an image, %s, %d bytes]", c.MIMEType, len(c.Data)))
		case *mcp.ResourceLink:
			parts = append(parts, c.URI)
		case *mcp.EmbeddedResource:
			if c.Resource != nil {
				parts = append(parts, c.Resource.URI, c.Resource.Text)
			}
		}
	}
	if len(parts) == 0 && answer.StructuredContent != nil {
		if text, err := json.Marshal(answer.StructuredContent); err == nil {
			parts = append(parts, string(text))
		}
	}
	return bounded(strings.Join(parts, "\n"))
}

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// toolName returns the name under which a model knows a tool of a server. The platform's keep their names.
func toolName(server, tool string) string {
	name := tool
	if server != meta.PlatformServer {
		name = server + "__" + tool
	}
	const longest = 64 // of the models' servers
	name = notInNames.ReplaceAllString(name, "_")
	return name[:min(len(name), longest)]
}
