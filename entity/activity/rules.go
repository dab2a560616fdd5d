package activity

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
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

// State is what the rules remember of a workspace: its open intents and folds, and what its indexes do not have yet. The
// rest lies in the indexes; what a decision needs of it is looked up through Totals.
type State struct {
	WorkspaceID string
	// Seq is the last row's.
	Seq     uint64
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
	Tail    Tail
	// At is when the last decision was made, in milliseconds; 0 for none.
	At int64
}

// Totals looks up what the Seen index has at a value, as of the last index write that is durable; nil for nothing. The
// result is left unchanged.
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
	// At is the command's time, in milliseconds.
	At      int64
	Rows    []Row
	Entries []Entry
	// Index is the index write that Entries contain, nil for none.
	Index *IndexWrite
	// Reads are counted once the command is acknowledged.
	Reads []UnmarkedRead
	// Intents and Folds changed; nil removes.
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
}

// Decide turns a command into what it changes. Errors: forbidden, invalid_request, unavailable.
func Decide(call entity.Call, s *State, c activityv1.Command, totals Totals) (*Decision, error) {
	if !mayCommand(call.Principal, c) {
		return nil, entity.Errorf(entity.Forbidden, "activity is recorded by the platform")
	}
	d := &draft{
		Decision: Decision{At: call.At()},
		call:     call, state: s, lookup: totals, places: places{workspaceID: s.WorkspaceID},
	}
	var err error
	switch c := c.(type) {
	case *activityv1.Intend:
		err = d.intend(c.GetIntent())
	case *activityv1.Complete:
		d.complete(c.GetIntentId())
	case *activityv1.Abandon:
		d.forget(c.GetIntentId())
	case *activityv1.Record:
		err = d.record(c.GetOperations())
	case *activityv1.FlushSummaries:
		d.flush()
	case *activityv1.WriteIndexes:
		d.index(s.Tail.Reads)
	}
	if err != nil {
		return nil, err
	}
	d.bound()
	return &d.Decision, nil
}

// mayCommand reports whether a principal may send a command: the platform every one, and others the intent of a change of
// their own. That they may change the drive the workspace's rules have authorized by then.
func mayCommand(p *wirev1.Principal, c activityv1.Command) bool {
	if entity.IsPlatform(p) {
		return true
	}
	intend, is := c.(*activityv1.Intend)
	author := intend.GetIntent().GetOperation().GetAuthor()
	return is && author.GetActor() == entity.Actor(p) && author.GetUserId() == p.GetUserId()
}

// Evolve is the state after a decision. It changes its argument, which grows with what is open and not with history.
func Evolve(s *State, d *Decision) {
	s.Seq += uint64(len(d.Rows))
	s.At = d.At
	s.Tail.append(s.WorkspaceID, d.Rows)
	if len(d.Rows) > 0 {
		s.Tail.Marked = true
	}
	if d.Index != nil {
		s.Tail.propose(s.WorkspaceID, d.Index)
	}
	s.Tail.since(d.At)
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

// Acknowledge notes that a decision is durable and about to be answered. It is called in the order of the decisions, and
// for none that failed.
func Acknowledge(s *State, d *Decision) {
	if len(d.Rows) > 0 {
		s.Tail.Durable = d.Rows[len(d.Rows)-1].Seq
	}
	if d.Index != nil {
		s.Tail.settle(d.Index)
	}
	for _, read := range d.Reads {
		s.Tail.Reads.add(read.Path, read.ReadCount)
	}
	s.Tail.since(d.At)
}

// IndexDue returns when the indexes have to be written next; the zero time: nothing waits to be written.
func (s *State) IndexDue() time.Time {
	if s.Tail.Since == 0 {
		return time.Time{}
	}
	return time.UnixMilli(s.Tail.Since).Add(IndexWindow)
}

// NextFlush returns when the oldest fold is due, in milliseconds since the Unix epoch; 0 without folds.
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
	// marks are the times of the read markers among Rows, by the value in the Seen index.
	marks map[string]int64
}

func (d *draft) intend(intent *activityv1.Intent) error {
	switch {
	case intent.GetId() == "" || len(intent.GetId()) > 64:
		return entity.Errorf(entity.InvalidRequest, "intent id is empty or too long")
	case len(d.state.Intents) >= MaxIntents:
		return entity.Errorf(entity.Unavailable, "too many operations are under way")
	}
	if err := check(intent.GetOperation()); err != nil {
		return err
	}
	if d.state.Intents[intent.GetId()] != nil {
		return nil
	}
	d.Intents = map[string]*activityv1.Intent{intent.GetId(): intent}
	d.put(OpenIntents, Prefix(d.state.WorkspaceID)+intent.GetId(), intent)
	return nil
}

func (d *draft) complete(id string) {
	intent := d.state.Intents[id]
	if intent == nil {
		return
	}
	d.forget(id)
	d.apply(intent.GetOperation())
}

func (d *draft) forget(id string) {
	if d.state.Intents[id] == nil {
		return
	}
	d.Intents = map[string]*activityv1.Intent{id: nil}
	d.remove(OpenIntents, Prefix(d.state.WorkspaceID)+id)
}

func (d *draft) record(operations []*activityv1.Operation) error {
	switch {
	case len(operations) > MaxOperations:
		return entity.Errorf(entity.InvalidRequest, "more than %d operations", MaxOperations)
	case d.state.Tail.waiting() > maxUnindexed:
		return entity.Errorf(entity.Unavailable, "too many operations wait for their index entries")
	}
	for _, op := range operations {
		if err := check(op); err != nil {
			return err
		}
	}
	for _, op := range operations {
		d.apply(op)
	}
	return nil
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
