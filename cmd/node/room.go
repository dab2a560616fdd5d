package node

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/volume"
)

// room limits the bytes that each workspace has in the journal (persistence.Journal.WorkspaceBytes), in steps:
//
//   - At the limit, commands are refused for which kinds.IsLimited returns true. The room of requests that are in flight is not reserved: together
//     they exceed the limit by no more than the journal's queue holds.
//   - The commands are also refused before the limit, when the disk is nearly full and the payer has the share (package quota).
//   - What the platform records of things that have happened is never refused. An eighth beyond the limit, it therefore permits nothing that
//     makes it record more: processes end and none start, and files cannot be read (drive.Options.Room).
type room struct {
	journal   *persistence.Store
	partition func(identity string) persistence.Partition
	// limit is the number of bytes; 0: there is no limit.
	limit   uint64
	refused prometheus.Counter
	// checkShare returns InsufficientStorage if a workspace may not write so many bytes, because the disk is nearly full: Drives.CheckJournal.
	checkShare func(workspaceID string, size int) error
}

func (n *Node) newRoom(o Options) (*room, error) {
	disk, err := volume.Measure(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &room{
		journal: n.Journal, partition: n.Router.Partition, limit: min(o.WorkspaceJournal, disk.TotalBytes/4),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_journal_workspace_refused_total",
			Help: "Commands, processes and reads that were refused because their workspace has no room in the journal.",
		}),
	}
	o.Registry.MustRegister(r.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atelier_journal_workspace_limit_bytes", Help: "Bytes that each workspace may have in the journal. 0: no limit.",
	}, func() float64 { return float64(r.limit) }))
	return r, nil
}

// admit returns InsufficientStorage if a command is refused.
func (r *room) admit(c entity.Command) error {
	if !kinds.IsLimited(c) {
		return nil
	}
	workspaceID, _, _ := strings.Cut(c.Identity, "/")
	used, size := r.used(workspaceID), proto.Size(c.Message)
	if used == 0 { // an identity that is no workspace's
		return nil
	}
	if r.limit > 0 {
		if err := r.check(used+uint64(size), r.limit); err != nil {
			return err
		}
	}
	return r.checkShare(workspaceID, size)
}

// checkDrive returns InsufficientStorage if neither processes may run on the drive of a workspace, nor files be read.
func (r *room) checkDrive(workspaceID string) error {
	if r.limit == 0 {
		return nil
	}
	return r.check(r.used(workspaceID), r.limit+r.limit/8)
}

// used returns the bytes that a workspace has in the journal.
func (r *room) used(workspaceID string) uint64 {
	return r.journal.WorkspaceBytes(r.partition(workspaceID), workspaceID)
}

// check returns InsufficientStorage if the bytes of a workspace exceed a limit.
func (r *room) check(bytes, limit uint64) error {
	if bytes <= limit {
		return nil
	}
	r.refused.Inc()
	return entity.Errorf(entity.InsufficientStorage, "what the server stores of this workspace beside its files has reached %d bytes; "+
		"delete sessions, or tell the operator of the server", r.limit)
}
