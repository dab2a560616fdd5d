// Package node puts a member together: journal, actors, router, drives and HTTP server over one data directory.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/anchors"
	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/persistence"
)

// Options are what a node is made of. Only Dir is needed.
type Options struct {
	// Dir is the data directory.
	Dir string
	Log *slog.Logger
	// Clock is the time that rules and limits see. It must not go backwards (SteadyClock); nil: the machine's.
	Clock func() time.Time
	// Journal sizes the journal; its directory and logger come from here.
	Journal persistence.Options
	// HTTP holds limits and durations; what it is wired to comes from here.
	HTTP http.Options
	// GeneratedTrees are the folder names whose content folds into summaries.
	GeneratedTrees []string
	// Descriptors is how many file descriptors the node may use; 0: as many as the process may have.
	Descriptors int
	// IdleAfter is when an unused entity leaves memory.
	IdleAfter time.Duration
	// ReactionAttempts is how often a reaction is tried before its stream is parked; 0: actors.DefaultReactionAttempts.
	ReactionAttempts int
	// BackupURL is the bucket of backups, an address of package bucket; empty: a folder of Dir.
	BackupURL string
	// SampleEvery is the pause between samples of computers; 0: 15 s.
	SampleEvery time.Duration
	// BirthPatience is how long a request that makes a workspace waits for its computer, and one that takes the right to
	// change files away for the removal of the person's locks; 0: 2 s. Both take milliseconds here.
	BirthPatience time.Duration
	// Wire sends every command through the wire codec.
	Wire bool
	// Members is how many actor systems run over the journal, each leading the partitions that Journal.Move gives it; 0: 1.
	// More than one is the split mode of tests, in which nothing may depend on state that one system alone has.
	Members int
	// Registry takes the metrics.
	Registry *prometheus.Registry
}

// DefaultIdleAfter is the IdleAfter of Options that leave it out.
const DefaultIdleAfter = 5 * time.Minute

// Node is a running member.
type Node struct {
	Journal *persistence.Store
	// Systems are the actor systems of the members, of which MemberName has the names in the journal.
	Systems []*actors.System
	Router  *cluster.Router
	Drives  *drive.Drives
	// Computers looks after the workspaces' computers.
	Computers *computer.Fleet
	Server    *http.Server
	// CursorSecret is the key of cursors. It follows from the installation's secret and the journal's timeline.
	CursorSecret []byte

	// files serves the drives.
	files   *webdav.Handler
	backups bucket.Bucket
	anchors *anchors.Follower
	// birthPatience and clock are those of Options.
	birthPatience time.Duration
	clock         func() time.Time
	// ready is closed once Server is set: tasks that send mail wait for it.
	ready chan struct{}
	log   *slog.Logger
}

// Start opens the data directory and returns a node that is ready to serve. What it has
// started when something fails is stopped again.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	o = o.complete()
	n := &Node{log: o.Log, birthPatience: cmp.Or(o.BirthPatience, 2*time.Second), clock: o.Clock, ready: make(chan struct{})}
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			err = errors.Join(err, n.Stop(stopping))
		}
	}()
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return n, err
	}
	o, shares, err := o.withDescriptors()
	if err != nil {
		return n, err
	}
	secret, err := prepareDir(o)
	if err != nil {
		return n, err
	}
	if n.Journal, err = openJournal(o); err != nil {
		return n, err
	}
	if n.CursorSecret, err = cursorSecret(secret, n.Journal.Timeline()); err != nil {
		return n, err
	}
	n.Router = cluster.NewRouter(n.Journal.Partitions(), o.Wire)
	if n.Drives, err = drive.New(drive.Options{
		Dir: filepath.Join(o.Dir, drivesName), Asker: n.Router, Generated: o.GeneratedTrees, Log: o.Log,
		Descriptors: shares.drives,
	}); err != nil {
		return n, err
	}
	n.files = webdav.New(n.Drives, o.Log)
	n.anchors = anchors.New(n.Drives, n.Router, o.Log)
	if n.backups, err = openBucket(o); err != nil {
		return n, err
	}
	if n.Computers, err = n.fleet(o, archive.New(n.backups, archived{n.Drives})); err != nil {
		return n, err
	}
	for member := range max(o.Members, 1) {
		n.Systems = append(n.Systems, n.newSystem(o, member))
	}
	n.Router.Attach(n.Systems...)
	for _, system := range n.Systems {
		system.Start()
	}
	if len(n.Systems) == 1 {
		n.Journal.Recover(context.WithoutCancel(ctx)) // until the journal is closed
	}
	o.Registry.MustRegister(n.Journal.Collector(), n.Drives, n.Computers)
	if n.Server, err = n.serve(o); err != nil {
		return n, err
	}
	close(n.ready)
	return n, nil
}

