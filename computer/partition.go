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
	ids, err := s.partition.Owners(entitycomputer.PresentList, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]*computerv1.Present, 0, len(ids))
	for _, id := range ids {
		found, err := s.Find(id)
		if err != nil {
			return nil, err
		}
		if found == nil { // released since Owners has read its row; the page must not lose its last id
			found = &computerv1.Present{WorkspaceId: id}
		}
		all = append(all, found)
	}
	return all, nil
}

// Find implements Share.
func (s share) Find(workspaceID string) (*computerv1.Present, error) {
	page, err := s.partition.Rows(workspaceID, &wirev1.List{Name: entitycomputer.PresentList, Limit: 1})
	if err != nil || len(page.GetRows()) == 0 {
		return nil, err
	}
	var found computerv1.Present
	return &found, proto.Unmarshal(page.GetRows()[0], &found)
}

// Occupied implements Share.
func (s share) Occupied(after string, limit int) ([]string, error) {
	return s.partition.Owners(entitycomputer.ProcessList, after, limit)
}

// Processes implements Share.
func (s share) Processes(workspaceID string) ([]*computerv1.Process, error) {
	page, err := s.partition.Rows(workspaceID, &wirev1.List{Name: entitycomputer.ProcessList, Limit: entitycomputer.MaxProcesses})
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
