package computer_test

import (
	"context"
	"testing"
)

// TestCloseNamesProcesses checks that the error of Close names the processes that do not end before the deadline, and no idle one.
func TestCloseNamesProcesses(t *testing.T) {
	w := provisioned(t)
	w.launch(launch)
	w.launch(launch)
	w.launch(agentOf("ses_1", "usr_1"))
	w.launch(agentOf("ses_2", "usr_1")).Rest()
	w.host.isStuck = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const want = "processes were cut off at the drain deadline: 2 commands, 1 agent of workspace ws_1"
	if err := w.fleet.Close(ctx); err == nil || err.Error() != want {
		t.Errorf("%v\nwant: %s", err, want)
	}
	if err := w.fleet.CutOff(); err != nil {
		t.Errorf("named again: %v", err)
	}
}
