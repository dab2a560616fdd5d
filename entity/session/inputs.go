package session

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Limits of inputs (decisions, section 6).
const (
	// MaxText is the greatest number of characters of a prompt or message.
	MaxText = 200_000
	// MaxImages, MaxImageBytes and MaxImagesBytes limit the images of an input: their number, the size of one, and of all.
	MaxImages      = 8
	MaxImageBytes  = 5 << 20
	MaxImagesBytes = 12 << 20
	// MaxAttachments is the greatest number of attachments of an input.
	MaxAttachments = 32
	// MaxAudience is the greatest number of members of a specific audience.
	MaxAudience = 1000
	// MaxPending is the number of inputs that wait in a session or belong to its running turn before the session refuses inputs that
	// would wait.
	MaxPending = 1000
	// MaxTitle is the greatest number of characters of a title.
	MaxTitle = 200
	// excerptLength is the greatest number of characters of a title that is an excerpt of the prompt.
	excerptLength = 80
)

var (
	errText           = entity.Errorf(entity.InvalidRequest, "text must have 1 to %d characters", MaxText)
	errInputKind      = entity.Errorf(entity.InvalidRequest, "the kind of the input is unknown")
	errImages         = entity.Errorf(entity.InvalidRequest, "an input has at most %d images and %d attachments", MaxImages, MaxAttachments)
	errAnswer         = entity.Errorf(entity.InvalidRequest, "an answer has either text or optionId, which must be one of the question's options")
	errNoQuestion     = entity.Errorf(entity.NoPendingQuestion, "the session asks no question")
	errTooManyPending = entity.Errorf(entity.LimitReached, "at most %d inputs can wait in a session and belong to its running turn", MaxPending)
	errAudienceSize   = entity.Errorf(entity.InvalidRequest, "an audience has at most %d members", MaxAudience)
)

// A draft collects the events of a decision and assigns seqs to rows.
type draft struct {
	call entity.Call
	// state is the state after the first applied events. The others are applied when the state after them is needed, because most
	// decisions do not need it.
	state   *sessionv1.Session
	applied int
	events  []sessionv1.Event
}

func (d *draft) add(e sessionv1.Event) { d.events = append(d.events, e) }

// current returns the state after the events.
func (d *draft) current() *sessionv1.Session {
	for ; d.applied < len(d.events); d.applied++ {
		d.state = Evolve(d.state, d.events[d.applied])
	}
	return d.state
}

// inTurn reports whether a turn runs after the events.
func (d *draft) inTurn() bool {
	for _, e := range d.events[d.applied:] {
		if _, is := e.(*sessionv1.RowAdded); !is { // a row neither starts nor ends a turn
			return d.current().GetTurn() != nil
		}
	}
	return d.state.GetTurn() != nil
}

// row adds a row and returns its seq.
func (d *draft) row(r *sessionv1.RowAdded) uint64 {
	r.Seq, r.At = d.call.Version+uint64(len(d.events)), d.call.At()
	d.add(r)
	return r.GetSeq()
}

// input adds an input of the principal of the call, and starts a turn with it if none runs and the input may start one. tier is the
// tier of a turn that the input starts.
func (d *draft) input(in *sessionv1.Input, tier workspacev1.Tier) {
	p := d.call.Principal
	d.row(&sessionv1.RowAdded{
		Row: &sessionv1.Row{Input: in}, ResolvedTier: tier, Reader: readerOf(p), Participant: participantOf(p, in),
	})
	d.startNext()
}

