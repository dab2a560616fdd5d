package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"path"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
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
	Cwd       string `json:"cwd,omitzero" jsonschema:"the working directory: a path below the root of the drive; . is the root" bounds:"1:4096"`
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

// startSession starts a session. A child is admitted by its parent before it is created, so that a deletion of the parent finds
// it. Errors: invalid_request, invalid_cwd, request_id_reused, forbidden, not_found.
func startSession(ctx context.Context, c *call, in startIn) (startOut, error) {
	if err := checkRequestID(in.RequestID); err != nil {
		return startOut{}, err
	}
	if err := c.authorize(ctx, entity.Sessions, true); err != nil { // before an error can reveal anything about the workspace
		return startOut{}, err
	}
	id, prompt := c.NewID(session.IDPrefix), &sessionv1.Input{Text: in.Prompt, ClientRequestId: in.RequestID, Digest: digest(in)}
	if in.RequestID != "" {
		id = session.DerivedID(c.WorkspaceID, session.SenderOf(c.Principal), in.RequestID)
		earlier, err := ask[*sessionv1.Description](ctx, c, c.sessionQuery(id, &sessionv1.DescribeSession{}))
		switch {
		case err == nil && string(earlier.GetSession().GetPromptDigest()) != string(prompt.GetDigest()):
			return startOut{}, errRequestIDReused
		case err == nil:
			return startOut{SessionID: id}, nil
		case !entity.HasCode(err, entity.NotFound):
			return startOut{}, err
		}
	}
	start, err := c.prepareStart(ctx, id, in, prompt)
	if err != nil {
		return startOut{}, err
	}
	accepted, err := ask[*sessionv1.Accepted](ctx, c, c.sessionCommand(id, start))
	switch {
	case err != nil:
		return startOut{}, err
	case string(accepted.GetDigest()) != string(start.GetPrompt().GetDigest()):
		return startOut{}, errRequestIDReused
	}
	return startOut{SessionID: id, Created: accepted.GetCreated()}, nil
}

// prepareStart returns the command that starts a session. It admits the session as a child of the caller's, if the caller has one.
// Errors: invalid_request, invalid_cwd, forbidden.
func (c *call) prepareStart(ctx context.Context, id string, in startIn, prompt *sessionv1.Input) (*sessionv1.StartSession, error) {
	start := &sessionv1.StartSession{
		AgentId: in.AgentID, Title: in.Title, Mode: modeOf(in.Mode), Prompt: prompt,
	}
	var err error
	if in.Tier != "" {
		if start.Tier, err = entity.ParseTier(in.Tier); err != nil {
			return nil, err
		}
	}
	if start.DefaultTier, err = c.workspaceTier(ctx); err != nil {
		return nil, err
	}
	if in.AgentID != "" {
		agent, err := c.findAgent(ctx, in.AgentID)
		switch tier := agent.GetAgent().GetTier(); {
		case entity.HasCode(err, entity.NotFound):
			return nil, entity.Errorf(entity.InvalidRequest, "agentId must be the id of an agent of the workspace")
		case err != nil:
			return nil, err
		case tier != workspacev1.Tier_TIER_UNSPECIFIED:
			start.DefaultTier = tier
		}
		start.Cwd = agent.GetPath()
	}
	if in.Cwd != "" {
		if start.Cwd, err = c.folder(ctx, in.Cwd); err != nil {
			return nil, err
		}
	}
	if c.Session != nil {
		if err := c.inherit(ctx, id, start, in.Cwd == ""); err != nil {
			return nil, err
		}
	}
	if start.GetMode() == sessionv1.Mode_MODE_UNSPECIFIED {
		start.Mode = sessionv1.Mode_MODE_AUTO
	}
	return start, nil
}

var errRequestIDReused = entity.Errorf(entity.RequestIDReused, "the requestId was used for another request")

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

// inherit makes a session the child of the caller's: it admits the child and takes over what start does not set, and the
// audience; the working directory only if cwd is set. Errors: forbidden if the child would be allowed more than its parent, and
// those of AdmitChild.
func (c *call) inherit(ctx context.Context, id string, start *sessionv1.StartSession, cwd bool) error {
	described, err := ask[*sessionv1.Description](ctx, c, c.sessionCommand(c.Session.ID, &sessionv1.AdmitChild{ChildId: id}))
	if err != nil {
		return err
	}
	parent := described.GetSession()
	start.ParentId, start.Audience = parent.GetId(), parent.GetAudience()
	if cwd {
		start.Cwd = parent.GetCwd()
	}
	start.Prompt.SourceSessionId = parent.GetId()
	if start.GetTier() == workspacev1.Tier_TIER_UNSPECIFIED {
		start.Tier = parent.GetTier()
	}
	switch {
	case start.GetMode() == sessionv1.Mode_MODE_UNSPECIFIED:
		start.Mode = parent.GetMode()
	case start.GetMode() == sessionv1.Mode_MODE_AUTO && parent.GetMode() == sessionv1.Mode_MODE_CONFIRM:
		return entity.Errorf(entity.Forbidden, "a session in mode confirm cannot start one in mode auto")
	}
	return nil
}

