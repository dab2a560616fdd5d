package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// sessionTools returns the tools for sessions.
func sessionTools() []*tool {
	return []*tool{
		define(everybody, "start_session", "Start a session: an agent works on the prompt in the workspace, on its own and durably. "+
			"The session is a child of yours, if you are one, and inherits its working directory, tier and mode. Returns at once; use "+
			"await_sessions to wait for the result.", adds, startSession),
		define(everybody, "await_sessions", "Wait until sessions have ended their turns, and read their last texts. A session that "+
			"asks or sleeps has ended its turn: turnStatus says so. Sessions in running had not ended when the time was over; call again.",
			reads, awaitSessions),
		define(everybody, "message_session", "Send a message to a session. It starts a turn, or joins the running one.", adds, messageSession),
		define(everybody, "read_session", "Read the timeline of a session in order: inputs, texts, tool calls, and the ends of turns.",
			reads, readSession),
		define(everybody, "list_sessions", "List the sessions of the workspace, newest first.", reads, listSessions),
	}
}

type startIn struct {
	Prompt    string `json:"prompt" jsonschema:"the task for the agent, with everything that it has to know" bounds:"1:200000"`
	Title     string `json:"title,omitzero" jsonschema:"a title; omitted: the beginning of the prompt" bounds:"1:200"`
	Cwd       string `json:"cwd,omitzero" jsonschema:"the working directory: a path relative to the root of the drive; . is the root" bounds:"1:4096"`
	Tier      string `json:"tier,omitzero" jsonschema:"the tier of the model" enum:"frontier,balanced,openai-frontier,openai-max,anthropic-frontier,anthropic-max"`
	AgentID   string `json:"agentId,omitzero" jsonschema:"the agent; omitted: the default one" bounds:"1:128"`
	Mode      string `json:"mode,omitzero" jsonschema:"auto grants the agent's requests for permission, confirm makes them questions" enum:"auto,confirm"`
	RequestID string `json:"requestId,omitzero" jsonschema:"makes a repetition of the call return the same session" bounds:"1:64"`
}

type startOut struct {
	SessionID string `json:"sessionId"`
	// Created is false if an earlier call with the same request id has created the session.
	Created bool `json:"created"`
}

// startSession starts a session: a child of the caller's session, if the caller has one. Errors: invalid_request, invalid_cwd,
// request_id_reused, forbidden, not_found.
func startSession(ctx context.Context, c *call, in startIn) (startOut, error) {
	if err := checkRequestID(in.RequestID); err != nil {
		return startOut{}, err
	}
	start := sessionservice.Start{
		Input:   sessionservice.Input{Input: &sessionv1.Input{Text: in.Prompt, ClientRequestId: in.RequestID, Digest: digest(in)}},
		AgentID: in.AgentID, Title: in.Title, Mode: modeOf(in.Mode),
	}
	if in.Tier != "" {
		var err error
		if start.Tier, err = entity.ParseTier(in.Tier); err != nil {
			return startOut{}, err
		}
	}
	if in.Cwd != "" {
		start.Cwd = &in.Cwd
	}
	if c.Session != nil {
		start.ParentID, start.SourceSessionId = c.Session.ID, c.Session.ID
	}
	started, err := c.request().Start(ctx, start)
	return startOut{started.SessionID, started.Created}, err
}

// request returns the call as the operations of package service/session take it.
func (c *call) request() sessionservice.Request {
	return c.sessions.For(c.Caller.Caller, c.WorkspaceID)
}

func checkRequestID(id string) error {
	if id != "" && !entity.IsID(id) {
		return entity.Errorf(entity.InvalidRequest, "requestId must be printable ASCII without spaces")
	}
	return nil
}

// digest returns the SHA-256 of the arguments of a call.
func digest(in any) []byte {
	text, err := json.Marshal(in)
	must(err)
	sum := sha256.Sum256(text)
	return sum[:]
}

// sessionQuery returns a query to a session of the workspace.
func (c *call) sessionQuery(sessionID string, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindSession, Identity: session.Identity(c.WorkspaceID, sessionID), Message: m}
}

// list requests a page of one of the lists of the workspace.
func (c *call) list(ctx context.Context, l *wirev1.List) (*wirev1.Page, error) {
	return ask[*wirev1.Page](ctx, c, entity.Command{Kind: entity.KindWorkspace, Identity: c.WorkspaceID, Message: l})
}

// checkSession returns an error unless a text is the id of a session. Errors: not_found.
func checkSession(id string) error {
	if !session.IsID(id) {
		return entity.Errorf(entity.NotFound, "no such session")
	}
	return nil
}

