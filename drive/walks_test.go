package drive

import (
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/entity"
)

func TestWalksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := make(walks, 1)
		leave, err := room.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := room.enter(t.Context()); err == nil || err.(*entity.Error).Code != entity.Unavailable {
			t.Errorf("one walk too many: %v", err)
		}
		leave()
		if _, err := room.enter(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
