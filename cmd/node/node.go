// Package node constructs a member from its parts: journal, actors, router, drives and HTTP server over one data directory. It
// has no rules of its own.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/actors/clock"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/cluster/pending"
	"github.com/atelier-run/atelier/cmd/build"
	"github.com/atelier-run/atelier/cmd/node/archives"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/anchors"
	"github.com/atelier-run/atelier/drive/files"
	"github.com/atelier-run/atelier/drive/observe"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/drive/skills"
	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service/domain"
	"github.com/atelier-run/atelier/volume"
)

// Options are the arguments of Start. Only Dir is required.
type Options struct {
	// Dir is the data directory.
	Dir string
	Log *slog.Logger
	// Clock is the clock of rules and limits. It must not go backwards; nil: clock.System.
	Clock func() time.Time
	// Journal has the sizes of the journal. Start sets its directory and logger.
	Journal persistence.Options
	// HTTP has the limits and durations of the server. Start sets the parts that it uses.
	HTTP http.Options
	// GeneratedTrees are the names of folders with generated content; operations in them are recorded in summaries.
	GeneratedTrees []string
	// DriveQuota limits the drive of each workspace. DriveReserve is the space of the disk that drives leave free.
	// Workspaces with a small use may have a part of it, but not what the journal needs: see package quota.
	DriveQuota   quota.Limit
	DriveReserve quota.Usage
	// WorkspaceJournal is the number of bytes that each workspace may have in the journal; 0: no limit. A quarter of the file system of Dir is
	// the most.
	WorkspaceJournal uint64
	// Descriptors is the number of file descriptors that the node may use; 0: the limit of the process.
	Descriptors int
	// IdleAfter is the time after its last use at which an entity leaves memory; 0: DefaultIdleAfter.
	IdleAfter time.Duration
	// ReactionAttempts is the number of failed attempts of a reaction after which its stream is parked; 0:
	// actors.DefaultReactionAttempts.
	ReactionAttempts int
	// BackupURL is the bucket of backups, an address of package bucket; empty: a folder of Dir.
	BackupURL string
	// Computers has the settings of computers that run processes.
	Computers ComputerOptions
	// CertificateFiles are the files of certificates for HTTPS.
	CertificateFiles []server.CertificateFile
	// Domains has the settings of custom domains and certificates.
	Domains DomainOptions
	// Edge has the limits of the edge, which serves the hosts of apps. Start sets its other fields.
	Edge edge.Options
	// Agents is the file with the models and agents of sessions (package runner); empty: the built-in agent without a model.
	Agents string
	// Sessions has the limits of the runner of sessions. Its agents run in the computers of Computers, unless it has others. Start
	// sets its other fields.
	Sessions runner.Options
	// HoldTurns makes the turns of sessions wait: no runner takes them, and the caller sends the commands of a runner.
	HoldTurns bool
	// Apps has the limits and durations of the supervisor of apps. Start sets its other fields.
	Apps apps.Options
	// HoldApps makes apps and custom domains wait: no executor runs their tasks, and the caller sends the commands of one.
	HoldApps bool
	// BackupEvery is the time between two backups of a drive, for workspaces without a policy of their own, and BackupKeep the
	// number of them that is stored; 0: none are scheduled.
	BackupEvery time.Duration
	BackupKeep  int
	// SampleEvery is the pause between samples of computers; 0: 15 s.
	SampleEvery time.Duration
	// PendingLimit limits how long a request waits for the tasks that it opened: the provisioning of the computer of
	// a new workspace, and the removal of the locks of a person who lost the right to change files; 0: 2 s. Both usually take
	// milliseconds.
	PendingLimit time.Duration
	// Wire makes every command and reply pass the wire codec, as between members.
	Wire bool
	// Members is the number of actor systems over the journal. Each system owns the partitions that Journal.Move assigns to
	// it; 0: 1. More than one is the split mode of tests, in which no code may depend on the state of one system.
	Members int
	// Registry registers the metrics; nil: a new one.
	Registry *prometheus.Registry

	// quiet starts neither timers and tasks nor a server: the node answers only to this process, for a restore.
	quiet bool
}

// DefaultIdleAfter is the default of Options.IdleAfter.
const DefaultIdleAfter = 5 * time.Minute

