package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/atelier-run/atelier/cmd/build"
	"github.com/atelier-run/atelier/cmd/node/archives"
	"github.com/atelier-run/atelier/cmd/node/nodebackup"
	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/operator"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// checkpointDir returns the folder of the checkpoint that a backup of the node takes. It is beside the journal, so that files are
// linked.
func checkpointDir(o Options) string { return filepath.Join(o.Dir, "checkpoint") }

var errBackupRuns = entity.Errorf(entity.Unavailable, "another backup of the node is in progress")

// backUpNode returns the function that backs the node up. One backup runs at a time; it ends when the node stops.
func (n *Node) backUpNode(o Options) operator.BackUpNode {
	var running sync.Mutex
	return func(ctx context.Context, to string, report func(operator.NodeProgress)) (operator.NodeBackup, error) {
		if !running.TryLock() {
			return operator.NodeBackup{}, errBackupRuns
		}
		defer running.Unlock()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := func() { cancel(errors.New("the node stops")) }
		defer context.AfterFunc(n.ending, stop)()
		b, err := archives.OpenOther(o.Dir, to)
		if err != nil {
			return operator.NodeBackup{}, err
		}
		defer b.Close()
		if archives.IsOnDisk(b, n.Drives.Dir()) {
			b = archives.Reserve(b, n.Drives)
		}
		drives := archives.Drives{Drives: n.Drives, Asker: n.Router}
		source := nodebackup.Source{
			Bucket: b, Archive: archive.New(b, drives), Checkpoint: n.Journal.Checkpoint, Staging: checkpointDir(o),
			Drives: filepath.Join(o.Dir, datadir.DrivesName), DriveSize: drives.ArchiveSize, Program: build.Read().Version,
		}
		id := nodebackup.IDPrefix + strings.ToLower(ulid.Make().String())
		m, err := nodebackup.Create(ctx, source, id, o.Clock(), func(p nodebackup.Progress) {
			report(operator.NodeProgress(p))
			if n.ending.Err() != nil { // the goroutine of AfterFunc may come too late
				stop()
			}
		})
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			o.Log.Error("a backup of the node has failed", slog.String("backup", id), slog.Any("error", err))
			return operator.NodeBackup{}, err
		}
		done := operator.NodeBackup{BackupID: id, CreatedAt: m.CreatedAt, Drives: len(m.Drives), SizeBytes: m.SizeBytes()}
		for _, d := range m.Drives {
			done.ChangedFiles += d.ChangedFiles
			done.UnreadableFiles += d.UnreadableFiles
		}
		for _, f := range m.Failed {
			done.Failed = append(done.Failed, operator.FailedDrive(f))
			o.Log.Error("a drive is not in the backup of the node", slog.String("backup", id), slog.String("workspace", f.WorkspaceID),
				slog.String("error", f.Reason))
		}
		o.Log.Info("backed the node up", slog.String("backup", id), slog.Int("drives", done.Drives), slog.Int64("bytes", done.SizeBytes))
		return done, nil
	}
}

// RestoreOptions are the arguments of Restore.
type RestoreOptions struct {
	// Dir is the data directory to make.
	Dir string
	// From is the address of the bucket, BackupID the backup; empty: the latest one.
	From, BackupID string
	Log            *slog.Logger
	Report         func(nodebackup.Progress)
}

// Restore makes a data directory from a backup of a node. It verifies the whole backup first. It can be called again after an
// error or a crash, and then continues.
func Restore(ctx context.Context, o RestoreOptions) (nodebackup.Restored, error) {
	at, err := bucket.Parse(o.From)
	if err != nil {
		return nodebackup.Restored{}, fmt.Errorf("the address of the bucket is invalid: %w", err)
	}
	if at.Folder != "" { // opening it would create it
		if _, err := os.Stat(at.Folder); err != nil {
			return nodebackup.Restored{}, err
		}
	}
	b, err := at.Open(os.TempDir()) // a restore stores no object, and needs no space for one
	if err != nil {
		return nodebackup.Restored{}, err
	}
	defer b.Close()
	m, err := nodebackup.ReadManifest(ctx, b, o.BackupID)
	if err != nil {
		return nodebackup.Restored{}, err
	}
	r := nodebackup.Restoration{
		Bucket: b, Archive: archive.New(b, archives.Drives{}), Dir: o.Dir, Report: o.Report,
		Open: func(ctx context.Context, dir string) (nodebackup.Target, error) {
			n, err := Start(ctx, Options{Dir: dir, Log: o.Log, quiet: true})
			if err != nil {
				return nil, err
			}
			return nodebackup.RestoredNode{
				Drives: n.Drives, Asker: n.Router, Archive: archive.New(b, archives.Drives{Drives: n.Drives, Asker: n.Router}),
				Journal: n.Journal, Partition: n.Router.Partition, Stop: n.Stop,
			}, nil
		},
	}
	return r.Run(ctx, m)
}

// checkJournal returns the operation that checks the journal of a running node. Each fault is logged.
func (n *Node) checkJournal(log *slog.Logger) operator.CheckJournal {
	return func(ctx context.Context, report func(operator.JournalFault)) error {
		return n.Journal.Check(ctx, func(f persistence.Fault) {
			log.Error("the journal is damaged: restore the data directory from a copy, or stop the node and run \"atelier check\"",
				slog.String("file", f.File), slog.String("fault", f.What))
			report(operator.JournalFault{File: f.File, What: f.What, Repair: f.Repair})
		})
	}
}
