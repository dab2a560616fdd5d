// Package tools is the platform's tools for agents, served over the Model Context Protocol.
//
// There are two kinds of caller. The agent of a session calls from within its computer: its tools act in the workspace of the
// session, as the session (CREDENTIAL_KIND_SESSION), and it can also end its turn with a question or a sleep. A caller elsewhere
// has a credential of the API and no session: it names the workspace in each call, and gets tools for files.
//
//	tool               session  elsewhere
//	start_session         x         x      start a session: a child of the caller's session, if it has one
//	await_sessions        x         x      wait until sessions have ended their turns
//	message_session       x         x      send a message to a session
//	read_session          x         x      read the timeline of a session
//	list_sessions         x         x      list sessions
//	read_activity         x         x      read the file activity since a position
//	last_writers          x         x      find out who changed files last
//	list_apps             x         x      list the apps of the workspace
//	register_app          x         x      serve a folder as an app
//	update_app            x         x      change the configuration or the name of an app
//	restart_app           x         x      replace the process of an app
//	read_app_logs         x         x      read the output of an app
//	ask                   x                ask a question and end the turn
//	sleep_until           x                end the turn and continue at a time
//	report_progress       x                report a step, and how much is done
//	list_workspaces                 x      list the workspaces that the credential reaches
//	read_file                       x      read a file
//	write_file                      x      write a file
//	list_files                      x      list a folder
//
// A call passes these steps:
//
//  1. Tools.ServeTools answers one request of the protocol. Nothing is stored between requests, so that any member can answer each.
//  2. tool.serve validates the arguments against the schema of the tool, which has a bound for each of them.
//  3. For a caller elsewhere, Tools.findWorkspace resolves the workspace's slug.
//  4. The function of the tool sends commands and queries as the caller; the entities authorize them. Only the tools for files
//     need a question to the workspace first (call.authorize), because no command decides what they read. The tools for
//     sessions and apps call the operations of packages service/session and service/app, as the API does.
//  5. The result is one JSON object of at most MaxResult bytes. An error of an entity becomes a result that says so, with its code
//     and message; the details of any other error are logged and not shown.
//
// A call that waits ends with its request: if the client disconnects, no query remains.
package tools

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/oklog/ulid/v2"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/service"
	appservice "github.com/atelier-run/atelier/service/app"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

const (
	// MaxResult bounds the result of a call, in bytes of JSON.
	MaxResult = 64 << 10
	// MaxRequest bounds the body of a request, in bytes, which has room for the longest prompt.
	MaxRequest = 2 << 20
	// MaxWait is the longest wait of a call of await_sessions.
	MaxWait = 300 * time.Second
)

// Files reads and changes the drives of workspaces. Its methods return *entity.Error for everything that the caller may know. The
// caller has been authorized; the author of the rows in the activity is the principal of the access.
type Files interface {
	// Read returns at most limit bytes of a file from an offset, and the size of the file. Errors: not_found, invalid_request
	// if the path is a folder.
	Read(ctx context.Context, access entity.DriveAccess, path string, offset, limit int64) (content []byte, size int64, err error)
	// Write replaces a file, or creates it and the folders above it. It reports whether the file is new.
	Write(ctx context.Context, access entity.DriveAccess, path string, content []byte) (created bool, err error)
	// List calls visit for each entry of a folder, until it returns false. Errors: not_found.
	List(ctx context.Context, access entity.DriveAccess, folder string, visit func(FileEntry) bool) error
}

// FileEntry is an entry of a folder.
type FileEntry struct {
	Name     string    `json:"name"`
	Folder   bool      `json:"folder,omitzero"`
	Size     int64     `json:"size,omitzero"`
	Modified time.Time `json:"modified"`
}

