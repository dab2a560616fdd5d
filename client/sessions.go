package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// Session is an agent session, as lists have it.
type Session struct {
	ID string `json:"id"`
	// TurnStatus is running, complete, ask, interrupted or sleep; Bucket is asking, running, scheduled or done.
	TurnStatus string `json:"turnStatus"`
	Bucket     string `json:"bucket"`
	Title      string `json:"title"`
	// TitleOrigin is excerpt, auto or manual; TitleStatus is generating, complete or failed.
	TitleOrigin string `json:"titleOrigin"`
	TitleStatus string `json:"titleStatus"`
	// Cwd is the working directory, relative to the root of the drive; empty: the root.
	Cwd        string        `json:"cwd,omitempty"`
	Agent      *SessionAgent `json:"agent,omitempty"`
	Onboarding bool          `json:"onboarding,omitempty"`
	// CreatedBySessionID is the id of the parent, also after the parent was deleted.
	CreatedBySessionID string             `json:"createdBySessionId,omitempty"`
	CreatedAt          int64              `json:"createdAt"`
	UpdatedAt          int64              `json:"updatedAt"`
	LastEventSeq       uint64             `json:"lastEventSeq"`
	Unread             bool               `json:"unread"`
	Audience           SessionAudience    `json:"audience"`
	Archive            SessionArchives    `json:"archive"`
	Permissions        SessionPermissions `json:"permissions"`
	// Machine is set for a job.
	Machine *SessionMachine `json:"machine,omitempty"`
}

// SessionAgent is the agent of a session.
type SessionAgent struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// SessionAudience is the audience of a session. Kind is workspace or specific; the other fields are set for specific.
type SessionAudience struct {
	Kind  string `json:"kind"`
	Count int    `json:"count,omitempty"`
	// Preview has at most 5 members.
	Preview []SessionMember `json:"preview,omitempty"`
}

// SessionMember is a member of the audience of a session.
type SessionMember struct {
	MemberID string `json:"memberId"`
	UserID   string `json:"userId"`
	Name     string `json:"name"`
	Email    string `json:"email"`
	Role     string `json:"role"`
}

// SessionArchives are the archives of a session: for everybody, and for the caller. Reason is global, personal or nil.
type SessionArchives struct {
	GlobalArchivedAt   *int64  `json:"globalArchivedAt"`
	PersonalArchivedAt *int64  `json:"personalArchivedAt"`
	Reason             *string `json:"reason"`
}

// SessionPermissions has the caller's rights to a session.
type SessionPermissions struct {
	Send            bool `json:"send"`
	Answer          bool `json:"answer"`
	Interrupt       bool `json:"interrupt"`
	Rename          bool `json:"rename"`
	ManageAudience  bool `json:"manageAudience"`
	PersonalArchive bool `json:"personalArchive"`
	GlobalArchive   bool `json:"globalArchive"`
	Delete          bool `json:"delete"`
}

// SessionMachine is the state of a job. Activity is running, sleeping, waiting or idle; Outcome is interrupted, completed, failed,
// cancelled, error, or empty.
type SessionMachine struct {
	Activity   string           `json:"activity"`
	Step       string           `json:"step,omitempty"`
	Progress   *SessionProgress `json:"progress,omitempty"`
	NextWakeAt int64            `json:"nextWakeAt,omitempty"`
	Outcome    string           `json:"outcome,omitempty"`
}

// SessionProgress is the progress of a job.
type SessionProgress struct {
	Completed uint64 `json:"completed"`
	Total     uint64 `json:"total"`
}

// SessionDetail is a session with the fields that lists leave out.
type SessionDetail struct {
	Session
	// Tier is the tier of messages without one; nil: the default of the workspace.
	Tier *string `json:"tier"`
	// Mode is auto or confirm.
	Mode string `json:"mode"`
	// Ask is the question that waits for an answer.
	Ask           *SessionAsk           `json:"ask"`
	PendingInputs []SessionPendingInput `json:"pendingInputs"`
	Usage         SessionUsage          `json:"usage"`
}