// startNext starts a turn if none runs: with the first input that steers, or else with the first follow-up, unless the session
// asks or sleeps.
func (d *draft) startNext() {
	if d.inTurn() {
		return
	}
	s := d.current()
	next := slices.IndexFunc(s.GetPending(), Steers)
	if next < 0 && s.GetAsk() == nil && s.GetWakeAt() == 0 {
		next = slices.IndexFunc(s.GetPending(), func(p *sessionv1.Pending) bool {
			return p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE
		})
	}
	if next < 0 {
		return
	}
	first := s.GetPending()[next]
	bounds := intersect(first.GetBounds(), intersect(s.GetAsk().GetBounds(), s.GetWakeBounds()))
	d.add(&sessionv1.TurnStarted{Turn: &sessionv1.Turn{
		Id: first.GetSeq(), Inputs: []uint64{first.GetSeq()}, Tier: first.GetTier(), StartedAt: d.call.At(), Bounds: bounds,
	}})
}

// terminals adds a terminal for each input.
func (d *draft) terminals(inputs []uint64, status sessionv1.TurnStatus, failure *sessionv1.Failure) {
	for _, seq := range inputs {
		d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Terminal: &sessionv1.Terminal{TurnStatus: status, InputSeq: seq, Error: failure}}})
	}
}

// start creates the session with its prompt. It has no effect if the session exists. Errors: invalid_request, not_found if the
// session was deleted, or if it exists and the sender does not see it.
func start(call entity.Call, s *sessionv1.Session, c *sessionv1.StartSession) ([]sessionv1.Event, error) {
	if s.GetSealed() {
		return nil, errNotFound
	}
	if s.GetStarted() {
		return nil, Visible(call, s)
	}
	if err := CheckStart(c); err != nil {
		return nil, err
	}
	d := draft{call: call, state: s}
	started := &sessionv1.SessionStarted{
		WorkspaceId: s.GetWorkspaceId(), SessionId: s.GetId(), ParentId: c.GetParentId(), AgentId: c.GetAgentId(), Mode: c.GetMode(),
		Cwd: c.GetCwd(), Audience: c.GetAudience(), CreatedBy: SenderOf(call.Principal), CreatorUserId: call.Principal.GetUserId(),
		Title: c.GetTitle(), TitleOrigin: sessionv1.TitleOrigin_TITLE_ORIGIN_AUTO, At: call.At(),
	}
	if c.GetTitle() == "" {
		started.Title, started.TitleOrigin = excerpt(c.GetPrompt().GetText()), sessionv1.TitleOrigin_TITLE_ORIGIN_EXCERPT
	}
	d.add(started)
	prompt := withSender(call, c.GetPrompt())
	prompt.Kind = sessionv1.InputKind_INPUT_KIND_PROMPT
	if prompt.GetTier() == workspacev1.Tier_TIER_UNSPECIFIED {
		prompt.Tier = c.GetTier()
	}
	d.input(prompt, resolveTier(s, prompt.GetTier(), c.GetDefaultTier()))
	return d.events, nil
}

// CheckStart validates the command that creates a session, as the session does. Errors: invalid_request.
func CheckStart(c *sessionv1.StartSession) error {
	if err := checkInput(c.GetPrompt()); err != nil {
		return err
	}
	if c.GetTitle() != "" {
		if err := checkTitle(c.GetTitle()); err != nil {
			return err
		}
	}
	if len(c.GetAudience().GetUserIds()) > MaxAudience {
		return errAudienceSize
	}
	return checkCwd(c.GetCwd())
}

// withSender returns a copy of an input with the sender and the bounds of the principal of the call.
func withSender(call entity.Call, in *sessionv1.Input) *sessionv1.Input {
	next := shallowCopyOfInput(in)
	next.Sender, next.Bounds = SenderOf(call.Principal), boundsOf(call.Principal)
	if next.GetBehavior() == sessionv1.Behavior_BEHAVIOR_UNSPECIFIED {
		next.Behavior = sessionv1.Behavior_BEHAVIOR_STEER
	}
	return next
}

