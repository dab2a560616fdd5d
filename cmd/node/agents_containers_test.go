package node

import (
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/race"
)

// TestAgentsInContainers runs turns in computers of the docker driver with the product's own program. Containers have no
// network, so that every model and every tool of the platform is reached through the gateway. All tests use one engine: its start
// takes seconds.
func TestAgentsInContainers(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	place.Take(t)
	engine := dockertest.Start(t, "github.com/atelier-run/atelier/cmd/atelier")
	inContainers := func(o *Options) {
		o.Computers = ComputerOptions{Driver: DockerDriver, Engine: engine.Address, Image: dockertest.Image, Program: engine.Agent}
	}
	for _, one := range []struct {
		name string
		test func(*testing.T, ...func(*Options))
	}{
		{"model in mode confirm", func(t *testing.T, changes ...func(*Options)) {
			testModelsInModeConfirm(t, map[model.Wire]string{model.Chat: modelTiers[model.Chat]}, changes...)
		}},
		{"two sessions", testProcessesOfSessions},
		{"platform tools", testChildrenByRunbook},
		{"interrupt", testInterruptEndsCommands},
		{"lost container of a runbook", testComputerIsLostInATurn},
		{"lost container of a model", testComputerOfAModelIsLost},
		{"permission of a lost container", testPermissionOfALostAgent},
		{"reprovision", testReprovisionWaitsForSessions},
		{"stopped node", testTurnEndsWithItsNode},
		{"tokens of agents", testAgentsHideTheirTokens},
		{"tokens of strange agents", testTokensOfStrangeAgents},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, inContainers) })
	}
	t.Run("records of agents", func(t *testing.T) { testRecordsOfAgents(t, inContainers) })
	t.Run("engine that fails", func(t *testing.T) { testEngineFailsInATurn(t, engine, inContainers) })
	t.Run("container that is removed at once", func(t *testing.T) { testComputerIsLostAtOnce(t, inContainers) })
}

// testRecordsOfAgents writes as much to the folder for the records of agents as one of them does in a long session.
func testRecordsOfAgents(t *testing.T, inContainers func(*Options)) {
	s := newAgentSite(t, inContainers)
	line := s.follow(s.startSession("$ dd if=/dev/zero of=/var/tmp/records bs=1M count=200 2>/dev/null && echo written", nil))
	line.awaitTerminal()
	if tools := line.of("tool"); !strings.HasSuffix(tools[len(tools)-1], " completed written") {
		t.Errorf("the tools are %q", tools)
	}
}

// testEngineFailsInATurn kills the engine in the middle of a turn. Its processes end, and the session goes on when the engine is
// back.
func testEngineFailsInATurn(t *testing.T, engine *dockertest.Engine, inContainers func(*Options)) {
	s := newAgentSite(t, inContainers)
	long := s.duration()
	id := s.startSession("$ echo one >> log; exec sleep "+long+"\n$ echo two >> log\nsay After.", nil)
	line := s.follow(id)
	pids := s.awaitProcess(long)
	engine.Kill(t)
	if end := line.awaitTerminal(); end.String() != "terminal interrupted computer_lost" {
		t.Errorf("the turn has ended with %s", end)
	}
	s.awaitEnd(pids)
	engine.Run(t)
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Errorf("the second turn has ended with %s; the timeline: %s", end, strings.Join(line.order, "\n"))
	}
	if log := s.read("log"); log != "one\ntwo\n" {
		t.Errorf("the log is %q", log)
	}
}

// testComputerIsLostAtOnce removes the container of each of several turns as soon as it exists, while the agent starts in it. Every
// session completes.
func testComputerIsLostAtOnce(t *testing.T, inContainers func(*Options)) {
	s := newAgentSite(t, inContainers)
	for range 2 {
		s.removeContainers()
		id := s.startSession("say Done.", nil)
		s.until(func() bool { return s.removeContainers() > 0 })
		s.follow(id).awaitLine("terminal complete")
	}
}

// removeContainers has the engine remove the containers of the workspace, as its operator could, and returns their number.
func (s *agentSite) removeContainers() int {
	s.Helper()
	engine, err := client.New(client.WithHost(s.options.Computers.Engine))
	s.check(err)
	defer engine.Close()
	all, err := engine.ContainerList(s.Context(), client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", "run.atelier.workspace="+s.workspaceID),
	})
	s.check(err)
	for _, c := range all.Items {
		// It fails if the container is being removed.
		_, _ = engine.ContainerRemove(s.Context(), c.ID, client.ContainerRemoveOptions{Force: true})
	}
	return len(all.Items)
}
