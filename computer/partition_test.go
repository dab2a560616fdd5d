package computer_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// fakePartition has a list with the workspaces of owners. Only workspaces in rows still have a row.
type fakePartition struct {
	owners []string
	rows   map[string][]byte
	err    error
}

func (p *fakePartition) Active(kind string) []string { return []string{kind} }

func (p *fakePartition) Owners(_, after string, limit int) ([]string, error) {
	found := p.owners[:0:0]
	for _, id := range p.owners {
		if id > after && len(found) < limit {
			found = append(found, id)
		}
	}
	return found, p.err
}

func (p *fakePartition) Rows(owner string, _ *wirev1.List) (*wirev1.Page, error) {
	page := &wirev1.Page{}
	if row, ok := p.rows[owner]; ok {
		page.Rows = [][]byte{row}
	}
	return page, p.err
}

func TestShareOfPartition(t *testing.T) {
	row, err := proto.Marshal(&computerv1.Present{WorkspaceId: "ws_1", Missed: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePartition{owners: []string{"ws_1", "ws_2"}, rows: map[string][]byte{"ws_1": row}}
	s := computer.NewShare(p)
	if got := s.Running(); !slices.Equal(got, []string{"workspace"}) {
		t.Errorf("running: %v", got)
	}
	all, err := s.Present("", 10)
	if err != nil || len(all) != 2 || !all[0].GetMissed() || all[1].GetWorkspaceId() != "ws_2" {
		t.Errorf("a computer that was released in between: %v, %v", all, err)
	}
	if all, err := s.Present("ws_1", 1); err != nil || len(all) != 1 || all[0].GetWorkspaceId() != "ws_2" {
		t.Errorf("second page: %v, %v", all, err)
	}
	if found, err := s.Find("ws_2"); found != nil || err != nil {
		t.Errorf("no computer: %v, %v", found, err)
	}
	p.rows["ws_2"] = []byte{0xff}
	if _, err := s.Find("ws_2"); err == nil {
		t.Error("a damaged row is no error")
	}
	p.err = errors.New("the journal is closed")
	if _, err := s.Present("", 10); !errors.Is(err, p.err) {
		t.Errorf("error of the partition: %v", err)
	}
}
