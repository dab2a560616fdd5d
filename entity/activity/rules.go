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
	// MarkerWindow is the least time between two read markers of one author on one path. Reads in between are only counted.
	MarkerWindow = 10 * time.Minute
	// FoldWindow is the time from the first operation of a fold to its summary.
	FoldWindow = 2 * time.Second
	// MaxIntents is the greatest number of open intents of a workspace.
	MaxIntents = 4096
	// MaxOperations is the greatest number of operations in one Record.
	MaxOperations = 1000
	// maxFlushed is the greatest number of summaries in one flush. The next flush follows at once.
	maxFlushed = 500
	// MaxActorBytes is the greatest length of an actor and of a user id, in bytes.
	MaxActorBytes = 256
)

// State is the part of a workspace's activity that the rules hold in memory: open intents, open folds and the tail. The
// rest is in the indexes, where a decision looks up totals through Totals.
type State struct {
	WorkspaceID string
	// Seq is the seq of the last row.
	Seq     uint64
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
	Tail    Tail
	// At is the time of the last decision, in milliseconds since the Unix epoch; 0 if there was none.
	At int64
}

// Totals looks up the totals in the Seen index under a value, as of the last durable index write. It returns nil if there
// are none. The caller must not change the result.
type Totals func(seen string) *activityv1.Totals

// Zero returns the state before the first command.
func Zero(workspaceID string) *State {
	return &State{
		WorkspaceID: workspaceID,
		Intents:     map[string]*activityv1.Intent{},
		Folds:       map[string]*activityv1.Fold{},
	}
}

// Decision is the result of a command: rows to append, index entries to put or remove, and changes of the state.
type Decision struct {
	// At is the time of the command, in milliseconds since the Unix epoch.
	At      int64
	Rows    []Row
	Entries []Entry
	// Index is the index write that Entries contains; nil if it contains none.
	Index *IndexWrite
	// Uses are the operations without rows that Acknowledge counts.
	Uses []UnrecordedUse
	// Intents and Folds have the changed intents and folds by their keys; a nil value removes one.
	Intents map[string]*activityv1.Intent
	Folds   map[string]*activityv1.Fold
}

// Decide turns a command into a decision. It does not change s. Errors: forbidden, invalid_request, unavailable.
func Decide(call entity.Call, s *State, c activityv1.Command, totals Totals) (*Decision, error) {
	if !maySend(call.Principal, c) {
		return nil, entity.Errorf(entity.Forbidden, "only the platform may record activity")
	}
	d := &draft{
		Decision: Decision{At: call.At()},
		call:     call, state: s, lookup: totals, paths: pathIndex{workspaceID: s.WorkspaceID},
	}
	var err error
	switch c := c.(type) {
	case *activityv1.Intend:
		err = d.intend(c.GetIntent())
	case *activityv1.Complete:
		d.complete(c.GetIntentId())
	case *activityv1.Abandon:
		d.removeIntent(c.GetIntentId())
	case *activityv1.Record:
		err = d.record(c.GetOperations())
	case *activityv1.FlushSummaries:
		d.flush()
	case *activityv1.WriteIndexes:
		d.writeIndexes(s.Tail.Uses)
	}
	if err != nil {
		return nil, err
	}
	d.boundTail()
	return &d.Decision, nil
}

// maySend reports whether a principal may send a command. The platform may send every command. Another principal may only
// send its own intents; the workspace has already authorized it to change the drive.
func maySend(p *wirev1.Principal, c activityv1.Command) bool {
	if entity.IsPlatform(p) {
		return true
	}
	intend, isIntend := c.(*activityv1.Intend)
	author := intend.GetIntent().GetOperation().GetAuthor()
	return isIntend && author.GetActor() == entity.Actor(p) && author.GetUserId() == p.GetUserId()
}

