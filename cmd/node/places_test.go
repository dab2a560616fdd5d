package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// TestProcessesWithFewDescriptors runs a node with the usual limit of open files of a shell. One workspace gets most places and not all,
// and its idle agents block no new agent.
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

// holding is the script of an agent that uses 55 MB of memory, and 80 MB more when it has read a line.
const holding = `x=$(head -c 55000000 /dev/zero | tr '\0' x); echo held; read y; head -c 80000000 /dev/zero >/tmp/more; echo more; read y`

// TestIdleAgentsFreeMemory starts an agent, and lets another agent grow, beside idle agents in a computer that has not enough memory for
// all agents.
func TestIdleAgentsFreeMemory(t *testing.T) {
	h := newComputerHome(t, func(o *Options) { o.Computers.Limits.MemoryBytes = 288 << 20 })
	if _, most, err := h.driver.Memory(t.Context(), ws); err != nil {
		t.Fatal(err)
	} else if h.launch(agentOf("ses_1", "", "true")); most > 0 {
		t.Errorf("a computer that does not run has %d bytes", most)
	}
	start := func(session string) *computer.Running {
		r := h.launch(agentOf(session, "", holding))
		expectLine(t, r, "held")
		return r
	}
	isEnded := func(r *computer.Running) bool {
		select {
		case <-r.Ended():
			return true
		default:
			return false
		}
	}
	first, second := start("ses_1"), start("ses_2")
	used, most, err := h.driver.Memory(t.Context(), ws)
	h.check(err)
	if most == 0 {
		testmachine.Lacks(t, "this machine cannot limit the memory of computers")
	}
	t.Logf("two agents use %d of %d", used, most)
	first.Rest()
	second.Rest()
	if err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	third := start("ses_3")
	third.Rest()
	working := start("ses_4")
	awaitEnd(t, first)
	if isEnded(second) || isEnded(working) {
		t.Error("an agent that works has ended")
	}
	_, err = working.Streams().Stdin.Write([]byte("\n"))
	h.check(err)
	expectLine(t, working, "more")
	awaitEnd(t, third)
	if isEnded(second) || isEnded(working) {
		t.Error("an agent that works has ended")
	}
}

// awaitEnd waits for the end of a process.
func awaitEnd(t *testing.T, r *computer.Running) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := r.Wait(ctx); err != nil {
		t.Fatalf("a process has not ended: %v", err)
	}
}

// expectLine reads a line of the output of a process.
func expectLine(t *testing.T, r *computer.Running, want string) {
	t.Helper()
	b := make([]byte, len(want)+1)
	if _, err := io.ReadFull(r.Streams().Stdout, b); err != nil || string(b) != want+"\n" {
		t.Fatalf("got %q, %v, want %q", b, err, want)
	}
}

// TestTurnNamesMissingMemory runs a command of a session that needs more memory than its computer has.
func TestTurnNamesMissingMemory(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.Computers.Limits.MemoryBytes = 128 << 20 })
	if _, most, err := s.driver.Memory(t.Context(), s.workspaceID); err != nil || most == 0 {
		testmachine.Lacks(t, fmt.Sprintf("this machine cannot limit the memory of computers: %v", err))
	}
	line := s.follow(s.startSession("$ tail -n 1 /dev/zero\nsay Never.", nil))
	if end := line.awaitTerminal(); end.String() != "terminal interrupted out_of_memory" {
		t.Errorf("the turn has ended with %s", end)
	}
	line = s.follow(s.startSession("$ exit 137", nil))
	if end := line.awaitTerminal(); end.String() != "terminal interrupted runbook_failed" {
		t.Errorf("the turn of a command with the status of a killed one has ended with %s", end)
	}
}
