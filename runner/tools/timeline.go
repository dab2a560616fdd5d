package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// timelinePage is a page of the rows of a session.
type timelinePage struct {
	rows []*sessionv1.RowAdded
	// next is the From of the next page; 0 if no rows follow.
	next uint64
}

// timeline reads a page of the timeline of a session. Errors: not_found, forbidden.
func (c *call) timeline(ctx context.Context, sessionID string, read *wirev1.ReadTimeline) (timelinePage, error) {
	found, err := ask[*wirev1.Timeline](ctx, c, c.sessionQuery(sessionID, read))
	if err != nil {
		return timelinePage{}, err
	}
	page := timelinePage{next: found.GetNext()}
	for _, event := range found.GetEvents() {
		decoded, err := entity.Message(event.GetName(), event.GetPayload())
		if err != nil {
			return timelinePage{}, err
		}
		added, ok := decoded.(*sessionv1.RowAdded)
		if !ok {
			return timelinePage{}, fmt.Errorf("tools: a row of a timeline is %T", decoded)
		}
		page.rows = append(page.rows, added)
	}
	return page, nil
}

const (
	// maxRowText bounds each text of a row, in bytes.
	maxRowText = 16 << 10
	// maxRows bounds the rows of a result, in bytes of JSON, which leaves room for the rest of it.
	maxRows = MaxResult - 4<<10
)

type readIn struct {
	SessionID string `json:"sessionId" jsonschema:"the session" bounds:"1:64"`
	AfterSeq  uint64 `json:"afterSeq,omitzero" jsonschema:"only rows after this seq; omitted: from the first row" bounds:"0:9007199254740991"`
	Limit     int32  `json:"limit,omitzero" jsonschema:"the number of rows, 50 if omitted" bounds:"1:100"`
}

type readOut struct {
	Rows []RowView `json:"rows"`
	// NextAfterSeq is the afterSeq of the next page; 0 if no rows follow yet.
	NextAfterSeq uint64 `json:"nextAfterSeq,omitzero"`
}

// RowView is a row of a timeline. Only the fields of its kind are set.
type RowView struct {
	Seq       uint64 `json:"seq"`
	CreatedAt int64  `json:"createdAt"`
	// Kind is input, text, thought, tool, plan, ask, terminal or setting.
	Kind string `json:"kind"`
	// Input is prompt, message, note or answer.
	Input    string      `json:"input,omitzero"`
	Sender   *SenderView `json:"sender,omitzero"`
	Text     string      `json:"text,omitzero"`
	OptionID string      `json:"optionId,omitzero"`
	InputSeq uint64      `json:"inputSeq,omitzero"`
	// Attachments are the paths of the files of an input; Images is the number of its images.
	Attachments []string     `json:"attachments,omitzero"`
	Images      int          `json:"images,omitzero"`
	ToolCallID  string       `json:"toolCallId,omitzero"`
	Title       string       `json:"title,omitzero"`
	ToolKind    string       `json:"toolKind,omitzero"`
	Status      string       `json:"status,omitzero"`
	Paths       []string     `json:"paths,omitzero"`
	Output      string       `json:"output,omitzero"`
	Steps       []StepView   `json:"steps,omitzero"`
	Options     []OptionView `json:"options,omitzero"`
	TurnStatus  string       `json:"turnStatus,omitzero"`
	Error       *FailureView `json:"error,omitzero"`
	Cwd         *string      `json:"cwd,omitzero"`
	Tier        string       `json:"tier,omitzero"`
	// Truncated reports that a text or a list of the row is not whole.
	Truncated bool `json:"truncated,omitzero"`
}

// SenderView is the author of an input: a user, an app, a session or the system.
type SenderView struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitzero"`
}

// StepView is a step of a plan.
type StepView struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

