package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
)

// SessionRow is a row of the timeline of a session. Each kind sets some of the fields.
type SessionRow struct {
	Seq       uint64 `json:"seq"`
	CreatedAt int64  `json:"createdAt"`
	// Kind is input, text, thought, tool, plan, ask, terminal or setting.
	Kind string `json:"kind"`
	// Input is prompt, message, note or answer.
	Input           string                 `json:"input,omitempty"`
	Sender          *SessionSender         `json:"sender,omitempty"`
	Text            string                 `json:"text,omitempty"`
	Tier            string                 `json:"tier,omitempty"`
	Behavior        string                 `json:"behavior,omitempty"`
	Images          []SessionImageMetadata `json:"images,omitempty"`
	Attachments     []SessionAttachment    `json:"attachments,omitempty"`
	SourceSessionID string                 `json:"sourceSessionId,omitempty"`
	ClientRequestID string                 `json:"clientRequestId,omitempty"`
	// InputSeq is the seq of the input that a text, a thought or a terminal belongs to.
	InputSeq   uint64            `json:"inputSeq,omitempty"`
	ToolCallID string            `json:"toolCallId,omitempty"`
	Title      string            `json:"title,omitempty"`
	ToolKind   string            `json:"toolKind,omitempty"`
	Status     string            `json:"status,omitempty"`
	Paths      []string          `json:"paths,omitempty"`
	Output     string            `json:"output,omitempty"`
	Steps      []SessionPlanStep `json:"steps,omitempty"`
	Options    []SessionOption   `json:"options,omitempty"`
	TurnStatus string            `json:"turnStatus,omitempty"`
	Error      *SessionFailure   `json:"error,omitempty"`
	Cwd        *string           `json:"cwd,omitempty"`
}

// SessionSender is the author of an input. Kind is user, app, session or system.
type SessionSender struct {
	Kind      string `json:"kind"`
	UserID    string `json:"userId,omitempty"`
	AppID     string `json:"appId,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// SessionImageMetadata describes an image of an input.
type SessionImageMetadata struct {
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
}

// SessionPlanStep is a step of the plan of an agent. Status is pending, in_progress or completed.
type SessionPlanStep struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

// HistoryQuery selects the rows of a history.
type HistoryQuery struct {
	// Oldest orders the rows oldest first; AfterSeq then selects the rows with a greater seq.
	Oldest   bool
	AfterSeq uint64
}

func (q HistoryQuery) values() url.Values {
	query := url.Values{}
	if q.Oldest {
		query.Set("order", "asc")
	}
	if q.AfterSeq != 0 {
		query.Set("afterSeq", strconv.FormatUint(q.AfterSeq, 10))
	}
	return query
}

// SessionHistory returns the rows of a session, newest first.
func (c *Client) SessionHistory(slug, sessionID string, q HistoryQuery) Collection[SessionRow] {
	return Collection[SessionRow]{c, sessionPath(slug, sessionID, "/history"), q.values()}
}

// DefaultSessionHistory returns the rows of the default session of an owner, newest first. Codes: no_default_session.
func (c *Client) DefaultSessionHistory(slug, owner string, q HistoryQuery) Collection[SessionRow] {
	return Collection[SessionRow]{c, defaultPath(slug, owner, "/history"), q.values()}
}

// SessionFrame is a row of a session's stream, or text that is still being written.
type SessionFrame struct {
	// Row is nil for a Delta.
	Row *SessionRow
	// Cursor resumes the stream after the row.
	Cursor string
	// Delta is nil for a Row. The row with the whole text follows; a stream that is resumed may lack deltas.
	Delta *SessionDelta
}

// SessionDelta is text that an agent is still writing.
type SessionDelta struct {
	InputSeq uint64 `json:"inputSeq"`
	Text     string `json:"text"`
}

// SessionEvents streams the rows of a session after a cursor, or all of them, and then each new row. It resumes as Events does,
// and yields each row exactly once. It ends when ctx ends or the server refuses with an error that is not temporary; not_found:
// the session was deleted. The last value is the error.
func (c *Client) SessionEvents(ctx context.Context, slug, sessionID, cursor string) iter.Seq2[SessionFrame, error] {
	return c.followSession(ctx, sessionPath(slug, sessionID, "/events"), cursor)
}

// DefaultSessionEvents is SessionEvents for the session that is the default of an owner. When another session becomes the default, the
// stream goes on with all rows of that session.
func (c *Client) DefaultSessionEvents(ctx context.Context, slug, owner, cursor string) iter.Seq2[SessionFrame, error] {
	return c.followSession(ctx, defaultPath(slug, owner, "/events"), cursor)
}

func (c *Client) followSession(ctx context.Context, path, cursor string) iter.Seq2[SessionFrame, error] {
	return func(yield func(SessionFrame, error) bool) {
		f := &follower{client: c, path: path, cursor: cursor, retry: firstRetry}
		f.deliver = func(event, id string, data []byte) error {
			frame := SessionFrame{}
			var err error
			if event == "delta" {
				frame.Delta = &SessionDelta{}
				err = json.Unmarshal(data, frame.Delta)
			} else {
				frame.Row, frame.Cursor = &SessionRow{}, id
				err = json.Unmarshal(data, frame.Row)
				f.advance(id)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errMalformed, err)
			}
			if !yield(frame, nil) {
				return errStopped
			}
			return nil
		}
		if err := f.follow(ctx); !errors.Is(err, errStopped) {
			yield(SessionFrame{}, err)
		}
	}
}