type messageIn struct {
	SessionID string `json:"sessionId" jsonschema:"the session" bounds:"1:64"`
	Text      string `json:"text" jsonschema:"the message" bounds:"1:200000"`
	Behavior  string `json:"behavior,omitzero" jsonschema:"steer (the default) gives the message to the running agent at once, follow_up waits for the end of its turn" enum:"steer,follow_up"`
	RequestID string `json:"requestId,omitzero" jsonschema:"makes a repetition of the call have no effect" bounds:"1:64"`
}

type messageOut struct {
	InputSeq uint64 `json:"inputSeq"`
}

// messageSession sends a message. Errors: not_found, forbidden, limit_reached, request_id_reused.
func messageSession(ctx context.Context, c *call, in messageIn) (messageOut, error) {
	if err := checkRequestID(in.RequestID); err != nil {
		return messageOut{}, err
	}
	sender := session.SenderOf(c.Principal)
	input := &sessionv1.Input{
		Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: in.Text, Behavior: sessionv1.Behavior_BEHAVIOR_STEER,
		ClientRequestId: in.RequestID, Digest: digest([]any{sender.GetKind(), sender.GetId(), in}),
	}
	if in.Behavior == "follow_up" {
		input.Behavior = sessionv1.Behavior_BEHAVIOR_FOLLOW_UP
	}
	if c.Session != nil {
		input.SourceSessionId = c.Session.ID
	}
	sent, err := c.request().Send(ctx, in.SessionID, sessionservice.Input{Input: input})
	return messageOut{sent.Seq}, err
}

type listIn struct {
	Bucket string `json:"bucket,omitzero" jsonschema:"only sessions in this state; omitted: all" enum:"asking,running,scheduled,done"`
	Search string `json:"search,omitzero" jsonschema:"only sessions whose title contains the text" bounds:"1:200"`
	Limit  int32  `json:"limit,omitzero" jsonschema:"the number of sessions, 20 if omitted" bounds:"1:100"`
}

type listOut struct {
	Sessions []SessionView `json:"sessions"`
	// More reports that there are further sessions.
	More bool `json:"more"`
}

// SessionView describes a session.
type SessionView struct {
	SessionID  string `json:"sessionId"`
	Title      string `json:"title"`
	Bucket     string `json:"bucket"`
	TurnStatus string `json:"turnStatus"`
	ParentID   string `json:"parentId,omitzero"`
	AgentID    string `json:"agentId,omitzero"`
	Cwd        string `json:"cwd"`
	CreatedAt  int64  `json:"createdAt"`
	UpdatedAt  int64  `json:"updatedAt"`
}

func listSessions(ctx context.Context, c *call, in listIn) (listOut, error) {
	filter, err := proto.Marshal(&sessionv1.Filter{Search: in.Search})
	if err != nil {
		return listOut{}, err
	}
	out := listOut{Sessions: []SessionView{}}
	most := int(cmp.Or(in.Limit, 20))
	for after, pages := []byte(nil), 0; ; pages++ {
		page, err := c.list(ctx, &wirev1.List{
			Name: session.SessionList, Prefix: []byte(session.RangePrefix(session.ScopeAll, in.Bucket, false)), After: after,
			Limit: int32(most - len(out.Sessions)), Filter: filter,
		})
		if err != nil {
			return listOut{}, err
		}
		for _, row := range page.GetRows() {
			var summary sessionv1.SummaryRow
			if err := proto.Unmarshal(row, &summary); err != nil {
				return listOut{}, err
			}
			out.Sessions = append(out.Sessions, viewSession(summary.GetSession()))
		}
		after, out.More = page.GetNext(), len(page.GetNext()) > 0
		if !out.More || len(out.Sessions) >= most || pages == mostPages {
			return out, nil
		}
	}
}

// mostPages bounds the pages that one call reads to find rows that match.
const mostPages = 20

func viewSession(s *sessionv1.Session) SessionView {
	return SessionView{
		SessionID: s.GetId(), Title: s.GetTitle(), Bucket: session.BucketOf(s), TurnStatus: statusName(s.GetTurnStatus()),
		ParentID: s.GetParentId(), AgentID: s.GetAgentId(), Cwd: s.GetCwd(), CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(),
	}
}

// enumName returns the name of an enum's value in JSON: the value without a prefix, in lower case.
func enumName(value, prefix string) string { return strings.ToLower(strings.TrimPrefix(value, prefix)) }

func statusName(s sessionv1.TurnStatus) string { return enumName(s.String(), "TURN_STATUS_") }

func modeOf(name string) sessionv1.Mode {
	return sessionv1.Mode(sessionv1.Mode_value["MODE_"+strings.ToUpper(name)])
}