// Turn is the running turn of a session, which the runner implements. Each method returns when its effect is durable, or will be
// part of the end of the turn, and fails with an *entity.Error if the turn has ended.
type Turn interface {
	// Ask makes the turn end with a question, which may offer answers.
	Ask(ctx context.Context, text string, options []string) error
	// SleepUntil makes the turn end; the session continues at the time.
	SleepUntil(ctx context.Context, at time.Time) error
	// Progress reports the step and the progress of a job. Fields that are not set do not change.
	Progress(ctx context.Context, step string, completed, total uint64) error
}

// Options configures Tools. Asker, Folders and Agents are required.
type Options struct {
	Asker entity.AskSettler
	// Folders looks up folders of the drives, and Agents reads the files of agents there.
	Folders sessionservice.Folders
	Agents  sessionservice.Agents
	// NewID returns a new id; prefix names its kind and ends in an underscore: "ses_". nil: a ULID.
	NewID func(prefix string) string
	// Files has the drives; nil: there are no tools for files.
	Files Files
	// Apps has the dependencies of the tools for apps; nil: there are no tools for apps.
	Apps *AppOptions
	// Clock is the clock of sleeps; nil: time.Now.
	Clock func() time.Time
	Log   *slog.Logger
	// Version is the version of the server, which clients may show.
	Version string
}

// Caller is the sender of a request.
type Caller struct {
	service.Caller
	// WorkspaceID is the workspace of Session; empty for a caller elsewhere.
	WorkspaceID string
	// Session is the session of the calling agent; nil: the caller is elsewhere.
	Session *Session
	// Wait returns a context for a wait of at most a time within ctx. The wait ends earlier when the client may have gone; the result is
	// then the result at the end of the time. nil: no wait ends earlier.
	Wait func(ctx context.Context, most time.Duration) (waiting context.Context, end context.CancelFunc)
}

// Session is the session of the calling agent.
type Session struct {
	ID string
	// Turn is the turn in which the agent calls.
	Turn Turn
}

// SessionCaller returns the caller for the agent of a session. userID is the user that started the session; empty if
// no user did. grants are the capabilities that the agent may use in the turn, and participant is the participant of the turn.
func SessionCaller(
	workspaceID, sessionID, userID string, grants []string, participant *sessionv1.Participant, turn Turn,
) Caller {
	return Caller{
		Caller: service.Caller{Principal: &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, CredentialId: sessionID, UserId: userID, WorkspaceId: workspaceID,
			Grants: grants, Participant: &wirev1.Participant{
				UserId: participant.GetUserId(), GrantId: participant.GetGrantId(), CredentialId: participant.GetCredentialId(),
				AppId: participant.GetAppId(),
			},
		}},
		WorkspaceID: workspaceID, Session: &Session{ID: sessionID, Turn: turn},
	}
}

// Tools serves the tools. It is safe for concurrent use.
type Tools struct {
	Options
	sessions *sessionservice.Service
	apps     *appservice.Service
	// inSession and elsewhere serve each kind of caller.
	inSession, elsewhere *mcp.Server
	handler              http.Handler
}

// New returns Tools. Errors: a required option is missing.
func New(o Options) (*Tools, error) {
	if o.Asker == nil || o.Folders == nil || o.Agents == nil {
		return nil, errors.New("tools: Asker, Folders and Agents are required")
	}
	if o.NewID == nil {
		o.NewID = func(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var inSession, elsewhere []*tool
	for _, one := range table(o) {
		if one.callers != onlyElsewhere {
			inSession = append(inSession, one)
		}
		if one.callers != onlySession {
			elsewhere = append(elsewhere, one.elsewhere())
		}
	}
	t := &Tools{
		Options:  o,
		sessions: &sessionservice.Service{Asker: o.Asker, NewID: o.NewID, Folders: o.Folders, Agents: o.Agents},
		apps:     &appservice.Service{Asker: o.Asker, NewID: o.NewID, Folders: o.Folders, Clock: o.Clock},
	}
	t.inSession, t.elsewhere = t.newServer(inSession, sessionInstructions), t.newServer(elsewhere, elsewhereInstructions)
	// The tools are not for browsers, and each request has a bearer token: a host name that resolves to this machine gives a page
	// nothing.
	t.handler = mcp.NewStreamableHTTPHandler(t.serverOfRequest, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: MaxRequest, DisableLocalhostProtection: true,
	})
	return t, nil
}

// table returns the tools for all callers.
func table(o Options) []*tool {
	all := append(sessionTools(), turnTools()...)
	all = append(all, activityTools()...)
	if o.Apps != nil {
		all = append(all, appTools()...)
	}
	if o.Files != nil {
		all = append(all, fileTools()...)
	}
	return all
}

// request is the request in which a tool is called. It travels in the context, so that all callers of a kind share a server.
type request struct {
	// ctx is the context of the request; the calls end with it.
	ctx    context.Context
	caller Caller
}

type requestKey struct{}

func withRequest(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{ctx, caller})
}

