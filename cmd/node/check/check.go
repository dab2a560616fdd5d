// Package check checks and repairs data directories of nodes that do not run.
package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/drive/observe"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/certificates"
	"github.com/atelier-run/atelier/entity/kinds"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// A checker checks a data directory that no node has open:
//
//  1. datadir.Check checks that no part is missing, and the secret.
//  2. persistence.Check checks the files of the journal, and its rows against each other.
//  3. actors.StreamChecker replays all streams, and compares timers, tasks and snapshots with the events. After the sequence of file activity
//     of a workspace, drives compares it with the drive.
//  4. drives compares the folders of drives with the workspaces, and certificates decrypts the files of the store.
//
// A step that finds faults ends the check, because the later steps would report the same damage in other words.
type checker struct {
	dir    string
	secret []byte
	// report receives the faults of the journal, and reportOthers the faults of drives, certificates and the secret.
	report, reportOthers func(persistence.Fault)
	drives               *observe.Checker
	// mend receives the changes of rows that mend faults, by partition; nil: nothing is mended.
	mend map[persistence.Partition][]persistence.Change
}

// Run checks a data directory that no node has open, and reports each fault. It changes nothing. An error means that the check could not
// be carried out.
func Run(ctx context.Context, dir string, log *slog.Logger, report func(persistence.Fault)) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c := &checker{dir: dir, report: report, reportOthers: report}
	return c.check(ctx, log)
}

// check carries out all steps.
func (c *checker) check(ctx context.Context, log *slog.Logger) (err error) {
	if c.secret, err = datadir.Check(c.dir, c.reportOthers); err != nil {
		return err
	}
	return persistence.Check(ctx, journalOf(c.dir, log), c.report, func(v persistence.View, partitions int) error {
		return c.checkRows(ctx, v, partitions)
	})
}

func journalOf(dir string, log *slog.Logger) persistence.Options {
	return datadir.JournalOptions(dir, persistence.Options{Logger: log})
}

// checkRows carries out the steps 3 and 4.
func (c *checker) checkRows(ctx context.Context, v persistence.View, partitions int) error {
	c.drives = observe.NewChecker(filepath.Join(c.dir, datadir.DrivesName), func(path, what string) {
		c.reportOthers(persistence.Fault{File: path, What: what})
	})
	if err := c.addOpenIntents(v, partitions); err != nil {
		return err
	}
	streams := actors.StreamChecker{
		Kinds: kinds.All, Now: time.Now(), State: c.drives.AddState, Row: c.drives.AddRow,
		EndRows: func(workspaceID string) error { return c.drives.EndRows(ctx, workspaceID) },
		Report: func(p persistence.Partition, what string, mend []persistence.Change) {
			f := persistence.Fault{File: filepath.Join(c.dir, datadir.JournalName), What: fmt.Sprintf("partition %d: %s", p, what)}
			if len(mend) > 0 {
				f.Repair = "write the index anew from the events"
			}
			if len(mend) > 0 && c.mend != nil {
				c.mend[p] = append(c.mend[p], mend...)
				f.Repaired = true
			}
			c.report(f)
		},
	}
	if err := streams.Check(ctx, v, partitions); err != nil {
		return err
	}
	if err := c.drives.CompareFolders(); err != nil {
		return err
	}
	return c.checkCertificates(v, partitions)
}

// addOpenIntents tells drives which workspaces have open intents.
func (c *checker) addOpenIntents(v persistence.View, partitions int) error {
	for p := range partitions {
		for row, err := range v.Index(persistence.Partition(p), persistence.Query{Index: activity.OpenIntents, Prefix: true}) {
			if err != nil {
				return err
			}
			workspaceID, _, _ := strings.Cut(row.Value, "\x00")
			c.drives.AddOpenIntent(workspaceID)
		}
	}
	return nil
}

