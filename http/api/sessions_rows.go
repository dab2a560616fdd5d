package api

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// historyRow is a row of a timeline as JSON. Each kind sets some of the fields.
type historyRow struct {
	Seq       uint64 `json:"seq"`
	CreatedAt int64  `json:"createdAt"`
	Kind      string `json:"kind"`

	Input           string           `json:"input,omitzero"`
	Sender          *senderView      `json:"sender,omitzero"`
	Text            *string          `json:"text,omitzero"`
	Tier            string           `json:"tier,omitzero"`
	Behavior        string           `json:"behavior,omitzero"`
	Images          []imageView      `json:"images,omitempty"`
	Attachments     []attachmentView `json:"attachments,omitempty"`
	SourceSessionID string           `json:"sourceSessionId,omitzero"`
	ClientRequestID string           `json:"clientRequestId,omitzero"`
	InputSeq        uint64           `json:"inputSeq,omitzero"`
	ToolCallID      string           `json:"toolCallId,omitzero"`
	Title           *string          `json:"title,omitzero"`
	ToolKind        string           `json:"toolKind,omitzero"`
	Status          string           `json:"status,omitzero"`
	Paths           []string         `json:"paths,omitempty"`
	Output          string           `json:"output,omitzero"`
	Steps           *[]stepView      `json:"steps,omitzero"`
	Options         []optionView     `json:"options,omitempty"`
	TurnStatus      string           `json:"turnStatus,omitzero"`
	Error           *failureView     `json:"error,omitzero"`
	Cwd             *string          `json:"cwd,omitzero"`
}

type senderView struct {
	Kind      string `json:"kind"`
	UserID    string `json:"userId,omitzero"`
	AppID     string `json:"appId,omitzero"`
	SessionID string `json:"sessionId,omitzero"`
}

type imageView struct {
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
}

type attachmentView struct {
	Path      string `json:"path"`
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	MediaType string `json:"mediaType,omitzero"`
}

type stepView struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

type failureView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// viewRow returns a row of a session's timeline as JSON. It fails for an event that is no row.
func viewRow(r entity.TimelineRow) (historyRow, error) {
	added, ok := r.Event.(*sessionv1.RowAdded)
	if !ok {
		return historyRow{}, fmt.Errorf("the event %T of a session is no row", r.Event)
	}
	view, row := historyRow{Seq: r.Version, CreatedAt: added.GetAt()}, added.GetRow()
	switch {
	case row.GetInput() != nil:
		view.setInput(row.GetInput())
	case row.GetText() != nil:
		view.Kind, view.InputSeq = "text", row.GetText().GetInputSeq()
		view.Text = &row.GetText().Text
	case row.GetThought() != nil:
		view.Kind, view.InputSeq = "thought", row.GetThought().GetInputSeq()
		view.Text = &row.GetThought().Text
	case row.GetTool() != nil:
		t := row.GetTool()
		view.Kind, view.ToolCallID, view.Title, view.ToolKind = "tool", t.GetToolCallId(), &t.Title, t.GetToolKind()
		view.Status, view.Paths, view.Output = t.GetStatus(), t.GetPaths(), t.GetOutput()
	case row.GetPlan() != nil:
		steps := make([]stepView, len(row.GetPlan().GetSteps()))
		for i, s := range row.GetPlan().GetSteps() {
			steps[i] = stepView{s.GetText(), s.GetStatus()}
		}
		view.Kind, view.Steps = "plan", &steps
	case row.GetAsk() != nil:
		view.Kind, view.Text, view.Options = "ask", &row.GetAsk().Text, viewOptions(row.GetAsk().GetOptions())
	case row.GetTerminal() != nil:
		view.setTerminal(row.GetTerminal())
	case row.GetSetting() != nil:
		set := row.GetSetting()
		view.Kind, view.Cwd, view.Title, view.Tier = "setting", set.Cwd, set.Title, tierNames[set.GetTier()]
	default:
		return historyRow{}, fmt.Errorf("the row %d of a session has no content", r.Version)
	}
	return view, nil
}

func (v *historyRow) setInput(in *sessionv1.Input) {
	v.Kind, v.Input, v.Sender, v.Text = "input", inputKindNames[in.GetKind()], viewSender(in.GetSender()), &in.Text
	v.Tier, v.SourceSessionID, v.ClientRequestID = tierNames[in.GetTier()], in.GetSourceSessionId(), in.GetClientRequestId()
	if kind := in.GetKind(); kind == sessionv1.InputKind_INPUT_KIND_PROMPT || kind == sessionv1.InputKind_INPUT_KIND_MESSAGE {
		v.Behavior = behaviorNames[in.GetBehavior()]
	}
	for _, i := range in.GetImages() {
		v.Images = append(v.Images, imageView{i.GetMediaType(), i.GetSize()})
	}
	for _, a := range in.GetAttachments() {
		v.Attachments = append(v.Attachments, attachmentView{a.GetPath(), a.GetName(), a.GetSize(), a.GetMediaType()})
	}
}

func (v *historyRow) setTerminal(t *sessionv1.Terminal) {
	v.Kind, v.TurnStatus, v.InputSeq = "terminal", turnStatusNames[t.GetTurnStatus()], t.GetInputSeq()
	if t.GetError() != nil {
		v.Error = &failureView{t.GetError().GetCode(), t.GetError().GetMessage()}
	}
}

// viewTerminal returns the row of a terminal from its list.
func viewTerminal(t *sessionv1.TerminalRow) historyRow {
	view := historyRow{Seq: t.GetSeq(), CreatedAt: t.GetAt()}
	view.setTerminal(t.GetTerminal())
	return view
}

