package activity

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// MarkerWindow is how long repeated reads of a path by one author stay one marker.
	MarkerWindow = 10 * time.Minute
	// FoldWindow is how far a summary trails the operations that it tells of.
	FoldWindow = 2 * time.Second
	// MaxIntents bounds the operations of one workspace that are between their intent and their end.
	MaxIntents = 4096
	// MaxOperations bounds one Record.
	MaxOperations = 1000
	// maxFlushed bounds the summaries of one flush; the next follows at once.
	maxFlushed = 500
	// MaxActorBytes bounds an actor and a user id.
	MaxActorBytes = 256
)

// State is what the rules remember of a workspace: its open intents and folds. The rest lies in
// the indexes; what a decision needs of it is looked up through Totals.
type State struct {
	WorkspaceID string
	// Seq is the last row's.
	Seq     uint64
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
}

// Totals finds what an author did to a path so far, by its value in the Seen index; nil for nothing. The result is left
// unchanged.
type Totals func(seen string) *activityv1.Totals

// Zero is a workspace in which nothing happened.
func Zero(workspaceID string) *State {
	return &State{
		WorkspaceID: workspaceID,
		Intents:     map[string]*activityv1.Intent{},
		Folds:       map[string]*activityv1.Fold{},
	}
}

// Decision is what a command changes: rows to append, index entries to put or remove, and what to remember.
type Decision struct {
	Rows    []Row
	Entries []Entry
	// Totals that have changed, by their value in the Seen index.
	Totals map[string]*activityv1.Totals
	// Intents and Folds changed; nil removes.
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
}

// Empty tells that the command changes nothing.
func (d *Decision) Empty() bool { return len(d.Rows) == 0 && len(d.Entries) == 0 }

// Decide turns a command into what it changes. Errors: forbidden, invalid_request, unavailable.
func Decide(call entity.Call, s *State, c activityv1.Command, totals Totals) (*Decision, error) {
	if !entity.IsPlatform(call.Principal) {
		return nil, entity.Errorf(entity.Forbidden, "activity is recorded by the platform")
	}
	d := &draft{call: call, state: s, lookup: totals, places: places{workspaceID: s.WorkspaceID}}
	switch c := c.(type) {
	case *activityv1.Intend:
		return d.intend(c.GetIntent())
	case *activityv1.Complete:
		return d.complete(c.GetIntentId())
	case *activityv1.Abandon:
		d.forget(c.GetIntentId())
	case *activityv1.Record:
		return d.record(c.GetOperations())
	case *activityv1.FlushSummaries:
		d.flush()
	}
	return &d.Decision, nil
}

// Evolve is the state after a decision. It changes its argument, which grows with what is open and not with history.
func Evolve(s *State, d *Decision) {
	s.Seq += uint64(len(d.Rows))
	for id, intent := range d.Intents {
		if intent == nil {
			delete(s.Intents, id)
		} else {
			s.Intents[id] = intent
		}
	}
	for key, fold := range d.Folds {
		if fold == nil {
			delete(s.Folds, key)
		} else {
			s.Folds[key] = fold
		}
	}
}

// NextFlush is when the oldest fold is due, in milliseconds since the Unix epoch; 0 without folds.
func (s *State) NextFlush() int64 {
	var next int64
	for _, f := range s.Folds {
		next = earlier(next, f)
	}
	return next
}

// FlushAfter returns NextFlush after a decision that led to the state, given that of the state before, and whether it
// changed. It reads all folds only where the decision ended some.
func (s *State) FlushAfter(before int64, d *Decision) (next int64, changed bool) {
	next = before
	for _, f := range d.Folds {
		if f == nil {
			next = s.NextFlush()
			return next, next != before
		}
		next = earlier(next, f)
	}
	return next, next != before
}

// earlier returns when a fold is due, or next where that comes before it; a next of 0 never does.
func earlier(next int64, f *activityv1.Fold) int64 {
	due := f.GetSince() + FoldWindow.Milliseconds()
	if next == 0 {
		return due
	}
	return min(next, due)
}

// draft is a decision in the making.
type draft struct {
	Decision
	call   entity.Call
	state  *State
	lookup Totals
	places places
}

