package node

import (
	"errors"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// TestProcessesWithFewDescriptors runs a node with the usual limit of open files of a shell. One workspace gets most places and not all,
// and its idle agents block nobody.
func TestProcessesWithFewDescriptors(t *testing.T) {
	h := newComputerHome(t, func(o *Options) { o.Descriptors = 1024 })
	var agents []*computer.Running
	for {
		l := agentOf("ses_1", "usr_7", "read x")
		if len(agents) == 0 {
			agents = append(agents, h.launch(l)) // or the test is skipped
			continue
		}
		r, err := h.Computers.Launch(t.Context(), l)
		if refused, is := errors.AsType[*entity.Error](err); is && refused.Code == entity.Unavailable && refused.RetryAfter > 0 {
			break
		}
		h.check(err)
		agents = append(agents, r)
	}
	if len(agents) < 16 {
		t.Errorf("one workspace alone may run %d processes", len(agents))
	}
	for _, r := range agents {
		r.Rest()
	}
	for range 2 * len(agents) {
		r := h.launch(agentOf("ses_3", "usr_7", "read x"))
		h.check(r.Streams().Stdin.Close())
		<-r.Ended()
	}
	for range agents {
		h.launch(agentOf("ses_3", "usr_7", "read x"))
	}
	ended := 0
	for _, r := range agents {
		select {
		case <-r.Ended():
			ended++
		default:
		}
	}
	if ended == 0 || ended == len(agents) {
		t.Errorf("%d of %d idle agents have ended, want only as many as are in the way", ended, len(agents))
	}
}