// A Node is a running member.
type Node struct {
	Journal *persistence.Store
	// Systems are the actor systems of the members. MemberName returns their names in the journal.
	Systems []*actors.System
	Router  *cluster.Router
	Drives  *drive.Drives
	// Computers runs the tasks of computers and samples them.
	Computers *computer.Fleet
	Server    *http.Server
	// Domains gives custom host names their certificates.
	Domains *domains.Domains
	// CursorSecret is the key of cursors, derived from the secret of the data directory and the timeline of the journal.
	CursorSecret []byte

	// webdav serves the drives over WebDAV. files has the operations on their files for the other doors.
	webdav  *webdav.Handler
	files   files.Files
	backups bucket.Bucket
	// room limits the bytes that each workspace has in the journal.
	room *quota.Room
	// driver runs the processes of computers, and observer records what they change.
	driver   driver
	observer *observe.Observer
	anchors  *anchors.Follower
	// certificateFiles are the certificates that the operator has provided.
	certificateFiles *server.CertificateFiles
	// runner runs the agents of sessions, and tools are the tools that agents call.
	runner *runner.Runner
	tools  *tools.Tools
	// apps supervises the processes of apps, and edge serves their hosts.
	apps *apps.Supervisor
	edge *edge.Edge
	// certificates are the certificates of the hosts of the node and of the standard addresses of apps.
	certificates *domain.Certificates
	// ending is done when the node stops; end ends it.
	ending context.Context
	end    context.CancelFunc
	// serverReady is closed when Server is set.
	serverReady chan struct{}
}

// Start prepares the data directory and starts all parts of the node. When it returns, the caller can serve n.Server. If a part
// fails to start, Start stops the others and returns the error, which is datadir.ErrIncomplete if a part of the directory is
// missing or damaged.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	o = o.complete()
	n := &Node{serverReady: make(chan struct{})}
	n.ending, n.end = context.WithCancel(context.WithoutCancel(ctx))
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
	o.Journal.Logger = o.Log
	journal := datadir.JournalOptions(o.Dir, o.Journal)
	secret, err := datadir.Prepare(o.Dir, journal)
	if err != nil {
		return n, err
	}
	if n.Journal, err = datadir.OpenJournal(journal); err != nil {
		return n, err
	}
	if n.CursorSecret, err = datadir.CursorSecret(secret, n.Journal.Timeline()); err != nil {
		return n, err
	}
	n.Router = cluster.NewRouter(n.Journal.Partitions(), o.Wire)
	disk, err := volume.Measure(o.Dir)
	if err != nil {
		return n, err
	}
	n.room = quota.NewRoom(min(o.WorkspaceJournal, disk.TotalBytes/4), func(workspaceID string) uint64 {
		return n.Journal.WorkspaceBytes(n.Router.Partition(workspaceID), workspaceID)
	}, o.Registry)
	if n.Drives, err = drive.New(drive.Options{
		Dir: filepath.Join(o.Dir, datadir.DrivesName), Asker: n.Router, Generated: o.GeneratedTrees, Log: o.Log,
		Descriptors: shares.Drives, Quota: o.DriveQuota, Reserve: o.DriveReserve, Room: n.room.CheckDrive,
		Least: quota.Usage{Bytes: o.Journal.MinFreeBytes, Files: o.Journal.MinFreeFiles}, Journal: n.room.Used,
		Payer: func(ctx context.Context, workspaceID string) (quota.Payer, error) {
			return quota.FindPayer(ctx, n.Router, workspaceID)
		},
	}); err != nil {
		return n, err
	}
	n.room.CheckShare = n.Drives.CheckJournal
	if err := n.newDomains(o, secret); err != nil {
		return n, err
	}
	n.webdav, n.files = webdav.New(n.Drives, o.Log), files.Files{Drives: n.Drives}
	n.anchors = anchors.New(n.Drives, n.Router, o.Log)
	if err := os.RemoveAll(checkpointDir(o)); err != nil { // left by a process that was killed during a backup
		return n, err
	}
	if n.backups, err = archives.OpenBucket(o.Dir, o.BackupURL); err != nil {
		return n, err
	}
	if n.Computers, err = n.newFleet(ctx, o, n.newArchive(n.backups)); err != nil {
		return n, err
	}
	n.apps = n.newSupervisor(o)
	if n.runner, n.tools, err = n.newRunner(o); err != nil {
		return n, err
	}
	if !o.quiet {
		if err = n.newEdge(o); err != nil { // before the actors, which notify it of changes
			return n, err
		}
	}
	for member := range max(o.Members, 1) {
		n.Systems = append(n.Systems, n.newSystem(o, member))
	}
	n.Router.Attach(n.Systems...)
	for _, system := range n.Systems {
		if o.quiet {
			system.EndWork(ctx) // timers and tasks that begin afterwards end at once
		}
		system.Start()
	}
	if len(n.Systems) == 1 {
		n.Journal.Recover(context.WithoutCancel(ctx)) // runs until the journal is closed
	}
	if o.quiet {
		return n, nil
	}
	o.Registry.MustRegister(n.Journal.Collector(), n.Drives, n.Computers, n.runner, n.apps, n.Domains)
	if n.Server, err = n.newServer(o); err != nil {
		return n, err
	}
	if o.Domains.Enabled {
		n.Domains.Maintain(n.ending, slices.DeleteFunc(slices.Clone(o.Domains.Hosts), n.certificateFiles.Covers))
	}
	close(n.serverReady)
	return n, nil
}

