package activity_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// found returns the rows under a value of an index in the entries of a decision, and the number of these entries.
func found(t *testing.T, d *activity.Decision, index, value string) (rows []activity.Posting, entries int) {
	t.Helper()
	for _, e := range d.Entries {
		if e.Index != index || e.Value != value {
			continue
		}
		entries++
		var err error
		if rows, err = activity.AppendPostings(rows, e.Order, e.Data); err != nil {
			t.Fatal(err)
		}
	}
	return rows, entries
}

func TestRowsShareAnEntry(t *testing.T) {
	const n = activity.MaxRun + 10
	m := newModel()
	var want []activity.Posting
	ops := make([]*activityv1.Operation, n)
	for i := range ops {
		ops[i] = &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: fmt.Sprintf("d/e/%d", i), Author: author}
		if i%5 == 0 { // both paths of the rename are below the folder
			ops[i].Kind, ops[i].FromPath = activityv1.Kind_KIND_RENAME, fmt.Sprintf("d/f/%d", i)
		}
		want = append(want, activity.Posting{Seq: uint64(i + 1), Kind: ops[i].GetKind()})
	}
	m.must(t, &activityv1.Record{Operations: ops})
	m.now = m.now.Add(time.Second)
	d, err := m.decide(&activityv1.WriteIndexes{})
	if err != nil {
		t.Fatal(err)
	}
	if got, entries := found(t, d, activity.Below, activity.PathValue("ws_1", "d")); entries != 2 || !slices.Equal(got, want) {
		t.Errorf("the folder has %d rows in %d entries, want %d in 2: %v", len(got), entries, n, got)
	}
	if got, entries := found(t, d, activity.ByPath, activity.PathValue("ws_1", "d/f/5")); entries != 1 || !slices.Equal(got, want[5:6]) {
		t.Errorf("the old path of the rename has %v", got)
	}
}

func TestAppendPostings(t *testing.T) {
	write, read := activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_READ
	for name, c := range map[string]struct {
		data []byte
		want []activity.Posting
	}{
		"one_row_as_before_there_were_runs": {[]byte{byte(write)}, []activity.Posting{{Seq: 7, Kind: write}}},
		"three_rows": {[]byte{byte(write), 1, byte(read), 0x80, 1, byte(write)},
			[]activity.Posting{{Seq: 7, Kind: write}, {Seq: 8, Kind: read}, {Seq: 136, Kind: write}}},
		"no_data":             {nil, nil},
		"no_kind":             {[]byte{byte(write), 1}, nil},
		"no_end_of_a_number":  {[]byte{byte(write), 0x80}, nil},
		"the_same_row_again":  {[]byte{byte(write), 0, byte(write)}, nil},
		"seq_runs_over_64bit": {append([]byte{byte(write)}, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, byte(read)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := activity.AppendPostings(nil, 7, c.data)
			if c.want == nil {
				if err == nil {
					t.Errorf("parsed as %v", got)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v, not %v", got, err, c.want)
			}
		})
	}
}
