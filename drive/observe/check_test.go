package observe

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// TestCheckedEntries follows rows about folders, for one workspace after the other. At the end of the rows of a workspace, nothing of its
// drive is in memory.
func TestCheckedEntries(t *testing.T) {
	dir := t.TempDir()
	var missing []string
	c := NewChecker(dir, func(path, _ string) { missing = append(missing, strings.TrimPrefix(path, dir+"/")) })
	for _, id := range []string{workspace, "ws_other"} {
		if err := os.MkdirAll(filepath.Join(dir, id, "files"), 0o700); err != nil {
			t.Fatal(err)
		}
		c.AddState(entity.KindComputer, id, &computerv1.Computer{Status: computerv1.Status_STATUS_ACTIVE})
	}
	c.AddRow("ws_without_a_computer", activity.Row{Operation: &activityv1.Operation{Kind: activityv1.Kind_KIND_CREATE, Path: "a"}})
	if err := c.EndRows(t.Context(), "ws_without_a_computer"); err != nil || len(missing) > 0 {
		t.Errorf("%v, %v", missing, err)
	}
	for _, op := range []*activityv1.Operation{
		{Kind: activityv1.Kind_KIND_CREATE, Path: "a"}, {Kind: activityv1.Kind_KIND_WRITE, Path: "a/b/c"}, {Kind: activityv1.Kind_KIND_WRITE, Path: "d"},
		{Kind: activityv1.Kind_KIND_RENAME, FromPath: "a/b", Path: "e"}, {Kind: activityv1.Kind_KIND_DELETE, Path: "a"},
		{Kind: activityv1.Kind_KIND_RENAME, FromPath: "unknown", Path: "f"}, {Kind: activityv1.Kind_KIND_DELETE, Path: "unknown/x"},
		{Kind: activityv1.Kind_KIND_READ, Path: "r"},
	} {
		c.AddRow(workspace, activity.Row{Operation: op})
	}
	if c.entries.below["e"].below["c"] == nil {
		t.Error("the renamed folder has lost its entry")
	}
	err := c.EndRows(t.Context(), workspace)
	if err != nil || !slices.Equal(missing, []string{workspace + "/files/d", workspace + "/files/e", workspace + "/files/f"}) {
		t.Errorf("%v, %v", missing, err)
	}
	if c.entries != nil {
		t.Error("entries of the drive are still in memory")
	}
	missing = nil
	for _, op := range []*activityv1.Operation{{Kind: activityv1.Kind_KIND_WRITE, Path: "d"}, {Kind: activityv1.Kind_KIND_RESTORE}} {
		c.AddRow("ws_other", activity.Row{Operation: op})
	}
	if err := c.EndRows(t.Context(), "ws_other"); err != nil || len(missing) > 0 {
		t.Errorf("a restored drive is compared with the rows before: %v, %v", missing, err)
	}
}