// resolveTier returns the tier of a turn: the explicit one of the input, the sticky one of the session, or the default.
func resolveTier(s *sessionv1.Session, explicit, byDefault workspacev1.Tier) workspacev1.Tier {
	switch {
	case explicit != workspacev1.Tier_TIER_UNSPECIFIED:
		return explicit
	case s.GetTier() != workspacev1.Tier_TIER_UNSPECIFIED:
		return s.GetTier()
	default:
		return byDefault
	}
}

// excerpt returns the first line of a prompt with text, shortened and without control characters, which no title has.
func excerpt(prompt string) string {
	isSeparator := func(r rune) bool { return unicode.IsSpace(r) || entity.IsControl(r) }
	for line := range strings.Lines(prompt) {
		if line = strings.Join(strings.FieldsFunc(line, isSeparator), " "); line == "" {
			continue
		}
		if utf8.RuneCountInString(line) <= excerptLength {
			return line
		}
		return strings.TrimSpace(string([]rune(line)[:excerptLength-1])) + "…"
	}
	return "Untitled"
}

// send adds a message, a note or an answer. Errors: invalid_request, not_found, no_pending_question, limit_reached.
func send(call entity.Call, s *sessionv1.Session, c *sessionv1.SendInput) ([]sessionv1.Event, error) {
	if !s.GetStarted() && c.GetStart() != nil {
		first := entity.ShallowCopy(c.GetStart())
		first.Prompt = c.GetInput()
		return start(call, s, first)
	}
	if err := Visible(call, s); err != nil {
		return nil, err
	}
	if err := checkSent(s, c.GetInput()); err != nil {
		return nil, err
	}
	d := draft{call: call, state: s}
	in := withSender(call, c.GetInput())
	if in.GetKind() == sessionv1.InputKind_INPUT_KIND_ANSWER { // withdraws the question before it starts a turn
		in.Bounds = intersect(in.GetBounds(), s.GetAsk().GetBounds())
	}
	for _, o := range s.GetAsk().GetOptions() {
		if in.GetOptionId() != "" && o.GetId() == in.GetOptionId() {
			in.Text = o.GetLabel()
		}
	}
	if tier := in.GetTier(); tier != workspacev1.Tier_TIER_UNSPECIFIED && tier != s.GetTier() {
		d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Setting: &sessionv1.Setting{Tier: &tier}}, Reader: readerOf(call.Principal)})
	}
	d.input(in, resolveTier(s, in.GetTier(), c.GetDefaultTier()))
	return d.events, nil
}

func checkSent(s *sessionv1.Session, in *sessionv1.Input) error {
	if len(s.GetPending())+len(s.GetTurn().GetInputs()) >= MaxPending && !startsTurn(s, in) {
		return errTooManyPending
	}
	switch in.GetKind() {
	case sessionv1.InputKind_INPUT_KIND_MESSAGE, sessionv1.InputKind_INPUT_KIND_NOTE:
		return checkInput(in)
	case sessionv1.InputKind_INPUT_KIND_ANSWER:
		return checkAnswer(s, in)
	default:
		return errInputKind
	}
}

// startsTurn reports whether an input starts a turn at once. Otherwise notes, which wait for a turn, and follow-ups behind a question
// could fill a session so that no input could make it go on.
func startsTurn(s *sessionv1.Session, in *sessionv1.Input) bool {
	p := &sessionv1.Pending{Kind: in.GetKind(), Behavior: in.GetBehavior()}
	return s.GetTurn() == nil && (Steers(p) || s.GetAsk() == nil && s.GetWakeAt() == 0 && p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE)
}

func checkInput(in *sessionv1.Input) error {
	switch n := utf8.RuneCountInString(in.GetText()); {
	case strings.TrimSpace(in.GetText()) == "" || n > MaxText || !utf8.ValidString(in.GetText()):
		return errText
	case len(in.GetImages()) > MaxImages || len(in.GetAttachments()) > MaxAttachments:
		return errImages
	}
	return nil
}

