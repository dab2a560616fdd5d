package runner

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

const (
	// maxHistory bounds the conversation that an agent with the extension gets, in bytes. maxPreamble bounds the conversation in the first prompt
	// of any other agent, in bytes.
	maxHistory  = 256 << 10
	maxPreamble = 64 << 10
	// maxToolHistory bounds the output of one tool call in the conversation, in bytes.
	maxToolHistory = 2 << 10
	// maxPrompt bounds the inputs of one prompt, in bytes: agents with the SDK of the protocol read messages of at most 10 MiB. Inputs that do
	// not fit wait. An image that does not fit is replaced by a text.
	maxPrompt = 6 << 20
	// pageBytes and pageRows bound one page of a timeline.
	pageBytes = 1 << 20
	pageRows  = 100
	// mostPages is the maximum number of pages that are searched for the conversation or for a question.
	mostPages = 50
)

// A row is a row of a timeline.
type row struct {
	*sessionv1.Row
	seq uint64
	// participant is the participant of an input; nil if the row is no input, or has no participant.
	participant *sessionv1.Participant
}

// rows returns a page of a session's timeline and the position of the next page; 0: no rows follow.
func (r *Runner) rows(ctx context.Context, identity string, from uint64, descending bool, limit int32) ([]row, uint64, error) {
	page, err := ask[*wirev1.Timeline](ctx, r.o.Asker, identity, &wirev1.ReadTimeline{
		From: from, Descending: descending, Limit: limit, Bytes: pageBytes,
	})
	if err != nil {
		return nil, 0, err
	}
	var all []row
	for _, e := range page.GetEvents() {
		m, err := entity.Message(e.GetName(), e.GetPayload())
		if err != nil {
			return nil, 0, err
		}
		if added, is := m.(*sessionv1.RowAdded); is {
			all = append(all, row{Row: added.GetRow(), seq: e.GetVersion(), participant: added.GetParticipant()})
		}
	}
	return all, page.GetNext(), nil
}

// inputs returns the inputs with the given seqs, in the order of the seqs. An answer that chooses an option has the option's label as its
// text.
func (r *Runner) inputs(ctx context.Context, identity string, seqs []uint64) ([]row, error) {
	var all []row
	for _, seq := range slices.Compact(slices.Sorted(slices.Values(seqs))) {
		found, _, err := r.rows(ctx, identity, seq, false, 1)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 || found[0].seq != seq || found[0].GetInput() == nil {
			return nil, fmt.Errorf("runner: the session %s has no input %d", identity, seq)
		}
		in := found[0]
		if in.GetInput().GetOptionId() != "" && in.GetInput().GetText() == "" {
			question, err := r.question(ctx, identity, seq)
			if err != nil {
				return nil, err
			}
			in.Input = proto.CloneOf(in.Input)
			in.Input.Text = labelOf(question.ask, in.Input.GetOptionId())
		}
		all = append(all, in)
	}
	return all, nil
}

func labelOf(ask *sessionv1.Ask, id string) string {
	for _, o := range ask.GetOptions() {
		if o.GetId() == id {
			return o.GetLabel()
		}
	}
	return id
}

// A question is the last question of a session before a row, with the inputs of the turn that has asked the question.
type question struct {
	ask    *sessionv1.Ask
	seq    uint64
	inputs []uint64
}

// question returns the last question before a row.
func (r *Runner) question(ctx context.Context, identity string, before uint64) (question, error) {
	var q question
	for from, n := before-1, 0; from > 0 && n < mostPages; n++ {
		page, next, err := r.rows(ctx, identity, from, true, pageRows)
		if err != nil {
			return q, err
		}
		for _, row := range page {
			if row.GetAsk() != nil {
				q.ask, q.seq = row.GetAsk(), row.seq
				return q, nil
			}
			if row.GetTerminal().GetTurnStatus() == sessionv1.TurnStatus_TURN_STATUS_ASK {
				q.inputs = append(q.inputs, row.GetTerminal().GetInputSeq())
			}
		}
		from = next
	}
	return q, nil
}

// history returns the conversation before the running turn, oldest first, of at most maxHistory bytes. It omits the inputs of the turn and the
// waiting inputs by their seqs, and not by their positions, because the rows of the previous turn may follow an input that waited for the end
// of that turn. The running turn has no rows of the agent yet.
func (r *Runner) history(ctx context.Context, s *sessionv1.Session) ([]meta.Entry, error) {
	var entries []meta.Entry
	identity, length := session.Identity(s.GetWorkspaceId(), s.GetId()), 0
	for from, n := s.GetLastEventSeq(), 0; from > 0 && length < maxHistory && n < mostPages; n++ {
		page, next, err := r.rows(ctx, identity, from, true, pageRows)
		if err != nil {
			return nil, err
		}
		for _, row := range page {
			entry, ok := entryOf(row.Row)
			if !ok || isPending(s, row.seq) {
				continue
			}
			if length += len(entry.Text); length > maxHistory {
				break
			}
			entries = append(entries, entry)
		}
		from = next
	}
	slices.Reverse(entries)
	return entries, nil
}