// SessionAsk is a question of a session.
type SessionAsk struct {
	Seq     uint64          `json:"seq"`
	Text    string          `json:"text"`
	Options []SessionOption `json:"options"`
}

// SessionOption is a possible answer.
type SessionOption struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// SessionPendingInput is an input that no turn has taken.
type SessionPendingInput struct {
	Seq       uint64 `json:"seq"`
	Behavior  string `json:"behavior"`
	Tier      string `json:"tier"`
	CreatedAt int64  `json:"createdAt"`
}

// SessionUsage counts the tokens of models that a session has used.
type SessionUsage struct {
	InputTokens  uint64 `json:"inputTokens"`
	OutputTokens uint64 `json:"outputTokens"`
}

// SessionImage is an image of an input: png, jpeg, gif or webp.
type SessionImage struct {
	MediaType string `json:"mediaType"`
	Data      []byte `json:"data"`
}

// SessionAttachment is a file of the drive.
type SessionAttachment struct {
	Path      string `json:"path"`
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	MediaType string `json:"mediaType,omitempty"`
}

// NewSession is the input of StartSession.
type NewSession struct {
	Prompt string `json:"prompt"`
	// Tier is the choice of a model; it applies to later messages too. Behavior is steer or follow_up; Mode is auto or confirm.
	Tier     string `json:"tier,omitempty"`
	Behavior string `json:"behavior,omitempty"`
	// ClientRequestID is a UUID; see NewRequestID. A request that is repeated with it returns the same session.
	ClientRequestID string              `json:"clientRequestId,omitempty"`
	Images          []SessionImage      `json:"images,omitempty"`
	Attachments     []SessionAttachment `json:"attachments,omitempty"`
	// Cwd is a folder of the drive. nil: the folder of the agent or of the parent, or the root.
	Cwd *string `json:"cwd,omitempty"`
	// MemberUserIDs restricts the audience. nil: all members of the workspace.
	MemberUserIDs *[]string `json:"memberUserIds,omitempty"`
	AgentID       string    `json:"agentId,omitempty"`
	Mode          string    `json:"mode,omitempty"`
}

// SessionStarted is the answer to StartSession. Delivery is accepted if a run has taken the prompt, or queued.
type SessionStarted struct {
	SessionID string           `json:"sessionId"`
	Session   SessionDetail    `json:"session"`
	History   Page[SessionRow] `json:"history"`
	Delivery  string           `json:"delivery"`
}

// SessionWaited is the answer to a request that waits.
type SessionWaited struct {
	SessionID string `json:"sessionId"`
	InputSeq  uint64 `json:"inputSeq"`
	// Terminal is the end of the turn of the input.
	Terminal *SessionTerminal `json:"terminal"`
}

// SessionTerminal is the row that has ended the turn of an input. TurnStatus is complete, ask, interrupted or sleep.
type SessionTerminal struct {
	Seq        uint64          `json:"seq"`
	CreatedAt  int64           `json:"createdAt"`
	Kind       string          `json:"kind"`
	TurnStatus string          `json:"turnStatus"`
	InputSeq   uint64          `json:"inputSeq"`
	Error      *SessionFailure `json:"error,omitempty"`
}

// SessionFailure is the reason why a turn was interrupted.
type SessionFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// NewRequestID returns a random UUID, which identifies a request that may have to be repeated.
func NewRequestID() string {
	var b [16]byte
	rand.Read(b[:])                             // never fails, according to its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4 (RFC 9562, section 5.4)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

const sessionsPath = "/agent/sessions"

func sessionPath(slug, sessionID, below string) string {
	return workspacePath(slug, sessionsPath+"/"+segment(sessionID)+below)
}

// SessionsQuery selects the sessions of a list.
type SessionsQuery struct {
	// Bucket is asking, running, scheduled or done; empty: all.
	Bucket string
	// Archived selects the archived sessions, otherwise only the others are listed.
	Archived bool
	// Search selects sessions with a title that contains it. AgentID selects the sessions of an agent.
	Search, AgentID string
	// ExcludeDefault leaves out default sessions, TopLevel children of other sessions.
	ExcludeDefault, TopLevel bool
}

func (q SessionsQuery) values() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"bucket": q.Bucket, "search": q.Search, "agentId": q.AgentID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Archived {
		query.Set("archived", "only")
	}
	if q.ExcludeDefault {
		query.Set("excludeDefault", "true")
	}
	if q.TopLevel {
		query.Set("topLevel", "true")
	}
	return query
}

