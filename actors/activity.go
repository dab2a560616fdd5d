package actors

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// activityMachine is the machine of a workspace's activity. The rules of package entity/activity decide; the machine looks up
// in the journal the index entries that they need. Index entries are written after their rows: State.Tail has the rows without
// entries, which queries add to the indexes (see querying.recent).
type activityMachine struct {
	journal     persistence.Journal
	workspaceID string
	partition   persistence.Partition
	state       *activity.State
	// flushAt is the due time of the timer that flushes summaries, in milliseconds since the Unix epoch; 0: there is none.
	flushAt int64
	tallies tallies
	hub     *hub
}

func newActivityMachine(journal persistence.Journal, secret []byte, workspaceID string) *activityMachine {
	return &activityMachine{
		journal: journal, workspaceID: workspaceID, hub: newHub(activity.NewCursor(secret, workspaceID)),
	}
}

func (a *activityMachine) isQuery(m proto.Message) bool {
	_, ok := m.(activityv1.Query)
	return ok
}

func (a *activityMachine) query(src source, m proto.Message) (proto.Message, error) {
	return queryActivity(src, m)
}

// check refuses every principal: the workspace authorizes the commands of its activity, and activity owns no entities.
func (a *activityMachine) check(entity.Call, entity.Need) error {
	return entity.Errorf(entity.Forbidden, "only the platform may do this")
}

func (a *activityMachine) load(v persistence.View, p persistence.Partition, s persistence.Stream) (version, snapshotVersion uint64, err error) {
	head, err := v.Head(p, s)
	if err != nil {
		return 0, 0, err
	}
	prefix := activity.Prefix(a.workspaceID)
	intents, err := open(v, p, activity.OpenIntents, prefix, func() *activityv1.Intent { return new(activityv1.Intent) })
	if err != nil {
		return 0, 0, err
	}
	folds, err := open(v, p, activity.OpenFolds, prefix, func() *activityv1.Fold { return new(activityv1.Fold) })
	if err != nil {
		return 0, 0, err
	}
	mark, err := indexMark(v, p, a.workspaceID)
	if err != nil {
		return 0, 0, err
	}
	rows, err := unindexed(v, p, s, mark, 0)
	if err != nil {
		return 0, 0, err
	}
	state := activity.Zero(a.workspaceID)
	state.Seq, state.Intents, state.Folds = head, intents, folds
	state.Resume(mark, rows, a.state)
	a.partition, a.state = p, state
	a.tallies = tallies{prefix: len(activity.Prefix(a.workspaceID))}
	a.flushAt = a.state.NextFlush()
	a.hub.resume(head)
	return head, head, nil
}

// indexMark returns the last row that a workspace's indexes have; nil if no entries were ever written after their rows.
func indexMark(v persistence.View, p persistence.Partition, workspaceID string) (*activityv1.IndexMark, error) {
	data, ok, err := v.Lookup(p, activity.Indexed, activity.Prefix(workspaceID), 0)
	if err != nil || !ok {
		return nil, err
	}
	mark := new(activityv1.IndexMark)
	return mark, proto.Unmarshal(data, mark)
}