// checkAnswer validates an answer to the session's question.
func checkAnswer(s *sessionv1.Session, in *sessionv1.Input) error {
	ask := s.GetAsk()
	if ask == nil {
		return errNoQuestion
	}
	if in.GetOptionId() == "" {
		return checkInput(in)
	}
	if in.GetText() != "" || !slices.ContainsFunc(ask.GetOptions(), func(o *sessionv1.Option) bool { return o.GetId() == in.GetOptionId() }) {
		return errAnswer
	}
	return nil
}

// interrupt ends the turn or the sleep of the session. A turn that no run has taken ends at once; a claimed one is ended by its
// run. If a person interrupts, the inputs that wait are dropped, each with a terminal, and a sleep ends. If the platform
// interrupts, the inputs go on waiting.
func interrupt(call entity.Call, s *sessionv1.Session, c *sessionv1.Interrupt) []sessionv1.Event {
	d := draft{call: call, state: s}
	byPlatform := c.GetReason() != nil && entity.IsPlatform(call.Principal)
	turn := s.GetTurn()
	if s.GetWakeAt() != 0 && !byPlatform {
		// A message during the sleep may have begun a turn, or one that ended with a question, which remains.
		d.add(&sessionv1.SessionWoken{At: call.At(), Cancelled: turn == nil && s.GetAsk() == nil})
	}
	switch {
	case byPlatform && (turn.GetInterrupting() || turn.GetRunId() == ""):
		return nil
	case turn == nil: // inputs can wait behind a question
	case turn.GetRunId() == "":
		d.terminals(turn.GetInputs(), sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED, nil)
		d.add(&sessionv1.TurnEnded{
			TurnId: turn.GetId(), Status: sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED, Total: s.GetUsage(), At: call.At(),
		})
	case byPlatform:
		d.add(&sessionv1.InterruptRequested{Reason: c.GetReason()})
	case !turn.GetInterrupting() || turn.GetInterruptCode() != "":
		d.add(&sessionv1.InterruptRequested{})
	}
	if !byPlatform {
		d.dropPending()
	}
	return d.events
}

// dropPending drops the inputs that wait, except notes, each with a terminal.
func (d *draft) dropPending() {
	var seqs []uint64
	for _, p := range d.current().GetPending() {
		if p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE {
			seqs = append(seqs, p.GetSeq())
		}
	}
	if len(seqs) > 0 {
		d.terminals(seqs, sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED, nil)
		d.add(&sessionv1.InputsDropped{Seqs: seqs})
	}
}

func isStart(events []sessionv1.Event) bool {
	_, is := events[0].(*sessionv1.SessionStarted)
	return is
}

// lastInput returns the seq of the input among the events of SendInput.
func lastInput(events []sessionv1.Event) uint64 {
	for _, e := range slices.Backward(events) {
		if added, is := e.(*sessionv1.RowAdded); is && added.GetRow().GetInput() != nil {
			return added.GetSeq()
		}
	}
	return 0
}

// PendingInput returns the input with a seq that waits; nil if none does.
func PendingInput(s *sessionv1.Session, seq uint64) *sessionv1.Pending {
	for _, p := range s.GetPending() {
		if p.GetSeq() == seq {
			return p
		}
	}
	return nil
}

func hasInput(t *sessionv1.Turn, seq uint64) bool { return slices.Contains(t.GetInputs(), seq) }

// steersAfter reports whether an input with a seq greater than another waits for the running turn.
func steersAfter(s *sessionv1.Session, after uint64) bool {
	return slices.ContainsFunc(s.GetPending(), func(p *sessionv1.Pending) bool {
		return p.GetSeq() > after && SteersTurn(s.GetTurn(), p)
	})
}

// Steers reports whether an input that waits is for the running turn, if it may join that, or else starts one as soon as none runs: it is
// neither a note nor a follow-up.
func Steers(p *sessionv1.Pending) bool {
	return p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE && p.GetBehavior() != sessionv1.Behavior_BEHAVIOR_FOLLOW_UP
}