// folder returns the canonical form of a working directory, which is empty for the root. The caller is authorized. Errors:
// invalid_cwd.
func (c *call) folder(ctx context.Context, text string) (string, error) {
	if above := path.Clean(text); above == ".." || strings.HasPrefix(above, "../") {
		return "", entity.Errorf(entity.InvalidCwd, "cwd must be a path on the drive")
	}
	cwd := path.Clean("/" + text)[1:]
	if cwd == "" {
		return "", nil
	}
	if err := entity.CheckPath(cwd); err != nil {
		return "", entity.Errorf(entity.InvalidCwd, "%s", err.Message)
	}
	if c.Files == nil {
		return cwd, nil
	}
	err := c.Files.List(ctx, c.access(ctx, entity.Sessions), cwd, func(FileEntry) bool { return false })
	if entity.IsRefusal(err) {
		return "", entity.Errorf(entity.InvalidCwd, "cwd must name a folder that exists")
	}
	return cwd, err
}

// findAgent returns the anchor of the agent with an id, as the platform. Errors: not_found.
func (c *call) findAgent(ctx context.Context, id string) (*workspacev1.Anchor, error) {
	return ask[*workspacev1.Anchor](ctx, c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.WorkspaceID, Principal: entity.Platform(),
		Message: &workspacev1.DescribeAgent{AgentId: id},
	})
}

// sessionTier returns the tier of turns of a session without a tier of their own: that of its agent, or of the workspace.
func (c *call) sessionTier(ctx context.Context, s *sessionv1.Session) (workspacev1.Tier, error) {
	if s.GetAgentId() != "" {
		agent, err := c.findAgent(ctx, s.GetAgentId())
		switch tier := agent.GetAgent().GetTier(); {
		case err != nil && !entity.HasCode(err, entity.NotFound):
			return 0, err
		case tier != workspacev1.Tier_TIER_UNSPECIFIED:
			return tier, nil
		}
	}
	return c.workspaceTier(ctx)
}

// workspaceTier returns the default tier of the workspace.
func (c *call) workspaceTier(ctx context.Context) (workspacev1.Tier, error) {
	described, err := ask[*workspacev1.Description](ctx, c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.WorkspaceID, Message: &workspacev1.DescribeWorkspace{},
	})
	if tier := described.GetWorkspace().GetDefaultTier(); tier != workspacev1.Tier_TIER_UNSPECIFIED {
		return tier, err
	}
	return workspacev1.Tier_TIER_BALANCED, err
}

// sessionCommand returns a command to a session of the workspace. The router delivers it once, however often it retries.
func (c *call) sessionCommand(sessionID string, m proto.Message) entity.Command {
	return entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(c.WorkspaceID, sessionID), ID: c.NewID("cmd_"), Message: m,
	}
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

// messageSession sends a message. A request id is remembered in a row of the session; until that row is written, the id of the
// command makes a repetition have no effect. Errors: not_found, forbidden, limit_reached, request_id_reused.
func messageSession(ctx context.Context, c *call, in messageIn) (messageOut, error) {
	if err := checkSession(in.SessionID); err != nil {
		return messageOut{}, err
	}
	if err := checkRequestID(in.RequestID); err != nil {
		return messageOut{}, err
	}
	input := &sessionv1.Input{
		Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: in.Text, Behavior: sessionv1.Behavior_BEHAVIOR_STEER,
		ClientRequestId: in.RequestID, Digest: digest(in),
	}
	if in.Behavior == "follow_up" {
		input.Behavior = sessionv1.Behavior_BEHAVIOR_FOLLOW_UP
	}
	if c.Session != nil {
		input.SourceSessionId = c.Session.ID
	}
	described, err := ask[*sessionv1.Description](ctx, c, c.sessionQuery(in.SessionID, &sessionv1.DescribeSession{}))
	if err != nil {
		return messageOut{}, err
	}
	tier, err := c.sessionTier(ctx, described.GetSession())
	if err != nil {
		return messageOut{}, err
	}
	command := c.sessionCommand(in.SessionID, &sessionv1.SendInput{Input: input, DefaultTier: tier})
	if in.RequestID != "" {
		command.ID = "cmd_" + in.SessionID + "_" + in.RequestID
		earlier, err := c.findRequest(ctx, in.SessionID, in.RequestID)
		switch {
		case err != nil:
			return messageOut{}, err
		case earlier != nil:
			return acceptMessage(earlier.GetInputSeq(), earlier.GetDigest(), input)
		}
	}
	accepted, err := ask[*sessionv1.Accepted](ctx, c, command)
	if err != nil {
		return messageOut{}, err
	}
	return acceptMessage(accepted.GetInputSeq(), accepted.GetDigest(), input)
}

func acceptMessage(seq uint64, digest []byte, sent *sessionv1.Input) (messageOut, error) {
	if string(digest) != string(sent.GetDigest()) {
		return messageOut{}, errRequestIDReused
	}
	return messageOut{seq}, nil
}

// findRequest returns the input that was sent to a session with a request id; nil if there is none. The caller must see the
// session, which this does not verify. Errors: forbidden.
func (c *call) findRequest(ctx context.Context, sessionID, requestID string) (*sessionv1.RequestRow, error) {
	key := session.Key(sessionID, requestID)
	// The rows of longer request ids have the prefix too. The shortest key comes first.
	page, err := c.list(ctx, &wirev1.List{Name: session.RequestList, Prefix: []byte(key), Limit: 1})
	if err != nil || len(page.GetRows()) == 0 {
		return nil, err
	}
	var found sessionv1.RequestRow
	if err := proto.Unmarshal(page.GetRows()[0], &found); err != nil || found.GetClientRequestId() != requestID {
		return nil, err
	}
	return &found, nil
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
