package actors_test

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/entity/workspace"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

const partitions = 4

// patience limits the time that a test waits for a condition. Only a failing test waits so long, however slow the machine is.
const patience = 3 * time.Minute

var secret = []byte("0123456789abcdef0123456789abcdef")

// A bench is a system over a journal, which a test starts again as often as it wants.
type bench struct {
	t       testing.TB
	fs      vfs.FS
	journal *persistence.Store
	faults  *faultyJournal
	// view is the field of the same name of faults.
	view   func(persistence.View) persistence.View
	system *actors.System
	// split makes two systems own the partitions in turn; see moving.
	split bool
	other *actors.System
	// wanders makes partitions move while the bench runs, until settled is called.
	wanders  bool
	settled  func()
	router   *cluster.Router
	registry *prometheus.Registry
	idle     time.Duration
	extra    []entity.Kind
	trail    actors.Trail
	// react, if set, replaces React of slugs; attempts and send replace ReactionAttempts and Ask of actors.Options.
	react    func(slug string, event proto.Message) []entity.Reaction
	attempts int
	send     func(context.Context, entity.Command) (proto.Message, error)
	// executors, follower, observe and admit replace the fields of the same names of actors.Options.
	executors map[string]actors.Executor
	follower  func(context.Context, actors.OwnedPartition)
	observe   func(kind, identity string, events []persistence.Event)
	admit     func(entity.Command) error
	clock     *fakeClock
	// added counts the rows that addRows has added.
	added atomic.Int64
	// dumb counts the operations that fill has recorded.
	dumb modelAuthors
}

