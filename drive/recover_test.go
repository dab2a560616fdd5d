package drive_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestRecoverAll verifies that a drive that cannot be recovered does not prevent the recovery of the drives after it.
func TestRecoverAll(t *testing.T) {
	activity := &drivetest.Activity{}
	drives := open(t, t.TempDir(), activity)
	var intend proto.Message = &activityv1.Intend{Intent: &activityv1.Intent{Id: "i1", Operation: &activityv1.Operation{
		Kind: activityv1.Kind_KIND_CREATE, Path: "a", EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Author: change.Author,
	}}}
	if _, err := activity.Ask(t.Context(), entity.Command{Kind: entity.KindActivity, Identity: workspace, Message: intend}); err != nil {
		t.Fatal(err)
	}
	var after []string
	pages := [][]string{{"../invalid", "ws_0"}, {workspace}, nil}
	drives.RecoverAll(t.Context(), func(last string, _ int) ([]string, error) {
		after = append(after, last)
		return pages[len(after)-1], nil
	})
	if want := []string{"", "ws_0", workspace}; !slices.Equal(after, want) {
		t.Errorf("pages after %q, want %q", after, want)
	}
	if open := activity.Intents(); len(open) > 0 {
		t.Errorf("open intents: %v", open)
	}
}