func isPending(s *sessionv1.Session, seq uint64) bool {
	return slices.ContainsFunc(s.GetPending(), func(p *sessionv1.Pending) bool { return p.GetSeq() == seq }) ||
		slices.Contains(s.GetTurn().GetInputs(), seq)
}

// fitting returns the longest beginning of inputs that fits into one prompt together with others.
func fitting(others, inputs []row) []row {
	length := 0
	for _, in := range others {
		length += encodedLength(in)
	}
	for i, in := range inputs {
		if length += encodedLength(in); length > maxPrompt/2 && i+len(others) > 0 {
			return inputs[:i]
		}
	}
	return inputs
}

// encodedLength returns the length of the text of an input in a message to an agent. It is up to six times the length of the text, because JSON
// escapes some characters.
func encodedLength(in row) int {
	encoded, _ := json.Marshal(in.GetInput().GetText()) // cannot fail for a string
	return len(encoded)
}

func seqsOf(inputs []row) []uint64 {
	var seqs []uint64
	for _, in := range inputs {
		seqs = append(seqs, in.seq)
	}
	return seqs
}

// entryOf returns the entry of a row; false if the row is no part of the conversation.
func entryOf(r *sessionv1.Row) (meta.Entry, bool) {
	switch {
	case r.GetInput() != nil:
		text := r.GetInput().GetText()
		if text == "" {
			text = r.GetInput().GetOptionId()
		}
		return meta.Entry{Role: meta.RoleUser, Text: text}, true
	case r.GetText() != nil:
		return meta.Entry{Role: meta.RoleAssistant, Text: r.GetText().GetText()}, true
	case r.GetAsk() != nil:
		return meta.Entry{Role: meta.RoleAssistant, Text: r.GetAsk().GetText()}, true
	case r.GetTool() != nil && isFinal(r.GetTool().GetStatus()):
		t := r.GetTool()
		return meta.Entry{Role: meta.RoleTool, Text: t.GetTitle() + " (" + t.GetStatus() + ")\n" + middle(t.GetOutput(), maxToolHistory)}, true
	}
	return meta.Entry{}, false
}

// instructions returns the text of the agent and its skills.
func (r *Runner) instructions(ctx context.Context, s *sessionv1.Session) (string, error) {
	if r.o.Instructions == nil {
		return "", nil
	}
	return r.o.Instructions.Read(ctx, s.GetWorkspaceId(), s.GetAgentId(), s.GetCwd())
}

// preamble returns the text that precedes the first prompt of an agent without the extension: the instructions, and the end of the
// conversation so far.
func (r *Runner) preamble(ctx context.Context, s *sessionv1.Session) (string, error) {
	text, err := r.instructions(ctx, s)
	if err != nil {
		return "", err
	}
	entries, err := r.history(ctx, s)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return text, nil
	}
	names := map[string]string{meta.RoleUser: "User", meta.RoleAssistant: "You", meta.RoleTool: "Tool"}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s: %s\n\n", names[e.Role], e.Text)
	}
	said := b.String()
	if len(said) > maxPreamble {
		said = "[…]\n" + strings.ToValidUTF8(said[len(said)-maxPreamble:], "")
	}
	if text != "" {
		text += "\n\n"
	}
	return text + "You continue a conversation. This was said and done before:\n\n" + said + "The conversation goes on with the following.", nil
}

// blocks returns the content of a prompt, and for each block the input that the block comes from.
func (l *agent) blocks(ctx context.Context, inputs []row) ([]acp.ContentBlock, []meta.Input, error) {
	var blocks []acp.ContentBlock
	var from []meta.Input
	left := maxPrompt
	for _, row := range inputs {
		in := row.GetInput()
		about := inputOf(in)
		add := func(b acp.ContentBlock) { blocks, from = append(blocks, b), append(from, about) }
		add(acp.TextBlock(l.introduction(in) + in.GetText()))
		for _, image := range in.GetImages() {
			if !l.dialog.canSee() {
				add(acp.TextBlock("[an image, which this agent cannot see]"))
				continue
			}
			content, err := l.r.image(ctx, l.id, image)
			if err != nil {
				return nil, nil, err
			}
			if content == nil {
				add(acp.TextBlock("[an image, which the server has lost]"))
				continue
			}
			encoded := base64.StdEncoding.EncodeToString(content)
			if left -= len(encoded); left < 0 {
				add(acp.TextBlock("[an image, which is too large for one message to the agent]"))
				continue
			}
			add(acp.ImageBlock(encoded, image.GetMediaType()))
		}
		for _, a := range in.GetAttachments() {
			at := url.URL{Scheme: "file", Path: path.Join(l.updates.home, a.GetPath())}
			add(acp.ResourceLinkBlock(a.GetName(), at.String()))
		}
	}
	return blocks, from, nil
}

