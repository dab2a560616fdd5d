package actors

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

const (
	// expiryStep limits the rows that a search reads before it closes its view and removes the expired ones.
	expiryStep = 512
	// expiryRows limits the rows of an index that one search of a shard reads; the next search continues there. The cost of a
	// search is limited, however many rows there are; if there are more, rows stay longer than their retention.
	expiryRows = 1 << 16
)

// Progress is the durable progress of a partition's reactor.
type Progress struct {
	// Cursor is a sequence: the reactions to every event up to it are done or parked.
	Cursor uint64
	// Parked has the streams with suspended reactions.
	Parked map[string]bool
}

// Progress returns the durable progress of the reactor of a partition. It returns the journal's errors.
func (s *System) Progress(p persistence.Partition) (Progress, error) {
	v, err := s.journal.View()
	if err != nil {
		return Progress{}, err
	}
	defer v.Close()
	cursor, err := readCursor(v, p)
	if err != nil {
		return Progress{}, err
	}
	rows, err := readParked(v, p)
	progress := Progress{Cursor: cursor, Parked: map[string]bool{}}
	for _, row := range rows {
		progress.Parked[row.GetStream()] = true
	}
	return progress, err
}

// Expire removes the expired rows of every partition that this system owns: marks of reactions to events before their reactor's
// cursor, unless the source is parked, and replies of commands with an id that are older than their kind's retention. Shards do
// the same every Options.ExpireEvery.
func (s *System) Expire(ctx context.Context) error {
	for p := range s.terms {
		t := s.terms[p].Load()
		if t == nil {
			continue
		}
		x := newExpiry(s, t.partition, t.epoch, math.MaxInt)
		if err := x.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startExpiry removes expired rows periodically until the reactor stops. The first pause differs between partitions, so that
// they take turns.
func (r *reactor) startExpiry() {
	x := newExpiry(r.system, r.term.partition, r.term.epoch, expiryRows)
	running, every := r.running, r.system.expireEvery
	r.system.launchLane(func() {
		pause := every + every*time.Duration(x.partition)/time.Duration(len(x.system.terms))
		for ; retry.Pause(running, pause); pause = every {
			if err := x.run(running); err != nil && running.Err() == nil {
				x.system.log.Warn("cannot remove expired rows; trying again with the next search", slog.Int("partition", int(x.partition)), slog.Any("error", err))
			}
		}
	})
}

// An expiry removes the expired rows of a partition.
type expiry struct {
	system    *System
	partition persistence.Partition
	epoch     uint64
	// rows limits the rows of each index that a search reads. after has, by index, the value after which the next search
	// continues.
	rows  int
	after map[string]string
}

func newExpiry(system *System, p persistence.Partition, epoch uint64, rows int) *expiry {
	return &expiry{system: system, partition: p, epoch: epoch, rows: rows, after: map[string]string{}}
}

func (x *expiry) run(ctx context.Context) error {
	sources := map[persistence.Partition]Progress{}
	err := x.remove(ctx, markIndex, func(row persistence.Entry) (bool, error) { return x.markExpired(ctx, sources, row) })
	if err != nil {
		return err
	}
	now := x.system.clock()
	return x.remove(ctx, commandIndex, func(row persistence.Entry) (bool, error) {
		var reply wirev1.Reply
		return proto.Unmarshal(row.Data, &reply) != nil || reply.GetAt() < now.Add(-x.retention(row.Value)).UnixMilli(), nil
	})
}

// retention returns how long the replies of a stream are stored. value is the value of a row in commandIndex.
func (x *expiry) retention(value string) time.Duration {
	kind, _, _ := strings.Cut(value, "/")
	if k := x.system.kinds[kind]; k != nil {
		return k.Retention
	}
	return entity.CommandRetention
}

// markExpired reports whether a mark can be removed because its command will not be sent again. sources caches the progress of
// each source partition for one search.
func (x *expiry) markExpired(ctx context.Context, sources map[persistence.Partition]Progress, row persistence.Entry) (bool, error) {
	var m journalv1.Mark
	if err := proto.Unmarshal(row.Data, &m); err != nil {
		return false, err
	}
	p := persistence.Partition(m.GetPartition())
	progress, ok := sources[p]
	if !ok {
		var err error
		if progress, err = x.system.progress(ctx, p); err != nil {
			return false, err
		}
		sources[p] = progress
	}
	_, source, _ := strings.Cut(row.Value, "\x00")
	return m.GetSequence() <= progress.Cursor && !progress.Parked[source], nil
}

// remove removes the expired rows of an index, expiryStep rows at a time.
func (x *expiry) remove(ctx context.Context, index string, expired func(persistence.Entry) (bool, error)) error {
	for read := 0; read < x.rows; read += expiryStep {
		gone, last, err := x.find(index, x.after[index], expired)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			if err := x.store(ctx, gone); err != nil {
				return err
			}
		}
		x.after[index] = last
		if last == "" || ctx.Err() != nil {
			break
		}
	}
	return ctx.Err()
}

// find reads up to expiryStep rows after a value, and returns the changes that remove the expired ones. last is the value after
// which the next call continues, or "" at the end.
func (x *expiry) find(index, after string, expired func(persistence.Entry) (bool, error)) (gone []persistence.Change, last string, err error) {
	v, err := x.system.journal.View()
	if err != nil {
		return nil, "", err
	}
	defer v.Close()
	rows := 0
	for row, err := range v.Index(x.partition, persistence.Query{Index: index, Prefix: true, After: after}) {
		if err != nil {
			return nil, "", err
		}
		if rows >= expiryStep && row.Value != last {
			return gone, last, nil
		}
		is, err := expired(row)
		if err != nil {
			return nil, "", err
		}
		if is {
			gone = append(gone, persistence.Change{
				Entry: persistence.Entry{Index: index, Value: row.Value, Order: row.Order}, Remove: true,
			})
		}
		last = row.Value
		rows++
	}
	return gone, "", nil
}

// store removes rows and returns when the removal is durable, so that a search has at most one proposal in flight.
func (x *expiry) store(ctx context.Context, gone []persistence.Change) error {
	done := make(chan error, 1)
	x.system.journal.Append(persistence.Proposal{
		Partition: x.partition, Stream: putStream, Epoch: x.epoch, Entries: gone,
	}, func(result persistence.Result) { done <- result.Err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