// OptionView is an option of a question.
type OptionView struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// readSession reads rows of a timeline, in order. Errors: not_found, forbidden.
func readSession(ctx context.Context, c *call, in readIn) (readOut, error) {
	out := readOut{Rows: []RowView{}}
	if err := checkSession(in.SessionID); err != nil {
		return out, err
	}
	page, err := c.timeline(ctx, in.SessionID, &wirev1.ReadTimeline{
		From: in.AfterSeq + 1, Limit: cmp.Or(in.Limit, 50), Bytes: 4 * maxRows,
	})
	if err != nil {
		return out, err
	}
	size := 0
	for _, added := range page.rows {
		view := viewRow(added)
		encoded, err := json.Marshal(view)
		if err != nil {
			return out, err
		}
		if size += len(encoded) + 1; size > maxRows && len(out.Rows) > 0 {
			out.NextAfterSeq = out.Rows[len(out.Rows)-1].Seq
			return out, nil
		}
		if len(encoded) > maxRows {
			view = RowView{Seq: view.Seq, CreatedAt: view.CreatedAt, Kind: view.Kind, Truncated: true}
		}
		out.Rows = append(out.Rows, view)
	}
	if page.next > 0 {
		out.NextAfterSeq = page.next - 1
	}
	return out, nil
}

// viewRow returns the view of a row. Its texts have at most maxRowText bytes, and its lists at most maxElements.
func viewRow(added *sessionv1.RowAdded) RowView {
	row := added.GetRow()
	v := RowView{Seq: added.GetSeq(), CreatedAt: added.GetAt()}
	switch {
	case row.GetInput() != nil:
		v.setInput(row.GetInput())
	case row.GetText() != nil:
		v.Kind, v.Text, v.InputSeq = "text", v.cut(row.GetText().GetText()), row.GetText().GetInputSeq()
	case row.GetThought() != nil:
		v.Kind, v.Text, v.InputSeq = "thought", v.cut(row.GetThought().GetText()), row.GetThought().GetInputSeq()
	case row.GetTool() != nil:
		tool := row.GetTool()
		v.Kind, v.ToolCallID, v.Title, v.ToolKind = "tool", v.cut(tool.GetToolCallId()), v.cut(tool.GetTitle()), tool.GetToolKind()
		v.Status, v.Paths, v.Output = tool.GetStatus(), first(&v, tool.GetPaths()), v.cut(tool.GetOutput())
	case row.GetPlan() != nil:
		v.Kind = "plan"
		for _, step := range first(&v, row.GetPlan().GetSteps()) {
			v.Steps = append(v.Steps, StepView{clip(step.GetText(), maxProblem), step.GetStatus()})
		}
	case row.GetAsk() != nil:
		v.Kind, v.Text = "ask", v.cut(row.GetAsk().GetText())
		for _, option := range first(&v, row.GetAsk().GetOptions()) {
			v.Options = append(v.Options, OptionView{option.GetId(), clip(option.GetLabel(), maxProblem)})
		}
	case row.GetTerminal() != nil:
		end := row.GetTerminal()
		v.Kind, v.TurnStatus, v.InputSeq = "terminal", statusName(end.GetTurnStatus()), end.GetInputSeq()
		if failure := end.GetError(); failure != nil {
			v.Error = &FailureView{failure.GetCode(), clip(failure.GetMessage(), maxProblem)}
		}
	case row.GetSetting() != nil:
		v.Kind, v.Title, v.Tier = "setting", row.GetSetting().GetTitle(), entity.TierNames[row.GetSetting().GetTier()]
		v.Cwd = row.GetSetting().Cwd
	}
	return v
}

func (v *RowView) setInput(in *sessionv1.Input) {
	v.Kind, v.Input = "input", enumName(in.GetKind().String(), "INPUT_KIND_")
	v.Sender = &SenderView{enumName(in.GetSender().GetKind().String(), "SENDER_KIND_"), in.GetSender().GetId()}
	v.Text, v.OptionID, v.Tier, v.Images = v.cut(in.GetText()), in.GetOptionId(), entity.TierNames[in.GetTier()], len(in.GetImages())
	for _, file := range first(v, in.GetAttachments()) {
		v.Attachments = append(v.Attachments, file.GetPath())
	}
}

// maxElements bounds each list of a row.
const maxElements = 50

// first returns the first maxElements elements, and marks the view if there are more.
func first[T any](v *RowView, all []T) []T {
	v.Truncated = v.Truncated || len(all) > maxElements
	return all[:min(len(all), maxElements)]
}

// cut returns the beginning of a text, and marks the view if there is more.
func (v *RowView) cut(text string) string {
	v.Truncated = v.Truncated || len(text) > maxRowText
	return clip(text, maxRowText)
}

// lastPart returns the longest valid end of a text with at most a number of bytes.
func lastPart(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	return strings.TrimLeftFunc(text, func(r rune) bool { return r == utf8.RuneError })
}