func (d *draft) intend(intent *activityv1.Intent) (*Decision, error) {
	switch {
	case intent.GetId() == "" || len(intent.GetId()) > 64:
		return nil, entity.Errorf(entity.InvalidRequest, "intent id is empty or too long")
	case len(d.state.Intents) >= MaxIntents:
		return nil, entity.Errorf(entity.Unavailable, "too many operations are under way")
	}
	if err := check(intent.GetOperation()); err != nil {
		return nil, err
	}
	if d.state.Intents[intent.GetId()] != nil {
		return &d.Decision, nil
	}
	d.Intents = map[string]*activityv1.Intent{intent.GetId(): intent}
	d.put(OpenIntents, Prefix(d.state.WorkspaceID)+intent.GetId(), intent)
	return &d.Decision, nil
}

func (d *draft) complete(id string) (*Decision, error) {
	intent := d.state.Intents[id]
	if intent == nil {
		return &d.Decision, nil
	}
	d.forget(id)
	d.apply(intent.GetOperation())
	return &d.Decision, nil
}

func (d *draft) forget(id string) {
	if d.state.Intents[id] == nil {
		return
	}
	d.Intents = map[string]*activityv1.Intent{id: nil}
	d.remove(OpenIntents, Prefix(d.state.WorkspaceID)+id)
}

func (d *draft) record(operations []*activityv1.Operation) (*Decision, error) {
	if len(operations) > MaxOperations {
		return nil, entity.Errorf(entity.InvalidRequest, "more than %d operations", MaxOperations)
	}
	for _, op := range operations {
		if err := check(op); err != nil {
			return nil, err
		}
	}
	for _, op := range operations {
		d.apply(op)
	}
	return &d.Decision, nil
}

// check tells what is wrong with an operation.
func check(op *activityv1.Operation) error {
	if err := checkAuthor(op.GetAuthor()); err != nil {
		return err
	}
	switch op.GetKind() {
	case activityv1.Kind_KIND_RESTORE:
		return nil
	case activityv1.Kind_KIND_RENAME:
		if err := entity.CheckPath(op.GetFromPath()); err != nil {
			return err
		}
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE, activityv1.Kind_KIND_READ:
	default:
		return entity.Errorf(entity.InvalidRequest, "operation kind %d cannot be recorded", op.GetKind())
	}
	if err := entity.CheckPath(op.GetPath()); err != nil {
		return err
	}
	return nil
}

func checkAuthor(a *activityv1.Author) error {
	switch {
	case a.GetActor() == "", len(a.GetActor()) > MaxActorBytes, len(a.GetUserId()) > MaxActorBytes:
		return entity.Errorf(entity.InvalidRequest, "the author is empty or too long")
	case !utf8.ValidString(a.GetActor()), !utf8.ValidString(a.GetUserId()):
		return entity.Errorf(entity.InvalidRequest, "the author is not UTF-8")
	}
	return nil
}

// apply decides what one operation leaves behind.
func (d *draft) apply(op *activityv1.Operation) {
	switch {
	case folds(op):
		d.fold(op, op.GetTree())
		if op.GetFromTree() != "" && op.GetFromTree() != op.GetTree() {
			d.fold(op, op.GetFromTree())
		}
	case op.GetKind() == activityv1.Kind_KIND_READ:
		d.read(op)
	default:
		d.row(op)
		d.tally(op)
	}
}

// folds tells whether an operation lies wholly below generated trees. A rename between such a tree and the rest of the
// drive is a row of its own, since it changes what people see.
func folds(op *activityv1.Operation) bool {
	if op.GetKind() == activityv1.Kind_KIND_RENAME && op.GetFromTree() == "" {
		return false
	}
	return op.GetTree() != ""
}

func (d *draft) row(op *activityv1.Operation) {
	d.rowAt(op, d.call.At())
}

func (d *draft) rowAt(op *activityv1.Operation, at int64) {
	r := Row{Seq: d.state.Seq + uint64(len(d.Rows)) + 1, At: at, Operation: op}
	d.Rows = append(d.Rows, r)
	if d.Entries == nil {
		d.Entries = make([]Entry, 0, 12)
	}
	d.find(r)
}

func (d *draft) put(index, value string, m proto.Message) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("activity: " + err.Error()) // only for strings that are not UTF-8, which check refuses
	}
	d.Entries = append(d.Entries, Entry{Index: index, Value: value, Data: data})
}

func (d *draft) remove(index, value string) {
	d.Entries = append(d.Entries, Entry{Index: index, Value: value, Remove: true})
}