// MemberName returns the name under which the journal knows a member of the node, from 0 on.
func MemberName(member int) string {
	if member == 0 {
		return persistence.DefaultMember
	}
	return fmt.Sprintf("member-%d", member)
}

// newSystem makes the actor system of a member. The first one has the metrics.
func (n *Node) newSystem(o Options, member int) *actors.System {
	executors := map[string]actors.Executor{}
	n.computerExecutors(executors)
	n.mailExecutors(executors)
	n.driveExecutors(executors)
	var metrics prometheus.Registerer
	if member == 0 {
		metrics = o.Registry
	}
	var system *actors.System
	system = actors.New(actors.Options{
		Journal: n.Journal.Member(MemberName(member)), Partitions: n.Journal.Partitions(), Kinds: kinds.All, Secret: n.CursorSecret,
		Trail: n.trail(), Ask: n.Router.Ask, Clock: o.Clock, Log: o.Log, Registerer: metrics,
		IdleAfter: o.IdleAfter, ReactionAttempts: o.ReactionAttempts, Progress: n.Router.Progress, Executors: executors,
		Follow: func(ctx context.Context, p persistence.Partition) { n.follow(ctx, share{system, p}) },
	})
	return system
}

func (o Options) complete() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = systemClock()
	}
	if o.GeneratedTrees == nil {
		o.GeneratedTrees = drive.DefaultGenerated
	}
	if o.IdleAfter == 0 {
		o.IdleAfter = DefaultIdleAfter
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		ReadBuild().gauge())
	return o
}

func openJournal(o Options) (*persistence.Store, error) {
	journal, err := persistence.Open(journalOptions(o))
	if errors.Is(err, persistence.ErrDamaged) {
		return nil, incomplete("%w", err)
	}
	return journal, err
}

func journalOptions(o Options) persistence.Options {
	settings := o.Journal
	settings.Dir, settings.Logger = filepath.Join(o.Dir, journalName), o.Log
	settings.Marks = filepath.Join(o.Dir, marksName)
	return settings
}

func (n *Node) serve(o Options) (*http.Server, error) {
	settings := o.HTTP
	settings.Asker, settings.Streams, settings.Drive = settler{n.Router, n}, n.Router, n.files
	settings.Directory, settings.Reactions, settings.Progress = n.Router, n.Router, n.Computers.Progress
	settings.Secret, settings.Log, settings.Clock = n.CursorSecret, o.Log, o.Clock
	settings.Registerer, settings.Gatherer, settings.Ready = o.Registry, o.Registry, n.Journal.Err
	return http.New(settings)
}

// Stop ends what runs, in the order that lets commands under way finish: requests, tasks, drives, actors, journal.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	if n.Server != nil {
		errs = append(errs, n.Server.Shutdown(ctx))
	}
	for _, system := range n.Systems {
		system.EndWork(ctx) // tasks use the drives and the bucket
	}
	if n.Drives != nil {
		errs = append(errs, n.Drives.Close())
	}
	if n.backups != nil {
		errs = append(errs, n.backups.Close())
	}
	for _, system := range n.Systems {
		system.Stop(ctx)
	}
	if n.Journal != nil {
		errs = append(errs, n.Journal.Close())
	}
	return errors.Join(errs...)
}