// Evolve applies a decision to the state. Unlike the rules of other kinds, it changes its argument.
func Evolve(s *State, d *Decision) {
	s.Seq += uint64(len(d.Rows))
	s.At = d.At
	s.Tail.append(s.WorkspaceID, d.Rows)
	if len(d.Rows) > 0 {
		s.Tail.Marked = true
	}
	if d.Index != nil {
		s.Tail.addProposed(s.WorkspaceID, d.Index)
	}
	s.Tail.updateSince(d.At)
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

// Acknowledge records that a decision is durable. The caller must call it in the order of the decisions, before it
// replies to the command, and not after a failed commit.
func Acknowledge(s *State, d *Decision) {
	if len(d.Rows) > 0 {
		s.Tail.Durable = d.Rows[len(d.Rows)-1].Seq
	}
	if d.Index != nil {
		s.Tail.removeDurable(d.Index)
	}
	for _, use := range d.Uses {
		s.Tail.Uses.add(use.Path, use.UseCount)
	}
	s.Tail.updateSince(d.At)
}

// IndexDue returns the time at which the indexes have to be written next; the zero time if the tail has nothing to write.
func (s *State) IndexDue() time.Time {
	if s.Tail.Since == 0 {
		return time.Time{}
	}
	return time.UnixMilli(s.Tail.Since).Add(IndexWindow)
}

// NextFlush returns the time at which the first fold is due, in milliseconds since the Unix epoch; 0 if there is no fold.
func (s *State) NextFlush() int64 {
	var next int64
	for _, f := range s.Folds {
		next = earlier(next, f)
	}
	return next
}

// FlushAfter returns NextFlush of the state, and whether it differs from before, which is NextFlush of the state before the
// decision d. It is faster than NextFlush: it reads all folds only if the decision removed some.
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

// earlier returns the earlier of two times: next, unless it is 0, and the time at which a fold is due.
func earlier(next int64, f *activityv1.Fold) int64 {
	due := f.GetSince() + FoldWindow.Milliseconds()
	if next == 0 {
		return due
	}
	return min(next, due)
}

// draft is a decision while Decide builds it.
type draft struct {
	Decision
	call   entity.Call
	state  *State
	lookup Totals
	paths  pathIndex
	// marks are the times of the read markers in Rows, by the value in the Seen index.
	marks map[string]int64
}

// intend stores an intent. It has no effect if the intent is stored already. Errors: invalid_request, unavailable if the
// workspace has MaxIntents open intents.
func (d *draft) intend(intent *activityv1.Intent) error {
	switch {
	case intent.GetId() == "" || len(intent.GetId()) > 64:
		return entity.Errorf(entity.InvalidRequest, "intent id is empty or too long")
	case len(d.state.Intents) >= MaxIntents:
		return entity.Errorf(entity.Unavailable, "too many changes of the drive are in progress")
	}
	if err := checkOperation(intent.GetOperation()); err != nil {
		return err
	}
	if d.state.Intents[intent.GetId()] != nil {
		return nil
	}
	d.Intents = map[string]*activityv1.Intent{intent.GetId(): intent}
	d.put(OpenIntents, Prefix(d.state.WorkspaceID)+intent.GetId(), intent)
	return nil
}

// complete removes an intent and applies its operation. It has no effect if the intent does not exist.
func (d *draft) complete(id string) {
	intent := d.state.Intents[id]
	if intent == nil {
		return
	}
	d.removeIntent(id)
	d.apply(intent.GetOperation())
}

// removeIntent removes an intent, if it exists.
func (d *draft) removeIntent(id string) {
	if d.state.Intents[id] == nil {
		return
	}
	d.Intents = map[string]*activityv1.Intent{id: nil}
	d.remove(OpenIntents, Prefix(d.state.WorkspaceID)+id)
}

// record applies operations, all or none. Errors: invalid_request, unavailable if too many rows are not indexed.
func (d *draft) record(operations []*activityv1.Operation) error {
	switch {
	case len(operations) > MaxOperations:
		return entity.Errorf(entity.InvalidRequest, "a command can record at most %d operations", MaxOperations)
	case d.state.Tail.countUnindexed() > maxUnindexed:
		return entity.Errorf(entity.Unavailable, "too many operations are waiting to be indexed")
	}
	for _, op := range operations {
		if err := checkOperation(op); err != nil {
			return err
		}
	}
	for _, op := range operations {
		d.apply(op)
	}
	return nil
}

// checkOperation validates an operation. Errors: invalid_request.
func checkOperation(op *activityv1.Operation) error {
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
		return entity.Errorf(entity.InvalidRequest, "author must have an actor of 1 to %d bytes and a user id of at most %d bytes", MaxActorBytes, MaxActorBytes)
	case !utf8.ValidString(a.GetActor()), !utf8.ValidString(a.GetUserId()):
		return entity.Errorf(entity.InvalidRequest, "author is not UTF-8")
	}
	return nil
}

// apply adds the results of an operation: a row, a fold or a count.
func (d *draft) apply(op *activityv1.Operation) {
	switch {
	case isInsideGenerated(op):
		d.addToFold(op, op.GetTree())
		if op.GetFromTree() != "" && op.GetFromTree() != op.GetTree() {
			d.addToFold(op, op.GetFromTree())
		}
		d.addUse(op)
	case op.GetKind() == activityv1.Kind_KIND_READ:
		d.addRead(op)
	default:
		d.addRow(op, d.call.At())
	}
}

// isInsideGenerated reports whether all paths of an operation lie in generated folders. A rename between a generated folder
// and the rest of the drive gets a row of its own, because it changes files that people see.
func isInsideGenerated(op *activityv1.Operation) bool {
	if op.GetKind() == activityv1.Kind_KIND_RENAME && op.GetFromTree() == "" {
		return false
	}
	return op.GetTree() != ""
}

// addRow appends the row of an operation at a time.
func (d *draft) addRow(op *activityv1.Operation, at int64) {
	d.Rows = append(d.Rows, Row{Seq: d.state.Seq + uint64(len(d.Rows)) + 1, At: at, Operation: op})
}

// put puts a message in an index.
func (d *draft) put(index, value string, m proto.Message) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("activity: " + err.Error()) // impossible: only strings that are not UTF-8 fail, and checkOperation refuses them
	}
	d.Entries = append(d.Entries, Entry{Index: index, Value: value, Data: data})
}

func (d *draft) remove(index, value string) {
	d.Entries = append(d.Entries, Entry{Index: index, Value: value, Remove: true})
}