// MemberName returns the name of a member of the node in the journal, counted from 0.
func MemberName(member int) string {
	if member == 0 {
		return persistence.DefaultMember
	}
	return fmt.Sprintf("member-%d", member)
}

// urgencyOf returns the urgency of the proposal of a command.
func urgencyOf(c entity.Command) persistence.Urgency {
	switch {
	case kinds.IsEssential(c):
		return persistence.Essential
	case kinds.IsRationed(c):
		return persistence.Rationed
	}
	return persistence.Ordinary
}

// newSystem returns the actor system of a member. Only the first member's registers metrics.
func (n *Node) newSystem(o Options, member int) *actors.System {
	var metrics prometheus.Registerer
	if member == 0 {
		metrics = o.Registry
	}
	return actors.New(actors.Options{
		Journal: n.Journal.Member(MemberName(member)), Partitions: n.Journal.Partitions(), Kinds: kinds.All, Secret: n.CursorSecret,
		Urgency: urgencyOf, Admit: n.room.Admit,
		Trail: n.trail(), Ask: n.Router.Ask, Clock: o.Clock, Log: o.Log, Registerer: metrics,
		IdleAfter: o.IdleAfter, ReactionAttempts: o.ReactionAttempts, Progress: n.Router.Progress, Executors: n.executors(o),
		Follow: n.followTerm, Observe: n.observe,
	})
}

// complete returns the options with their defaults.
func (o Options) complete() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System()
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
	if o.HTTP.PublicURL == nil {
		o.HTTP.PublicURL = server.DefaultPublicURL()
	}
	o.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build.Read().Gauge())
	return o
}

// newServer returns the HTTP server over the parts of the node.
func (n *Node) newServer(o Options) (*http.Server, error) {
	settings := o.HTTP
	settings.Asker, settings.Streams, settings.Drive, settings.Skills = n.asker(o), n.Router, n.webdav, skills.New(n.Drives)
	settings.Tools = mcpTools{n.tools}
	settings.Sessions.Timelines, settings.Sessions.Folders, settings.Sessions.Images = n.Router, n.files, n.Drives
	if settings.Computers == nil {
		settings.Computers = computers{n.Computers}
	}
	settings.Directory, settings.Reactions, settings.Progress = n.Router, n.Router, n.Computers.Progress
	settings.People = n.Router
	settings.BackUpNode, settings.CheckJournal, settings.RenewCertificate = n.backUpNode(o), n.checkJournal(o.Log), n.certificates.Renew
	settings.Apps, settings.Edge = n.appOperations(o), n.edge
	settings.Secret, settings.Log, settings.Clock = n.CursorSecret, o.Log, o.Clock
	settings.Registerer, settings.Gatherer, settings.Ready = o.Registry, o.Registry, n.Journal.Err
	return http.New(settings)
}

// asker returns the router as HTTP handlers use it.
func (n *Node) asker(o Options) pending.Router {
	return pending.Router{Router: n.Router, Limit: cmp.Or(o.PendingLimit, 2*time.Second)}
}

// Stop stops the node in the order that lets commands in flight finish: requests, tasks, agents, processes, drives, actors,
// journal. It returns the errors of all of them. When ctx ends, it waits for nothing more, and the error names the requests and the processes
// that were cut off.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	n.end()
	if n.Server != nil {
		errs = append(errs, n.Server.Shutdown(ctx))
	}
	if n.edge != nil {
		n.edge.Close()
	}
	if n.Computers != nil && ctx.Err() != nil {
		errs = append(errs, n.Computers.CutOff()) // the end of the tasks begins to end processes
	}
	for _, system := range n.Systems {
		system.EndWork(ctx) // tasks use the computers, the drives and the bucket
	}
	if n.runner != nil {
		n.runner.Close()
	}
	errs = append(errs, n.stopComputers(ctx))
	if n.Drives != nil {
		errs = append(errs, n.Drives.Close())
	}
	if n.backups != nil {
		errs = append(errs, n.backups.Close())
	}
	if n.Domains != nil {
		n.Domains.Close()
	}
	for _, system := range n.Systems {
		system.Stop(ctx)
	}
	if n.Journal != nil {
		errs = append(errs, n.Journal.Close())
	}
	return errors.Join(errs...)
}
