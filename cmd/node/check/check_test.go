package check

import (
	"fmt"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

// TestRepairInParts commits more changes than fit into one proposal, on a disk that is nearly full.
func TestRepairInParts(t *testing.T) {
	journal, err := persistence.Open(persistence.Options{Dir: t.TempDir(), Partitions: 1, CacheBytes: 4 << 20, MinFreeBytes: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	data := make([]byte, 700<<10)
	var changes []persistence.Change
	for i := range 20 {
		changes = append(changes, persistence.Change{Entry: persistence.Entry{Index: "rows", Value: fmt.Sprint(i), Data: data}})
	}
	if err := commitChanges(journal, 0, 1, changes); err != nil {
		t.Fatal(err)
	}
	v, err := journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	rows := 0
	for _, err := range v.Index(0, persistence.Query{Index: "rows", Prefix: true}) {
		if err != nil {
			t.Fatal(err)
		}
		rows++
	}
	if rows != len(changes) {
		t.Errorf("%d of %d rows", rows, len(changes))
	}
}