// Sessions returns the sessions of a workspace that the caller sees, newest first.
func (c *Client) Sessions(slug string, q SessionsQuery) Collection[Session] {
	return Collection[Session]{c, workspacePath(slug, sessionsPath), q.values()}
}

// ChildSessions returns the direct children of a session that the caller sees, newest first.
func (c *Client) ChildSessions(slug, parentID string, q SessionsQuery) Collection[Session] {
	return Collection[Session]{c, sessionPath(slug, parentID, "/sessions"), q.values()}
}

// Session returns a session.
func (c *Client) Session(ctx context.Context, slug, sessionID string) (SessionDetail, error) {
	return call[SessionDetail](ctx, c, request{method: http.MethodGet, path: sessionPath(slug, sessionID, "")})
}

// StartSession starts a session. Codes: invalid_cwd, request_id_reused, insufficient_storage.
func (c *Client) StartSession(ctx context.Context, slug string, in NewSession) (SessionStarted, error) {
	return call[SessionStarted](ctx, c, request{method: http.MethodPost, path: workspacePath(slug, sessionsPath), in: in})
}

// StartChildSession starts a child of a session. The working directory, the tier and the mode are the parent's if they are omitted.
// Codes: not_found, invalid_cwd, request_id_reused, insufficient_storage.
func (c *Client) StartChildSession(ctx context.Context, slug, parentID string, in NewSession) (SessionStarted, error) {
	return call[SessionStarted](ctx, c, request{method: http.MethodPost, path: sessionPath(slug, parentID, "/sessions"), in: in})
}

// StartSessionAndWait starts a session and waits for the end of its first turn. It repeats the request as long as the turn lasts.
// An empty ClientRequestID is replaced by a new one. Codes: as StartSession.
func (c *Client) StartSessionAndWait(ctx context.Context, slug string, in NewSession) (SessionWaited, error) {
	in.ClientRequestID = orNewRequestID(in.ClientRequestID)
	return c.wait(ctx, workspacePath(slug, sessionsPath+"/wait"), in)
}

// StartChildSessionAndWait is StartSessionAndWait for a child of a session. Codes: as StartChildSession.
func (c *Client) StartChildSessionAndWait(ctx context.Context, slug, parentID string, in NewSession) (SessionWaited, error) {
	in.ClientRequestID = orNewRequestID(in.ClientRequestID)
	return c.wait(ctx, sessionPath(slug, parentID, "/sessions/wait"), in)
}

func orNewRequestID(id string) string {
	if id == "" {
		return NewRequestID()
	}
	return id
}

// wait repeats a request that waits until its answer has a terminal. When the server has taken the input, wait also repeats the
// request after failures that are temporary, such as a restart of the server, until ctx ends: the request id finds the input.
func (c *Client) wait(ctx context.Context, path string, in any) (SessionWaited, error) {
	var sent SessionWaited
	for failures := 0; ; {
		found, err := call[SessionWaited](ctx, c, request{method: http.MethodPost, path: path, in: in})
		var again time.Duration
		switch {
		case err == nil && found.Terminal != nil:
			return found, nil
		case err == nil:
			sent, failures = found, 0
		case sent.SessionID == "" || ctx.Err() != nil || !isTemporary(err):
			return sent, err
		default:
			failures++
			again = retry.Policy{First: firstRetry, Longest: longestRetry}.Limit(failures)
			if refused := (*Error)(nil); errors.As(err, &refused) {
				again = max(again, min(refused.RetryAfter, longestRetry))
			}
		}
		if err := pause(ctx, again); err != nil {
			return sent, err
		}
	}
}

// isTemporary reports whether a request that failed may succeed later: the server has not answered, or says so.
func isTemporary(err error) bool {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.temporary()
	}
	return !errors.Is(err, errUndecodable)
}
