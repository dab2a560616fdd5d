package persistence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// Fault is a difference between the expected content of a data directory and its content.
type Fault struct {
	// File is the path of the damaged file, or of the directory of the store if rows do not agree.
	File string `json:"file"`
	// What describes the difference.
	What string `json:"fault"`
	// Repair says how a repair mends the fault; empty: no repair can.
	Repair string `json:"repair,omitzero"`
	// Repaired reports that the fault was mended.
	Repaired bool `json:"repaired,omitzero"`
}

// Check reads all of a journal that no process has open: the marks, the manifest, every block of every table, every record of the
// logs, and every row. It reports each fault. If files are damaged, the rows are not compared. Unlike Open it does not end with the first
// fault. It changes nothing. An error means that the check could not be carried out, for example because the journal is open. If rows is
// not nil, Check calls it with a view of the rows, in which no fault was found.
func Check(ctx context.Context, o Options, report func(Fault), rows func(v View, partitions int) error) error {
	o = o.withDefaults()
	faults := 0
	c := &checker{options: o, report: func(f Fault) { faults++; report(f) }}
	d := &directory{fs: o.FS, path: o.Dir, marksPath: o.Marks}
	if has, err := d.contains(formatName); err != nil {
		return err
	} else if !has {
		c.damage(d.join(formatName), errors.New("the file is missing"))
		return nil
	}
	lock, err := d.fs.Lock(d.join(lockName))
	if err != nil {
		return fmt.Errorf("data directory %s is in use by another process: %w", d.path, err)
	}
	defer lock.Close()
	if err := d.readIdentity(o.Partitions); err != nil {
		c.damage(d.path, err)
	}
	if d.format.partitions == 0 {
		return nil
	}
	c.verifier = o.verifier(d)
	c.checkFiles(d)
	if faults > 0 || d.marks != nil && !d.marks.hasHistory() {
		return nil
	}
	return recovered(func() error { return c.checkRows(ctx, d, rows) })
}

// checker checks a journal that is not open.
type checker struct {
	options  Options
	verifier *verifier
	report   func(Fault)
}

// damage reports a fault of a file.
func (c *checker) damage(file string, err error) {
	what := strings.TrimPrefix(err.Error(), ErrDamaged.Error()+": ")
	c.report(Fault{File: file, What: what})
}

// checkFiles checks the files of the store: the manifest and the logs against their promised beginnings, and all blocks and records.
func (c *checker) checkFiles(d *directory) {
	v := c.verifier
	current, err := atomicfs.ReadMarker(v.fs, v.store, manifestMarker)
	if err == nil && current == "" {
		err = errors.New("the store has no manifest")
	}
	if err != nil {
		c.damage(v.store, err)
		return
	}
	if err := v.checkSmallFiles(); err != nil {
		c.damage(v.store, err)
		return
	}
	var promised []extent
	if d.marks != nil {
		promised = slices.Concat(d.synced, d.marks.manifests)
		if d.marks.sealed {
			promised = append(promised, d.marks.logs...)
		}
		if err := v.checkFiles(d.marks, current); err != nil {
			c.checkExtents(promised, current, err)
		}
	}
	var reached []partitionMark
	if err := recovered(func() (err error) { reached, err = c.readTables(d.format.partitions); return err }); err != nil {
		c.damage(v.store, err)
		return
	}
	isWhole := reached != nil
	if !isWhole {
		reached = make([]partitionMark, d.format.partitions)
	}
	logs := v.readOnly.logs.Finish()
	for i, l := range logs {
		if _, err := readLog(l, i == len(logs)-1, reached); err != nil {
			c.damage(v.pathOfLog(l), err)
			isWhole = false
		}
	}
	if d.marks == nil || !isWhole {
		return
	}
	for p, least := range d.marks.partitions { // the rows are compared with the sequences of the marks, because events may have them
		if has := reached[p]; has.epoch < least.epoch {
			c.damage(v.store, fmt.Errorf("partition %d ends at epoch %d, but has contained epoch %d", p, has.epoch, least.epoch))
		}
	}
}

// checkExtents reports each promised file that is damaged, after an error of all of them together.
func (c *checker) checkExtents(promised []extent, current string, all error) {
	v, named := c.verifier, false
	for _, e := range promised {
		if strings.HasPrefix(e.name, manifestPrefix) && e.name != current {
			continue
		}
		if err := v.checkExtent(e); err != nil {
			c.damage(v.fs.PathJoin(v.store, e.name), err)
			named = true
		}
	}
	if !named {
		c.damage(v.store, all)
	}
}

