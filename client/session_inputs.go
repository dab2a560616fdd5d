package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// SessionMessage is the input of SendMessage.
type SessionMessage struct {
	Text string `json:"text"`
	// Tier is the choice of a model; it applies to later messages too. Behavior is steer or follow_up.
	Tier            string              `json:"tier,omitempty"`
	Behavior        string              `json:"behavior,omitempty"`
	Images          []SessionImage      `json:"images,omitempty"`
	Attachments     []SessionAttachment `json:"attachments,omitempty"`
	ClientRequestID string              `json:"clientRequestId,omitempty"`
	// SourceSessionID is the session that the message comes from.
	SourceSessionID string `json:"sourceSessionId,omitempty"`
}

// SessionAnswer is the input of AnswerSession. It has either Text or OptionID.
type SessionAnswer struct {
	Text            string `json:"text,omitempty"`
	OptionID        string `json:"optionId,omitempty"`
	ClientRequestID string `json:"clientRequestId,omitempty"`
	SourceSessionID string `json:"sourceSessionId,omitempty"`
}

// SessionNote is the input of NoteSession.
type SessionNote struct {
	Text            string `json:"text"`
	ClientRequestID string `json:"clientRequestId,omitempty"`
	SourceSessionID string `json:"sourceSessionId,omitempty"`
}

// SessionSent is the answer to an input. Delivery is accepted if a run has taken it, or queued.
type SessionSent struct {
	OK       bool   `json:"ok"`
	Delivery string `json:"delivery"`
}

// DefaultSessionSent is the answer to a message to a default session.
type DefaultSessionSent struct {
	OK        bool   `json:"ok"`
	Delivery  string `json:"delivery"`
	SessionID string `json:"sessionId"`
}

// SendMessage sends a message to a session. Codes: not_found, request_id_reused, limit_reached, insufficient_storage.
func (c *Client) SendMessage(ctx context.Context, slug, sessionID string, in SessionMessage) (SessionSent, error) {
	return call[SessionSent](ctx, c, request{method: http.MethodPost, path: sessionPath(slug, sessionID, "/messages"), in: in})
}

// SendMessageAndWait sends a message and waits for the end of its turn. It repeats the request as long as the turn lasts. An empty
// ClientRequestID is replaced by a new one. Codes: as SendMessage.
func (c *Client) SendMessageAndWait(ctx context.Context, slug, sessionID string, in SessionMessage) (SessionWaited, error) {
	in.ClientRequestID = orNewRequestID(in.ClientRequestID)
	return c.wait(ctx, sessionPath(slug, sessionID, "/messages/wait"), in)
}

// AnswerSession answers the question of a session. Codes: not_found, no_pending_question, request_id_reused.
func (c *Client) AnswerSession(ctx context.Context, slug, sessionID string, in SessionAnswer) (SessionSent, error) {
	return call[SessionSent](ctx, c, request{method: http.MethodPost, path: sessionPath(slug, sessionID, "/answer"), in: in})
}

// AnswerSessionAndWait answers a question and waits as SendMessageAndWait. Codes: as AnswerSession.
func (c *Client) AnswerSessionAndWait(ctx context.Context, slug, sessionID string, in SessionAnswer) (SessionWaited, error) {
	in.ClientRequestID = orNewRequestID(in.ClientRequestID)
	return c.wait(ctx, sessionPath(slug, sessionID, "/answer/wait"), in)
}

// NoteSession leaves a note, which the agent gets with its next turn. Codes: not_found, request_id_reused, limit_reached.
func (c *Client) NoteSession(ctx context.Context, slug, sessionID string, in SessionNote) (SessionSent, error) {
	return call[SessionSent](ctx, c, request{method: http.MethodPost, path: sessionPath(slug, sessionID, "/notes"), in: in})
}

type interruptedAnswer struct {
	OK          bool `json:"ok"`
	Interrupted bool `json:"interrupted"`
}

// InterruptSession ends the running turn or the sleep of a session, and drops the waiting inputs. It reports whether there was
// anything to end. Codes: not_found.
func (c *Client) InterruptSession(ctx context.Context, slug, sessionID string) (interrupted bool, err error) {
	done, err := call[interruptedAnswer](ctx, c, request{method: http.MethodPost, path: sessionPath(slug, sessionID, "/interrupt")})
	return done.Interrupted, err
}

type sessionAnswer struct {
	Session Session `json:"session"`
}

func (c *Client) changeSession(ctx context.Context, method, path string, in any) (Session, error) {
	changed, err := call[sessionAnswer](ctx, c, request{method: method, path: path, in: in})
	return changed.Session, err
}

// SessionMove is the input of MoveSession.
type SessionMove struct {
	Cwd string `json:"cwd"`
}

// MoveSession moves the working directory of a session. Codes: not_found, invalid_cwd, cwd_conflict.
func (c *Client) MoveSession(ctx context.Context, slug, sessionID string, in SessionMove) (Session, error) {
	return c.changeSession(ctx, http.MethodPost, sessionPath(slug, sessionID, "/cwd"), in)
}

// SessionRename is the input of RenameSession.
type SessionRename struct {
	Title string `json:"title"`
}

// RenameSession sets a title that no agent replaces. Codes: not_found.
func (c *Client) RenameSession(ctx context.Context, slug, sessionID string, in SessionRename) (Session, error) {
	return c.changeSession(ctx, http.MethodPatch, sessionPath(slug, sessionID, ""), in)
}