func viewSender(s *sessionv1.Sender) *senderView {
	switch s.GetKind() {
	case sessionv1.SenderKind_SENDER_KIND_USER:
		return &senderView{Kind: "user", UserID: s.GetId()}
	case sessionv1.SenderKind_SENDER_KIND_APP:
		return &senderView{Kind: "app", AppID: s.GetId()}
	case sessionv1.SenderKind_SENDER_KIND_SESSION:
		return &senderView{Kind: "session", SessionID: s.GetId()}
	default:
		return &senderView{Kind: "system"}
	}
}

// maxHistoryBytes is the number of bytes of a page of the history; see timelineRequest.
const maxHistoryBytes = 1 << 20

// historyRowBytes is the memory that is admitted for each row before the rows are read, in bytes of JSON. Few rows have more; the whole answer
// is admitted when its size is known.
const historyRowBytes = 4 << 10

// timelineRequest is a request for a page of a timeline.
type timelineRequest struct {
	descending bool
	limit      int32
	// bytes bounds the rows, in bytes of JSON: the page ends before the row that would exceed it, but has at least one row.
	bytes int
	// afterSeq is the seq before the first row of the page; cursor is the position of the next page, and has precedence.
	afterSeq uint64
	cursor   string
}

// decodeTimeline decodes the parameters of a page of the session in the path. Errors: invalid_request, invalid_cursor.
func decodeTimeline(c *server.Call) (timelineRequest, error) {
	in, err := decodeRawTimeline(c)
	if err == nil && in.cursor != "" {
		_, err = in.from(c, c.Variable("sessionId"))
	}
	return in, err
}

// decodeRawTimeline is decodeTimeline for a session that is not known yet. It does not open the cursor.
func decodeRawTimeline(c *server.Call) (timelineRequest, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "order", "afterSeq", "cursor", "limit")
	if err != nil {
		return timelineRequest{}, err
	}
	in := timelineRequest{descending: q.Choice("order", "desc", "asc") == "desc", limit: q.Limit(), bytes: maxHistoryBytes, cursor: q.Text("cursor")}
	if q.Has("afterSeq") {
		n, err := strconv.ParseUint(q.Text("afterSeq"), 10, 53)
		switch {
		case err != nil:
			q.Fail(server.Invalid("afterSeq must be an integer from 0 to %d", uint64(entity.MaxTime)))
		case in.descending:
			q.Fail(server.Invalid("afterSeq needs order=asc"))
		}
		in.afterSeq = n
	}
	if q.Has("cursor") && in.cursor == "" {
		q.Fail(server.ErrInvalidCursor)
	}
	return in, q.Err
}

// binding returns the binding of the cursors of a walk through a session's timeline.
func (in timelineRequest) binding(c *server.Call, sessionID string) []byte {
	return server.Binding("session history", c.Workspace.ID, sessionID, strconv.FormatBool(in.descending), strconv.FormatUint(in.afterSeq, 10))
}

// from returns the first version of the page; 0: the first one, or the last one if descending. Errors: invalid_cursor.
func (in timelineRequest) from(c *server.Call, sessionID string) (uint64, error) {
	if in.cursor == "" {
		if in.afterSeq == 0 {
			return 0, nil
		}
		return in.afterSeq + 1, nil
	}
	position, err := c.OpenCursor(in.cursor, in.binding(c, sessionID))
	if err != nil {
		return 0, err
	}
	from, err := strconv.ParseUint(position, 10, 64)
	if err != nil {
		return 0, server.ErrInvalidCursor
	}
	return from, nil
}

// history returns a page of the timeline of the session in the path.
func (s sessions) history(c *server.Call, in timelineRequest) (server.Collection[historyRow], error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return server.Collection[historyRow]{}, err
	}
	return readHistory(c, id, in)
}

// reserve admits the memory for the rows that a page usually has. Errors: rate_limited, unavailable.
func (in timelineRequest) reserve(c *server.Call) error {
	return c.ReserveAnswer(min(int(in.limit)*historyRowBytes, in.bytes))
}

// readHistory returns a page of a session's timeline. Errors: not_found if the caller does not see the session, invalid_cursor; rate_limited
// and unavailable if there is no memory for the page, unless the caller has reserved the memory.
func readHistory(c *server.Call, sessionID string, in timelineRequest) (server.Collection[historyRow], error) {
	page := server.Collection[historyRow]{Items: []historyRow{}}
	from, err := in.from(c, sessionID)
	if err != nil {
		return page, err
	}
	if err := in.reserve(c); err != nil {
		return page, err
	}
	found, err := server.Ask[*wirev1.Timeline](c, entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(c.Workspace.ID, sessionID),
		Message: &wirev1.ReadTimeline{From: from, Descending: in.descending, Limit: in.limit, Bytes: int64(in.bytes)},
	})
	if err != nil {
		return page, err
	}
	rows, err := entity.TimelineRows(found)
	if err != nil {
		return page, err
	}
	next, size := found.GetNext(), 0
	for _, r := range rows {
		view, err := viewRow(r)
		if err != nil {
			return page, err
		}
		encoded, err := json.Marshal(view)
		if err != nil {
			return page, err
		}
		if size += len(encoded); size > in.bytes && len(page.Items) > 0 {
			next = r.Version
			break
		}
		page.Items = append(page.Items, view)
	}
	if next != 0 {
		cursor := c.SealCursor(strconv.FormatUint(next, 10), in.binding(c, sessionID))
		page.NextCursor = &cursor
	}
	return page, nil
}