// readTables opens the store without its logs, reports each damaged table, and returns the marks that the partitions have
// reached, or nil if a table is damaged.
func (c *checker) readTables(partitions int) ([]partitionMark, error) {
	v := c.verifier
	db, err := v.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	tables, err := v.listTables(db)
	if err != nil {
		return nil, err
	}
	damagedTables := 0
	for _, t := range tables {
		if err := v.checkTable(t.name, true); err != nil {
			c.damage(v.fs.PathJoin(v.store, t.name), err)
			damagedTables++
		}
	}
	if damagedTables > 0 {
		return nil, nil
	}
	return readReached(db, partitions)
}

// checkRows opens the store with its logs, in memory, and compares the rows.
func (c *checker) checkRows(ctx context.Context, d *directory, rows func(v View, partitions int) error) error {
	v := c.options.verifier(d)
	v.readOnly.showsLogs = true
	db, err := v.open()
	if err != nil {
		c.damage(v.store, err)
		return nil
	}
	defer db.Close()
	faults := 0
	r := &rowChecker{reader: db, partitions: d.format.partitions, store: v.store, isStopped: ctx.Err,
		report: func(f Fault) { faults++; c.report(f) }}
	if d.marks != nil {
		r.marks = d.marks.partitions
	}
	if err := r.check(); err != nil || faults > 0 || rows == nil {
		return err
	}
	views := newViews(db)
	defer views.close()
	view, err := views.open()
	if err != nil {
		return err
	}
	return errors.Join(rows(view, d.format.partitions), view.Close())
}

// Check compares the rows of an open journal as of one durable state, and verifies the checksums of all tables, while the journal goes on.
// It ends with the error of ctx, or ErrClosed when the journal is closed.
func (s *Store) Check(ctx context.Context, report func(Fault)) error {
	if err := s.views.enter(); err != nil {
		return err
	}
	defer s.views.exit()
	found := func(f Fault) {
		s.metrics.checkFaults.Inc()
		report(f)
	}
	isStopped := func() error {
		if s.views.closing.Load() {
			return ErrClosed
		}
		return ctx.Err()
	}
	v := s.options.verifier(s.directory)
	tables, err := v.listTables(s.db)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := isStopped(); err != nil {
			return err
		}
		err := v.checkTable(t.name, true)
		if err != nil && !oserror.IsNotExist(err) { // a compaction has replaced it meanwhile
			found(Fault{File: v.fs.PathJoin(v.store, t.name), What: err.Error()})
		}
	}
	reached := s.marksWriter.reached() // before the view, which therefore has these sequences
	view, err := s.views.open()
	if err != nil {
		return err
	}
	defer view.Close()
	r := &rowChecker{reader: view.shared.snapshot, partitions: s.Partitions(), store: v.store, marks: reached, isStopped: isStopped, report: found}
	return r.check()
}

// Repair opens a journal, compares its rows, mends the faults that can be mended without inventing anything, and reports all of them. The
// mended rows are durable when it returns. Its errors include the errors of Open: a journal with damaged files is not opened.
func Repair(ctx context.Context, o Options, report func(Fault)) error {
	s, err := Open(o)
	if errors.Is(err, ErrDamaged) {
		// The feed may lack the last rows only, and then Open would take the journal for a shortened one.
		lost := false
		if checkErr := Check(ctx, o, func(f Fault) { lost = lost || f.Repair == "" }, nil); checkErr != nil || lost {
			return errors.Join(err, checkErr)
		}
		o.mayLackFeed = true
		s, err = Open(o)
	}
	if err != nil {
		return err
	}
	mended := s.db.NewBatch()
	var faults []Fault
	r := &rowChecker{reader: s.db, partitions: s.Partitions(), store: s.disk.store, isStopped: ctx.Err, repairs: mended,
		report: func(f Fault) { faults = append(faults, f) }}
	err = r.check()
	if err == nil && !mended.Empty() {
		err = s.db.Apply(mended, pebble.Sync)
	}
	err = errors.Join(err, mended.Close(), s.Close())
	if err == nil {
		for _, f := range faults {
			report(f)
		}
	}
	return err
}
