package actors_test

import (
	"errors"
	"math"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestPositionAfterLastRow queries rows after a position that does not exist, as after the loss of a part of the history.
func TestPositionAfterLastRow(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.write("ws_1", 1, 3)
	ask := func(position uint64) map[string]error {
		page := func(message activityv1.Query) error {
			_, err := b.ask(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: person("usr_1"), Message: message})
			return err
		}
		_, subscribed := b.router.Subscribe(t.Context(), activity.Subscription{
			WorkspaceID: "ws_1", Principal: person("usr_1"), After: position, Send: func([]byte) error { return nil },
		})
		return map[string]error{
			"feed":       page(&activityv1.ReadFeed{Position: position}),
			"descending": page(&activityv1.ReadFeed{Position: position, Descending: true}),
			"history":    page(&activityv1.ReadHistory{Path: "a", After: position}),
			"stream":     subscribed,
		}
	}
	for _, position := range []uint64{0, 1, 3} {
		for what, err := range ask(position) {
			if err != nil {
				t.Errorf("%s from %d: %v", what, position, err)
			}
		}
	}
	for _, position := range []uint64{4, 1000, math.MaxInt64} {
		for what, err := range ask(position) {
			if refusal := (*entity.Error)(nil); !errors.As(err, &refusal) || refusal.Code != entity.InvalidCursor {
				t.Errorf("%s from %d: %v", what, position, err)
			}
		}
	}
}