// unindexed returns the rows after a mark and after a seq.
func unindexed(v persistence.View, p persistence.Partition, s persistence.Stream, mark *activityv1.IndexMark, after uint64) ([]activity.Row, error) {
	if mark == nil {
		return nil, nil
	}
	var rows []activity.Row
	for payload, err := range v.Payloads(p, s, max(mark.GetSeq(), after)+1, persistence.Ascending) {
		if err != nil {
			return nil, err
		}
		row, err := activity.Decode(activity.Stored(payload.Bytes))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// open returns a workspace's entries of an index, by the part of their values after the prefix.
func open[M proto.Message](v persistence.View, p persistence.Partition, index, prefix string, zero func() M) (map[string]M, error) {
	found := map[string]M{}
	for entry, err := range v.Index(p, persistence.Query{Index: index, Value: prefix, Prefix: true}) {
		if err != nil {
			return nil, err
		}
		m := zero()
		if err := proto.Unmarshal(entry.Data, m); err != nil {
			return nil, err
		}
		found[strings.TrimPrefix(entry.Value, prefix)] = m
	}
	return found, nil
}

func (a *activityMachine) decide(call entity.Call, command proto.Message, admit func() error) (decision, error) {
	c, ok := command.(activityv1.Command)
	if !ok {
		return decision{}, entity.Errorf(entity.InvalidRequest, "activity takes no %s", command.ProtoReflect().Descriptor().Name())
	}
	var failed error
	made, err := activity.Decide(call, a.state, c, func(seen string) *activityv1.Totals {
		t, err := a.totals(seen)
		if err != nil {
			failed = err
		}
		return t
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		err = admit() // every command of activity may change something
	}
	if err != nil {
		return decision{}, err
	}
	activity.Evolve(a.state, made)
	d := a.stored(call, made)
	if err := a.setTimer(&d, made); err != nil {
		return decision{}, err
	}
	return d, nil
}

// setTimer adds to a decision the changes of the timer that flushes summaries, which is due for the oldest open fold.
func (a *activityMachine) setTimer(d *decision, made *activity.Decision) error {
	next, changed := a.state.FlushAfter(a.flushAt, made)
	if !changed {
		return nil
	}
	timer := entity.Timer{ID: activity.FlushTimer, At: a.flushAt, Message: &activityv1.FlushSummaries{}}
	for _, remove := range []bool{true, false} {
		if timer.At != 0 {
			c, err := timerChange(entity.KindActivity, a.workspaceID, timer, remove)
			if err != nil {
				return err
			}
			d.changes = append(d.changes, c)
		}
		timer.At = next
	}
	a.flushAt = next
	return nil
}

// declare returns the row of the timer that flushes summaries, even if the journal has it.
func (a *activityMachine) declare(int64) ([]persistence.Change, error) {
	if a.flushAt == 0 {
		return nil, nil
	}
	timer := entity.Timer{ID: activity.FlushTimer, At: a.flushAt, Message: &activityv1.FlushSummaries{}}
	c, err := timerChange(entity.KindActivity, a.workspaceID, timer, false)
	return []persistence.Change{c}, err
}

// stored returns a decision of the rules as events and index entries.
func (a *activityMachine) stored(call entity.Call, made *activity.Decision) decision {
	d := decision{reply: &activityv1.Recorded{Seq: a.state.Seq}, note: made}
	for _, row := range made.Rows {
		d.events = append(d.events, persistence.Event{
			Name: activity.RowName, Payload: activity.Encode(row), At: call.Now,
			Actor: row.Operation.GetAuthor().GetActor(),
		})
	}
	if len(made.Entries) > 0 {
		d.changes = make([]persistence.Change, len(made.Entries), len(made.Entries)+1)
	}
	for i, e := range made.Entries {
		d.changes[i] = persistence.Change{
			Entry:  persistence.Entry{Index: e.Index, Value: e.Value, Order: e.Order, Data: e.Data},
			Remove: e.Remove,
		}
	}
	return d
}

// totals returns the totals of an author on a path, by the value of the Seen index: from memory, or from the journal; nil if
// there are none.
func (a *activityMachine) totals(seen string) (*activityv1.Totals, error) {
	if t, ok := a.tallies.find(seen); ok {
		return t, nil
	}
	v, err := a.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	data, ok, err := v.Lookup(a.partition, activity.Seen, seen, 0)
	if err != nil || !ok {
		return nil, err
	}
	var t activityv1.Totals
	if err := proto.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	a.tallies.put(seen, &t)
	return &t, nil
}

func (a *activityMachine) snapshot() proto.Message { return nil }

func (a *activityMachine) due() (time.Time, proto.Message) {
	at := a.state.IndexDue()
	if at.IsZero() {
		return at, nil
	}
	return at, &activityv1.WriteIndexes{}
}

// flushCommand returns the command that writes the buffered index entries and counts; nil: there are none.
func (a *activityMachine) flushCommand() proto.Message {
	if a.state == nil || !a.state.Tail.Dirty() {
		return nil
	}
	return &activityv1.WriteIndexes{}
}

// committed records that the rows of a decision are durable, and publishes them to the workspace's streams.
func (a *activityMachine) committed(d decision) {
	made, ok := d.note.(*activity.Decision)
	if !ok {
		return // a decision of DeclareEffects
	}
	activity.Acknowledge(a.state, made)
	if made.Index != nil {
		for seen, t := range made.Index.Totals {
			a.tallies.put(seen, t)
		}
	}
	if len(d.events) > 0 {
		a.hub.publish(d.events)
	}
}

// recentActivity is the activity that a query adds to the indexes of its view.
type recentActivity struct {
	// rows are durable rows that the view's indexes may lack, without gaps. The query reads the rows after them, and all rows if
	// there are none, from its view.
	rows []activity.Row
	// uses are the counts of the requested paths that are not written yet.
	uses []activity.PendingUses
}

// recent implements querying. Its result does not change when the state does.
func (a *activityMachine) recent(q proto.Message, loaded bool) any {
	if a.state == nil {
		return recentActivity{}
	}
	var found recentActivity
	if loaded {
		found.rows = a.state.Tail.DurableRows()
	}
	switch q := q.(type) {
	case *activityv1.ReadSeenBy:
		found.uses = a.state.PendingUses(q.GetPath())
	case *activityv1.ReadLatestWriters:
		for _, name := range q.GetNames() {
			found.uses = append(found.uses, a.state.PendingUses(activity.Join(q.GetDir(), name))...)
		}
	}
	return found
}

// tallies caches durable totals of one workspace, which saves look-ups in the journal. It has two generations; when the younger
// is full, the older is dropped. The totals of a path and author take about 130 bytes, a full generation 1.6 MB.
type tallies struct {
	// prefix is the length of the common beginning of the workspace's values in the Seen index.
	prefix     int
	young, old map[tallyKey]tally
	// authors has the number of each author, by the part of the value that names the author; known has the authors by number.
	authors map[string]uint32
	known   []*activityv1.Author
}

// tallyGeneration is the number of totals in a generation, and the number of authors at which the whole cache is dropped.
const tallyGeneration = 12 << 10

// pathBytes is the length of a path in a value of the Seen index.
const pathBytes = 16

// A tallyKey is a value of the Seen index: a path and the number of an author.
type tallyKey struct {
	path   [pathBytes]byte
	author uint32
}

// tally is an activityv1.Totals without its author.
type tally struct {
	firstAt, lastAt, lastWriteAt, markedAt, recencyAt int64
	reads, writes                                     uint64
}

// find returns the totals at a value of the Seen index, and reports whether they are cached.
func (t *tallies) find(value string) (*activityv1.Totals, bool) {
	author, ok := t.authors[value[t.prefix+pathBytes:]]
	if !ok {
		return nil, false
	}
	key := tallyKey{author: author}
	copy(key.path[:], value[t.prefix:])
	found, ok := t.young[key]
	if !ok {
		if found, ok = t.old[key]; !ok {
			return nil, false
		}
	}
	return &activityv1.Totals{
		Author: t.known[author], FirstAt: found.firstAt, LastAt: found.lastAt, ReadCount: found.reads, WriteCount: found.writes,
		LastWriteAt: found.lastWriteAt, MarkedAt: found.markedAt, RecencyAt: found.recencyAt,
	}, true
}

// put caches the totals at a value of the Seen index.
func (t *tallies) put(value string, totals *activityv1.Totals) {
	if len(t.young) >= tallyGeneration {
		t.old, t.young = t.young, nil
	}
	if len(t.known) >= tallyGeneration {
		*t = tallies{prefix: t.prefix}
	}
	if t.young == nil {
		t.young = map[tallyKey]tally{}
	}
	key := tallyKey{author: t.number(value[t.prefix+pathBytes:], totals.GetAuthor())}
	copy(key.path[:], value[t.prefix:])
	t.young[key] = tally{
		firstAt: totals.GetFirstAt(), lastAt: totals.GetLastAt(), lastWriteAt: totals.GetLastWriteAt(),
		markedAt: totals.GetMarkedAt(), recencyAt: totals.GetRecencyAt(), reads: totals.GetReadCount(), writes: totals.GetWriteCount(),
	}
}

// number returns the number of an author, and assigns one to a new author.
func (t *tallies) number(name string, author *activityv1.Author) uint32 {
	if n, ok := t.authors[name]; ok {
		return n
	}
	if t.authors == nil {
		t.authors = map[string]uint32{}
	}
	n := uint32(len(t.known))
	t.authors[strings.Clone(name)] = n // a copy, so that the whole value does not stay in memory
	t.known = append(t.known, author)
	return n
}
