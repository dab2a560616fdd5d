package computer

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A Partition reads the entities and the lists of one partition, which this process owns.
type Partition interface {
	// Active returns the identities of a kind's entities that are in memory.
	Active(kind string) []string
	// Owners returns at most limit workspaces that have rows in a list, in the order of their ids, beginning after one id. An
	// empty result means that there are no more.
	Owners(list, after string, limit int) ([]string, error)
	// Rows returns a page of a workspace's list.
	Rows(owner string, asked *wirev1.List) (*wirev1.Page, error)
}

// NewShare returns the computers of a partition, by the rows of PresentList.
func NewShare(p Partition) Share { return share{p} }

type share struct{ partition Partition }

// Running implements Share.
func (s share) Running() []string { return s.partition.Active(entity.KindWorkspace) }

// Present implements Share.
func (s share) Present(after string, limit int) ([]*computerv1.Present, error) {
	return pageOf(s, entitycomputer.PresentList, after, limit, s.Find, func(id string) *computerv1.Present {
		return &computerv1.Present{WorkspaceId: id}
	})
}

// Find implements Share.
func (s share) Find(workspaceID string) (*computerv1.Present, error) {
	return readRow(s, workspaceID, entitycomputer.PresentList, new(computerv1.Present))
}

// Schedules implements Share.
func (s share) Schedules(after string, limit int) ([]*computerv1.ScheduleRow, error) {
	return pageOf(s, entitycomputer.ScheduleList, after, limit, s.Schedule, func(id string) *computerv1.ScheduleRow {
		return &computerv1.ScheduleRow{WorkspaceId: id}
	})
}

// Schedule implements Share.
func (s share) Schedule(workspaceID string) (*computerv1.ScheduleRow, error) {
	return readRow(s, workspaceID, entitycomputer.ScheduleList, new(computerv1.ScheduleRow))
}

// pageOf returns the rows of at most limit workspaces in a list. absent returns the row of a workspace that lost its row
// meanwhile: the page must not lose its last id.
func pageOf[Row proto.Message](s share, list, after string, limit int, find func(id string) (Row, error), absent func(id string) Row) ([]Row, error) {
	ids, err := s.partition.Owners(list, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]Row, 0, len(ids))
	for _, id := range ids {
		found, err := find(id)
		if err != nil {
			return nil, err
		}
		if !found.ProtoReflect().IsValid() {
			found = absent(id)
		}
		all = append(all, found)
	}
	return all, nil
}

// readRow returns the only row of a workspace in a list, decoded into row, or the nil pointer if there is none.
func readRow[Row proto.Message](s share, workspaceID, list string, row Row) (Row, error) {
	var none Row
	page, err := s.partition.Rows(workspaceID, &wirev1.List{Name: list, Limit: 1})
	if err != nil || len(page.GetRows()) == 0 {
		return none, err
	}
	return row, proto.Unmarshal(page.GetRows()[0], row)
}

// Occupied implements Share.
func (s share) Occupied(after string, limit int) ([]string, error) {
	return s.partition.Owners(entitycomputer.ProcessList, after, limit)
}

// Processes implements Share.
func (s share) Processes(workspaceID string) ([]*computerv1.Process, error) {
	const most = entitycomputer.MaxProcesses + entitycomputer.MaxSessionProcesses + entitycomputer.MaxAppProcesses
	page, err := s.partition.Rows(workspaceID, &wirev1.List{Name: entitycomputer.ProcessList, Limit: most})
	if err != nil {
		return nil, err
	}
	var all []*computerv1.Process
	for _, row := range page.GetRows() {
		p := &computerv1.Process{}
		if err := proto.Unmarshal(row, p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