// introduction returns the words that precede the text of an input for an agent without the extension: they name the kind and the author of the
// input.
func (l *agent) introduction(in *sessionv1.Input) string {
	switch {
	case l.dialog.isExtended():
		return ""
	case in.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE:
		return "For your information, without a request: "
	case in.GetKind() == sessionv1.InputKind_INPUT_KIND_ANSWER:
		return "The answer to your question: "
	case in.GetSender().GetKind() == sessionv1.SenderKind_SENDER_KIND_SESSION:
		return "A message of the session " + in.GetSender().GetId() + ": "
	case in.GetSender().GetKind() == sessionv1.SenderKind_SENDER_KIND_SYSTEM:
		return "A message of the platform: "
	default:
		return ""
	}
}

// image returns the content of an image of a session, from the file of the image. If the row of the image was written before images were files,
// and is not moved yet, image returns the content of the row. It returns nil if the image is lost: the file was damaged, or the node was
// restored from a backup that was taken while the session was being deleted.
func (r *Runner) image(ctx context.Context, id sessionID, image *sessionv1.Image) ([]byte, error) {
	content, err := r.imageFile(ctx, id, image)
	if content != nil || err != nil {
		return content, err
	}
	page, err := r.list(ctx, id.workspace, &wirev1.List{
		Name: session.ImageList, Prefix: []byte(session.Key(id.session, string(image.GetSha256()))), Limit: 1,
	})
	if err != nil {
		return nil, err
	}
	if len(page.GetRows()) == 0 {
		if content, err := r.imageFile(ctx, id, image); content != nil || err != nil {
			return content, err // the image was moved to the file meanwhile
		}
		r.o.Log.Error("an image of a session is lost", "workspace", id.workspace, "session", id.session)
		return nil, nil
	}
	var stored sessionv1.StoredImage
	err = proto.Unmarshal(page.GetRows()[0], &stored)
	return stored.GetContent(), err
}

// imageFile returns the content of the file of an image; nil if the file does not exist.
func (r *Runner) imageFile(ctx context.Context, id sessionID, image *sessionv1.Image) ([]byte, error) {
	content, err := r.o.Images.ReadImage(ctx, id.workspace, id.session, image.GetSha256())
	if entity.HasCode(err, entity.NotFound) {
		return nil, nil
	}
	return content, err
}

// list returns a page of a list of a workspace.
func (r *Runner) list(ctx context.Context, workspace string, l *wirev1.List) (*wirev1.Page, error) {
	return entity.AskAsPlatform[*wirev1.Page](ctx, r.o.Asker, entity.KindWorkspace, workspace, l)
}

var inputKinds = map[sessionv1.InputKind]string{
	sessionv1.InputKind_INPUT_KIND_PROMPT: meta.KindPrompt, sessionv1.InputKind_INPUT_KIND_MESSAGE: meta.KindMessage,
	sessionv1.InputKind_INPUT_KIND_NOTE: meta.KindNote, sessionv1.InputKind_INPUT_KIND_ANSWER: meta.KindAnswer,
}

func inputOf(in *sessionv1.Input) meta.Input {
	out := meta.Input{Kind: inputKinds[in.GetKind()]}
	if in.GetBehavior() == sessionv1.Behavior_BEHAVIOR_FOLLOW_UP {
		out.Behavior = meta.BehaviorFollowUp
	}
	switch id := in.GetSender().GetId(); in.GetSender().GetKind() {
	case sessionv1.SenderKind_SENDER_KIND_USER:
		out.Sender = meta.Sender{Kind: meta.SenderUser, UserID: id}
	case sessionv1.SenderKind_SENDER_KIND_APP:
		out.Sender = meta.Sender{Kind: meta.SenderApp, AppID: id}
	case sessionv1.SenderKind_SENDER_KIND_SESSION:
		out.Sender = meta.Sender{Kind: meta.SenderSession, SessionID: id}
	default:
		out.Sender = meta.Sender{Kind: meta.SenderSystem}
	}
	return out
}
