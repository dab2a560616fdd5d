package actors

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

func TestTallies(t *testing.T) {
	author := func(i int) *activityv1.Author {
		return &activityv1.Author{Actor: fmt.Sprint("mirror:", i), UserId: fmt.Sprint("usr_", i)}
	}
	seen := func(path, by int) string { return activity.SeenValue("ws_1", fmt.Sprint("d/", path), author(by)) }
	totals := func(path, by int) *activityv1.Totals {
		return &activityv1.Totals{Author: author(by), FirstAt: 1, LastAt: int64(path), ReadCount: uint64(by), WriteCount: 3,
			LastWriteAt: 4, MarkedAt: 5, RecencyAt: 6}
	}
	expect := func(t *testing.T, cached *tallies, path, by int, want bool) {
		t.Helper()
		got, ok := cached.find(seen(path, by))
		if ok != want || ok && !proto.Equal(got, totals(path, by)) {
			t.Errorf("author %d on path %d: %v, %v", by, path, got, ok)
		}
	}
	t.Run("totals of the last two generations are cached", func(t *testing.T) {
		cached := tallies{prefix: len(activity.Prefix("ws_1"))}
		for i := range 2*tallyGeneration + 1 {
			cached.put(seen(i, i%3), totals(i, i%3))
		}
		expect(t, &cached, 2*tallyGeneration, 2*tallyGeneration%3, true)
		expect(t, &cached, tallyGeneration, tallyGeneration%3, true)
		expect(t, &cached, tallyGeneration, (tallyGeneration+1)%3, false)
		expect(t, &cached, 0, 0, false)
		expect(t, &cached, tallyGeneration, 4, false)
	})
	t.Run("number of authors is bounded", func(t *testing.T) {
		cached := tallies{prefix: len(activity.Prefix("ws_1"))}
		for i := range tallyGeneration + 1 {
			cached.put(seen(0, i), totals(0, i))
		}
		expect(t, &cached, 0, tallyGeneration, true)
		expect(t, &cached, 0, 0, false)
		if len(cached.known) != 1 || len(cached.authors) != 1 {
			t.Errorf("%d authors are cached", len(cached.known))
		}
	})
}
