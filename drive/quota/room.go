package quota

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
)

// Room limits the bytes that each workspace has in the journal, in steps:
//
//   - At the limit, commands are refused for which kinds.IsLimited returns true. The room of requests that are in flight is not reserved:
//     together they exceed the limit by no more than the journal's queue holds.
//   - The commands are also refused before the limit, when the disk is nearly full and the payer has the share.
//   - Records of the platform about things that have happened are never refused. An eighth beyond the limit, the platform therefore permits
//     nothing that makes it record more: processes end and none start, and files cannot be read (drive.Options.Room).
type Room struct {
	// Limit is the number of bytes; 0: there is no limit.
	Limit uint64
	// Used returns the bytes that a workspace has in the journal.
	Used func(workspaceID string) uint64
	// CheckShare returns InsufficientStorage if a workspace may not write so many bytes, because the disk is nearly full: CheckJournal of
	// a Limiter.
	CheckShare func(workspaceID string, size int) error

	refused prometheus.Counter
}

// NewRoom returns a Room with a limit. Its metrics are registered. The caller sets CheckShare before the first command.
func NewRoom(limit uint64, used func(workspaceID string) uint64, metrics prometheus.Registerer) *Room {
	r := &Room{
		Limit: limit, Used: used,
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_journal_workspace_refused_total",
			Help: "Commands, processes and reads that were refused because their workspace has no room in the journal.",
		}),
	}
	metrics.MustRegister(r.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atelier_journal_workspace_limit_bytes", Help: "Bytes that each workspace may have in the journal. 0: no limit.",
	}, func() float64 { return float64(r.Limit) }))
	return r
}

// Admit returns InsufficientStorage if a command is refused.
func (r *Room) Admit(c entity.Command) error {
	if !kinds.IsLimited(c) {
		return nil
	}
	workspaceID, _, _ := strings.Cut(c.Identity, "/")
	used, size := r.Used(workspaceID), proto.Size(c.Message)
	if used == 0 { // the identity is not of a workspace
		return nil
	}
	if r.Limit > 0 {
		if err := r.check(used+uint64(size), r.Limit); err != nil {
			return err
		}
	}
	return r.CheckShare(workspaceID, size)
}

// CheckDrive returns InsufficientStorage if neither processes may run on the drive of a workspace, nor files be read.
func (r *Room) CheckDrive(workspaceID string) error {
	if r.Limit == 0 {
		return nil
	}
	return r.check(r.Used(workspaceID), r.Limit+r.Limit/8)
}

// check returns InsufficientStorage if the bytes of a workspace exceed a limit.
func (r *Room) check(bytes, limit uint64) error {
	if bytes <= limit {
		return nil
	}
	r.refused.Inc()
	return entity.Errorf(entity.InsufficientStorage, "what the server stores of this workspace beside its files has reached %d bytes; "+
		"delete sessions, or tell the operator of the server", r.Limit)
}