// SessionArchive is the input of ArchiveSession. Scope is personal or global.
type SessionArchive struct {
	Scope    string `json:"scope"`
	Archived bool   `json:"archived"`
}

// ArchiveSession archives or restores a session. Codes: not_found, forbidden.
func (c *Client) ArchiveSession(ctx context.Context, slug, sessionID string, in SessionArchive) (Session, error) {
	return c.changeSession(ctx, http.MethodPut, sessionPath(slug, sessionID, "/archive"), in)
}

// SessionAudienceChange is the input of ChangeAudience. Kind is workspace, specific, or empty: unchanged.
type SessionAudienceChange struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
	Kind   string   `json:"kind,omitempty"`
}

// ChangeAudience changes who participates in a session. Codes: not_found, forbidden.
func (c *Client) ChangeAudience(ctx context.Context, slug, sessionID string, in SessionAudienceChange) (Session, error) {
	return c.changeSession(ctx, http.MethodPatch, sessionPath(slug, sessionID, "/audience"), in)
}

// SessionRead is the input of MarkSessionRead.
type SessionRead struct {
	Seq uint64 `json:"seq"`
}

// MarkSessionRead sets the last row that the caller has read in a session. Codes: not_found.
func (c *Client) MarkSessionRead(ctx context.Context, slug, sessionID string, in SessionRead) (Session, error) {
	return c.changeSession(ctx, http.MethodPut, sessionPath(slug, sessionID, "/read"), in)
}

// DeleteSession deletes a session and its descendants. It succeeds also if there is no such session. Codes: forbidden.
func (c *Client) DeleteSession(ctx context.Context, slug, sessionID string) error {
	response, err := c.do(ctx, request{method: http.MethodDelete, path: sessionPath(slug, sessionID, ""), idempotent: true})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func defaultPath(slug, owner, below string) string {
	return workspacePath(slug, "/agent/defaults/"+segment(owner)+below)
}

type defaultAnswer struct {
	Session *SessionDetail `json:"session"`
}

// DefaultSession returns the default session of an owner, which is the slug of an agent or "root"; nil if there is none.
func (c *Client) DefaultSession(ctx context.Context, slug, owner string) (*SessionDetail, error) {
	found, err := call[defaultAnswer](ctx, c, request{method: http.MethodGet, path: defaultPath(slug, owner, "")})
	return found.Session, err
}

// DefaultSessionChoice is the input of ChooseDefaultSession; nil: no session is the default.
type DefaultSessionChoice struct {
	SessionID *string `json:"sessionId"`
}

// ChooseDefaultSession makes a session the default of an owner. Codes: not_found.
func (c *Client) ChooseDefaultSession(ctx context.Context, slug, owner string, in DefaultSessionChoice) (*SessionDetail, error) {
	chosen, err := call[defaultAnswer](ctx, c, request{method: http.MethodPut, path: defaultPath(slug, owner, ""), in: in})
	return chosen.Session, err
}

// SendDefaultMessage sends a message to the default session of an owner; the first one creates the session. Codes: not_found,
// request_id_reused, limit_reached.
func (c *Client) SendDefaultMessage(ctx context.Context, slug, owner string, in SessionMessage) (DefaultSessionSent, error) {
	return call[DefaultSessionSent](ctx, c, request{method: http.MethodPost, path: defaultPath(slug, owner, "/messages"), in: in})
}

// SendDefaultMessageAndWait sends a message to a default session and waits as SendMessageAndWait. Codes: as SendDefaultMessage.
func (c *Client) SendDefaultMessageAndWait(ctx context.Context, slug, owner string, in SessionMessage) (SessionWaited, error) {
	in.ClientRequestID = orNewRequestID(in.ClientRequestID)
	return c.wait(ctx, defaultPath(slug, owner, "/messages/wait"), in)
}

// UploadOffer is the input of OfferUpload.
type UploadOffer struct {
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	MediaType string `json:"mediaType,omitempty"`
}

// Upload is a URL that accepts one file once, without a credential, and the path that the file gets on the drive.
type Upload struct {
	UploadURL string `json:"uploadUrl"`
	Path      string `json:"path"`
	ExpiresAt int64  `json:"expiresAt"`
}

// OfferUpload offers an upload of a file for a session.
func (c *Client) OfferUpload(ctx context.Context, slug string, in UploadOffer) (Upload, error) {
	return call[Upload](ctx, c, request{method: http.MethodPost, path: workspacePath(slug, sessionsPath+"/uploads"), in: in})
}

// UploadFile offers an upload, sends the file, and returns it as an attachment. body has exactly Size bytes. Codes: the codes of the
// drive.
func (c *Client) UploadFile(ctx context.Context, slug string, in UploadOffer, body io.Reader) (SessionAttachment, error) {
	offered, err := c.OfferUpload(ctx, slug, in)
	if err != nil {
		return SessionAttachment{}, err
	}
	target, err := url.Parse(offered.UploadURL)
	if err != nil {
		return SessionAttachment{}, err
	}
	// The path is resolved against the server of this client, which may be reached at another address than the public one.
	h, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+target.EscapedPath(), body)
	if err != nil {
		return SessionAttachment{}, err
	}
	h.ContentLength = in.Size
	response, err := c.http.Do(h)
	if err != nil {
		return SessionAttachment{}, err
	}
	if !succeeded(response) {
		return SessionAttachment{}, newError(response)
	}
	return SessionAttachment{Path: offered.Path, Name: in.Name, Size: in.Size, MediaType: in.MediaType}, response.Body.Close()
}
