package tools

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// maxAwaited is the greatest number of sessions of one call.
	maxAwaited = 32
	// defaultWait is less than the time after which common clients give up a call, a minute.
	defaultWait = 45 * time.Second
	// maxTexts bounds the texts of all sessions of a result together, in bytes. Escapes can double them.
	maxTexts = 24 << 10
)

type awaitIn struct {
	SessionIDs     []string `json:"sessionIds,omitzero" jsonschema:"the sessions; omitted: the newest children of your session" bounds:"1:32" each:"1:64"`
	TimeoutSeconds int      `json:"timeoutSeconds,omitzero" jsonschema:"the longest time to wait; 0 or omitted: 45" bounds:"0:300"`
	Until          string   `json:"until,omitzero" jsonschema:"all (the default) waits for all sessions, any for one of them" enum:"all,any"`
}

type awaitOut struct {
	Done []EndedSession `json:"done"`
	// Running are the sessions that had not ended their turns.
	Running []string `json:"running"`
}

// EndedSession is a session that runs no turn.
type EndedSession struct {
	SessionID string `json:"sessionId"`
	// TurnStatus is complete, ask, sleep or interrupted.
	TurnStatus string `json:"turnStatus"`
	// Text is the last text of the agent. Truncated reports that its beginning was left out.
	Text      string       `json:"text"`
	Truncated bool         `json:"truncated,omitzero"`
	Question  string       `json:"question,omitzero"`
	Error     *FailureView `json:"error,omitzero"`
}

// FailureView describes why a turn has failed.
type FailureView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// awaitSessions waits for the end of the turns of sessions. Errors: invalid_request, not_found, forbidden.
func awaitSessions(ctx context.Context, c *call, in awaitIn) (awaitOut, error) {
	out := awaitOut{Done: []EndedSession{}, Running: []string{}}
	ids := slices.Compact(slices.Sorted(slices.Values(in.SessionIDs)))
	if len(ids) == 0 {
		if c.Session == nil {
			return out, entity.Errorf(entity.InvalidRequest, "sessionIds is required")
		}
		var err error
		if ids, err = c.children(ctx); err != nil {
			return out, err
		}
	}
	for _, id := range ids {
		if err := checkSession(id); err != nil {
			return out, err
		}
		if c.Session != nil && id == c.Session.ID {
			return out, entity.Errorf(entity.InvalidRequest, "a session cannot await itself")
		}
	}
	waiting, end := c.wait(ctx, waitTime(in.TimeoutSeconds))
	defer end()
	ended, err := c.request().AwaitEnds(ctx, waiting, ids, in.Until == "any")
	if err != nil {
		return out, err
	}
	for i, id := range ids {
		if ended[i] == nil {
			out.Running = append(out.Running, id)
			continue
		}
		view, err := c.viewEnd(ctx, ended[i], maxTexts/len(ids))
		if err != nil {
			return out, err
		}
		out.Done = append(out.Done, view)
	}
	return out, nil
}

// wait returns a context for a wait of at most a time within ctx; see Caller.Wait.
func (c *call) wait(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if c.Wait == nil {
		return context.WithTimeout(ctx, most)
	}
	return c.Wait(ctx, most)
}

func waitTime(seconds int) time.Duration {
	if seconds == 0 {
		return defaultWait
	}
	return min(time.Duration(seconds)*time.Second, MaxWait)
}

// children returns the ids of the newest children of the caller's session. Children that do not exist yet, or any more, are not
// among them.
func (c *call) children(ctx context.Context) ([]string, error) {
	page, err := c.list(ctx, &wirev1.List{
		Name: session.SessionList, Prefix: []byte(session.RangePrefix(c.Session.ID, "", false)), Limit: maxAwaited,
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, row := range page.GetRows() {
		var summary sessionv1.SummaryRow
		if err := proto.Unmarshal(row, &summary); err != nil {
			return nil, err
		}
		ids = append(ids, summary.GetSession().GetId())
	}
	return ids, nil
}

// viewEnd describes a session that has ended its turn, with at most a number of bytes of text.
func (c *call) viewEnd(ctx context.Context, s *sessionv1.Session, most int) (EndedSession, error) {
	view := EndedSession{
		SessionID: s.GetId(), TurnStatus: statusName(s.GetTurnStatus()), Question: clip(s.GetAsk().GetText(), most/2),
	}
	hasEnded := false // the rows before it belong to inputs that have arrived since
	read := &wirev1.ReadTimeline{Descending: true, Limit: 20, Bytes: 256 << 10}
	for range mostPages {
		page, err := c.timeline(ctx, s.GetId(), read)
		if err != nil {
			return view, err
		}
		for _, added := range page.rows {
			if failure := added.GetRow().GetTerminal().GetError(); failure != nil && view.Error == nil {
				view.Error = &FailureView{failure.GetCode(), clip(failure.GetMessage(), maxProblem)}
			}
			if hasEnded = hasEnded || added.GetRow().GetTerminal() != nil; !hasEnded {
				continue
			}
			if text := added.GetRow().GetText(); text != nil {
				view.Text = lastPart(text.GetText(), most)
				view.Truncated = len(view.Text) < len(text.GetText())
				return view, nil
			}
			if isTurnStart(added.GetRow()) {
				return view, nil // the last turn had no text
			}
		}
		if page.next == 0 {
			return view, nil
		}
		read.From = page.next
	}
	return view, nil
}

// isTurnStart reports whether a row is an input that can start a turn.
func isTurnStart(r *sessionv1.Row) bool {
	return r.GetInput() != nil && r.GetInput().GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE
}
