package local_test

import (
	"errors"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

func (d *drives) setFull(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

// TestFullDriveEndsProcesses verifies that processes end with a reason when the drive is full, also suspended ones, and that
// none is started until there is space again.
func TestFullDriveEndsProcesses(t *testing.T) {
	d, files := openHost(t, nil)
	c := provision(t, d, files, "ws_1")
	first := c.start(t, "echo ready; exec sleep 1000")
	second := c.start(t, "trap '' TERM; setsid sleep 1000 & echo ready; wait")
	first.expect(t, "ready")
	second.expect(t, "ready")
	files.setFull(entity.Errorf(entity.InsufficientStorage, "the drive is full"))
	for _, p := range []*attack{first, second} {
		if exit := p.wait(t); exit.Reason != computer.EndedDiskFull || exit.Status != 137 {
			t.Errorf("got %+v", exit)
		}
	}
	_, err := d.Start(t.Context(), "ws_1", c.spec("true"))
	if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.LimitReached {
		t.Errorf("Start on a full drive: %v", err)
	}
	files.setFull(errors.New("the disk does not answer"))
	_, err = d.Start(t.Context(), "ws_1", c.spec("true"))
	if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.Unavailable {
		t.Errorf("Start on a drive that cannot be measured: %v", err)
	}
	files.setFull(nil)
	if got := c.run(t, "echo again"); got != "again\n" {
		t.Errorf("got %q", got)
	}
}