// serverOf returns the server for the caller.
func (t *Tools) serverOf(c Caller) *mcp.Server {
	if c.Session != nil {
		return t.inSession
	}
	return t.elsewhere
}

// serverOfRequest returns the server for the caller of ServeTools.
func (t *Tools) serverOfRequest(r *http.Request) *mcp.Server {
	return t.serverOf(r.Context().Value(requestKey{}).(*request).caller)
}

// newServer returns a server of the protocol for a kind of caller.
func (t *Tools) newServer(all []*tool, instructions string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "atelier", Title: "Atelier", Version: t.Version}, &mcp.ServerOptions{
		Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	for _, one := range all {
		server.AddTool(one.definition, func(ctx context.Context, called *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r, ok := ctx.Value(requestKey{}).(*request)
			if !ok {
				return nil, errors.New("tools: the context of a call has no request")
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(r.ctx, cancel)()
			return one.serve(ctx, &call{Tools: t, Caller: r.caller}, called.Params.Arguments), nil
		})
	}
	return server
}

// ServeTools answers a request of a caller that was authenticated: one message of the protocol in a POST, in the form that
// "Streamable HTTP" of the specification of MCP describes, without sessions of its own. The calls end with the request's context.
//
// A batch of messages, which old versions of the protocol have, is refused: it would run any number of calls at once as one
// request.
func (t *Tools) ServeTools(w http.ResponseWriter, r *http.Request, caller Caller) {
	body := bufio.NewReader(r.Body)
	if isBatch(body) {
		http.Error(w, "a batch of messages is not supported: send each message alone", http.StatusBadRequest)
		return
	}
	r = r.WithContext(withRequest(r.Context(), caller))
	r.Body = bufferedBody{body, r.Body}
	t.handler.ServeHTTP(w, r)
}

// bufferedBody reads a body through a buffer.
type bufferedBody struct {
	io.Reader
	io.Closer
}

// isBatch reports whether a body is a JSON array, or could be one after more white space than a body may have. It reads the white
// space before the value only.
func isBatch(body *bufio.Reader) bool {
	for range MaxRequest {
		next, err := body.Peek(1)
		if err != nil || !strings.ContainsAny(string(next), " \t\r\n") {
			return err == nil && next[0] == '['
		}
		body.Discard(1)
	}
	return true
}

// Connect serves a caller over a transport. The calls end with ctx.
func (t *Tools) Connect(ctx context.Context, transport mcp.Transport, caller Caller) (*mcp.ServerSession, error) {
	return t.serverOf(caller).Connect(withRequest(ctx, caller), transport, nil)
}

const (
	sessionInstructions = "Tools of the platform in which you work. Start child sessions for work that can be done in parallel and " +
		"await them; serve a folder as a web app with register_app; use ask when a person must decide, and sleep_until when there is nothing to do before a time. After ask and " +
		"sleep_until, end your turn."
	elsewhereInstructions = "Tools for workspaces: shared drives in which people and agents work. list_workspaces has the slugs. To " +
		"have work done in a workspace, start a session with a prompt and await it. To serve a folder at an address, register it as an app."
)