type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newBench(t testing.TB, adjust ...func(*bench)) *bench {
	b := &bench{t: t, fs: vfs.NewMem(), idle: time.Hour, clock: &fakeClock{now: time.UnixMilli(1_700_000_000_000)}}
	for _, fn := range adjust {
		fn(b)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *bench) start() {
	b.t.Helper()
	journal, err := persistence.Open(persistence.Options{
		Dir: "journal", Partitions: partitions, FS: b.fs, CacheBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.journal = journal
	b.faults = &faultyJournal{Journal: journal, view: b.view}
	b.router = cluster.NewRouter(partitions, true)
	b.registry = prometheus.NewRegistry()
	b.system = b.newSystem(b.faults, b.registry)
	if !b.split {
		b.router.Attach(b.system)
		b.system.Start()
		return
	}
	b.other = b.newSystem(journal.Member("other"), nil)
	b.router.Attach(b.system, b.other)
	b.system.Start()
	b.other.Start()
	if b.wanders {
		_, b.settled = b.wander(11)
	}
}

func (b *bench) newSystem(journal persistence.Journal, metrics prometheus.Registerer) *actors.System {
	return actors.New(actors.Options{
		Journal: journal, Partitions: partitions, Kinds: b.kinds(),
		Secret: secret, Ask: b.sending, Clock: b.clock.Now, Log: slog.New(slog.DiscardHandler), Registerer: metrics,
		IdleAfter: b.idle, Trail: b.trail, ReactionAttempts: b.attempts, ExpireEvery: time.Hour,
		Executors: b.executors, Follow: b.follower, Observe: b.observe, Admit: b.admit,
	})
}

func (b *bench) sending(ctx context.Context, c entity.Command) (proto.Message, error) {
	if b.send != nil {
		return b.send(ctx, c)
	}
	return b.router.Ask(ctx, c)
}

// kinds returns the bench's kinds. Only events of slugs have reactions; those for users and computers are left out.
func (b *bench) kinds() []entity.Kind {
	slugs, workspaces := slug.Kind, workspace.Kind
	slugs.React, workspaces.React = createWorkspace, nil
	if b.react != nil {
		slugs.React = b.react
	}
	return append([]entity.Kind{slugs, workspaces, activity.Kind}, b.extra...)
}

func (b *bench) stop() {
	if b.settled != nil {
		b.settled()
		b.settled = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.system.Stop(ctx)
	if b.other != nil {
		b.other.Stop(ctx)
	}
	if err := b.journal.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) restart() {
	b.stop()
	b.start()
}

// createWorkspace returns the command that creates the workspace of a claimed slug.
func createWorkspace(_ string, event proto.Message) []entity.Reaction {
	e, claimed := event.(*slugv1.SlugClaimed)
	if !claimed {
		return nil
	}
	return []entity.Reaction{entity.Send(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.CreateWorkspace{
		Slug: e.GetSlug(), Name: e.GetWorkspaceName(), CreatorId: e.GetCreatorId(),
	})}
}

// A faultyJournal is a journal with faults that a test injects.
type faultyJournal struct {
	persistence.Journal
	mu   sync.Mutex
	fail func(persistence.Proposal) error
	hold func(persistence.Proposal) bool
	// views, if set, delays views until it is closed.
	views chan struct{}
	held  chan func()
	// feed, if set, is called before a feed is read.
	feed func(persistence.Partition)
	// view, if set, returns the views that the system gets. It is set before the system starts.
	view func(persistence.View) persistence.View
}

// A feedView calls a function before it reads a feed.
type feedView struct {
	persistence.View
	feed func(persistence.Partition)
}

func (v feedView) Feed(p persistence.Partition, from uint64, wants func(persistence.Stream) bool) iter.Seq2[persistence.Event, error] {
	v.feed(p)
	return v.View.Feed(p, from, wants)
}

// reading sets the function that is called before each read of a feed; nil: none.
func (f *faultyJournal) reading(feed func(persistence.Partition)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feed = feed
}

// holding delays the proposals that hold selects: it sends to held a function that appends the proposal.
func (f *faultyJournal) holding(hold func(persistence.Proposal) bool, held chan func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold, f.held = hold, held
}

func (f *faultyJournal) failing(fn func(persistence.Proposal) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fn
}

func (f *faultyJournal) View() (persistence.View, error) {
	f.mu.Lock()
	views, feed := f.views, f.feed
	f.mu.Unlock()
	if views != nil {
		<-views
	}
	v, err := f.Journal.View()
	if err == nil && feed != nil {
		v = feedView{v, feed}
	}
	if err == nil && f.view != nil {
		v = f.view(v)
	}
	return v, err
}

func (f *faultyJournal) Append(p persistence.Proposal, done func(persistence.Result)) {
	f.mu.Lock()
	fail, hold, held := f.fail, f.hold, f.held
	f.mu.Unlock()
	if hold != nil && hold(p) {
		held <- func() { f.Append(p, done) }
		return
	}
	if fail != nil {
		if err := fail(p); err != nil {
			done(persistence.Result{Err: err})
			return
		}
	}
	f.Journal.Append(p, done)
}

func person(id string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "key_1", UserId: id}
}

func (b *bench) ask(c entity.Command) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return b.router.Ask(ctx, c)
}

func (b *bench) mustAsk(c entity.Command) proto.Message {
	b.t.Helper()
	m, err := b.ask(c)
	if err != nil {
		b.t.Fatalf("%s: %v", entity.MessageName(c.Message), err)
	}
	return m
}

func (b *bench) createWorkspace(id, owner string) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: id, Principal: entity.Platform(),
		Message: &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: owner}})
}

func operation(kind activityv1.Kind, path string) *activityv1.Operation {
	return &activityv1.Operation{Kind: kind, Path: path, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE,
		Author: &activityv1.Author{Actor: "api-key:key_1", UserId: "usr_1"}}
}

func record(id string, ops ...*activityv1.Operation) entity.Command {
	return entity.Command{Kind: entity.KindActivity, Identity: id, Principal: entity.Platform(),
		Message: &activityv1.Record{Operations: ops}}
}

func (b *bench) feed(id string, q *activityv1.ReadFeed) string {
	b.t.Helper()
	q.Limit = 100
	m := b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: id, Principal: person("usr_1"), Message: q})
	return string(m.(*activityv1.Page).GetItems())
}

// refuseOnce returns a fault that refuses the next proposal of a stream.
func refuseOnce(stream persistence.Stream) func(persistence.Proposal) error {
	var refused atomic.Bool
	return func(p persistence.Proposal) error {
		if p.Stream == stream && refused.CompareAndSwap(false, true) {
			return persistence.ErrRefused
		}
		return nil
	}
}