// checkCertificates decrypts each file of the store of certificates.
func (c *checker) checkCertificates(v persistence.View, partitions int) error {
	if c.secret == nil {
		return nil
	}
	key, err := datadir.CertificatesKey(c.secret)
	if err != nil {
		return err
	}
	for p := range partitions {
		for row, err := range v.Index(persistence.Partition(p), persistence.Query{Index: entity.ListIndex(certificates.FileList), Prefix: true}) {
			if err != nil {
				return err
			}
			var file certificatesv1.File
			err := proto.Unmarshal(row.Data, &file)
			if err == nil {
				_, err = domains.Decrypt(key, &file)
			}
			if err != nil {
				c.reportOthers(persistence.Fault{File: filepath.Join(c.dir, datadir.JournalName), What: fmt.Sprintf("the file %q of the store of certificates: %v; "+
					"a node orders the certificate again", file.GetName(), err)})
			}
		}
	}
	return nil
}

// Repair checks a data directory that no node has open, and mends the faults of rows that follow from the events: heads, feeds, timers and
// tasks; it removes snapshots that are too late. Each fault that it reports says whether it was mended. A directory with damaged files of
// the journal or lost events is only checked; faults of drives, certificates and the secret prevent nothing.
func Repair(ctx context.Context, dir string, log *slog.Logger, report func(persistence.Fault)) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	damaged := false
	var remaining, others []persistence.Fault
	c := &checker{dir: dir,
		report: func(f persistence.Fault) {
			if f.Repair == "" {
				damaged = true
				remaining = append(remaining, f)
			}
		},
		reportOthers: func(f persistence.Fault) { others = append(others, f) },
	}
	if err := c.check(ctx, log); err != nil {
		return err
	}
	if damaged {
		for _, f := range slices.Concat(others, remaining) {
			report(f)
		}
		return nil
	}
	if err := persistence.Repair(ctx, journalOf(dir, log), report); err != nil {
		return err
	}
	journal, err := persistence.Open(journalOf(dir, log))
	if err != nil {
		return err
	}
	c.report, c.reportOthers, c.mend = report, report, map[persistence.Partition][]persistence.Change{}
	_, err = datadir.Check(dir, report) // the first call of datadir.Check reported its faults only if the journal was damaged
	return errors.Join(err, c.repairRows(ctx, journal), journal.Close())
}

// repairRows checks the rows of an open journal, and commits the changes that mend them.
func (c *checker) repairRows(ctx context.Context, journal *persistence.Store) error {
	v, err := journal.View()
	if err != nil {
		return err
	}
	var faults []persistence.Fault
	report := c.report
	c.report = func(f persistence.Fault) { faults = append(faults, f) }
	if err := errors.Join(c.checkRows(ctx, v, journal.Partitions()), v.Close()); err != nil {
		return err
	}
	epochs := map[persistence.Partition]uint64{}
	watching, end := context.WithCancel(ctx)
	journal.Watch(watching, func(n persistence.Notice) { epochs[n.Partition] = max(epochs[n.Partition], n.Epoch) })
	end()
	for p, changes := range c.mend {
		if err := commitChanges(journal, p, epochs[p], changes); err != nil {
			return err
		}
	}
	for _, f := range faults {
		report(f)
	}
	return nil
}

// maxRepairBytes bounds the rows of one proposal of a repair.
const maxRepairBytes = 1 << 20

// commitChanges commits changes of rows in small proposals, which a journal also accepts when its disk is nearly full. A repair that was
// interrupted between two of them can be repeated.
func commitChanges(journal *persistence.Store, p persistence.Partition, epoch uint64, changes []persistence.Change) error {
	const rowBytes = 64 // for the rest of a row
	for len(changes) > 0 {
		n, bytes := 0, 0
		for ; n < len(changes) && (n == 0 || bytes < maxRepairBytes); n++ {
			c := &changes[n]
			bytes += rowBytes + len(c.Index) + len(c.Value) + len(c.Data)
		}
		results := make(chan persistence.Result, 1)
		journal.Append(persistence.Proposal{Partition: p, Stream: "repair", Epoch: epoch, Entries: changes[:n], Urgency: persistence.Essential},
			func(r persistence.Result) { results <- r })
		if r := <-results; r.Err != nil {
			return r.Err
		}
		changes = changes[n:]
	}
	return nil
}
