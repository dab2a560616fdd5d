package runner_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// runAs runs the turn of another session.
func (f *fixture) runAs(id string) error {
	f.t.Helper()
	at := session.Identity(runnertest.WorkspaceID, id)
	completion, err := f.runner.RunTurn(f.t.Context(), at, &sessionv1.TurnTask{TurnId: f.world.Session(id).GetTurn().GetId()})
	if err == nil {
		_, err = f.world.Ask(f.t.Context(), entity.Command{Kind: entity.KindSession, Identity: at, Principal: entity.Platform(), Message: completion})
	}
	return err
}

func TestTheLongestIdleAgentIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			if textOf(r) == "wait" {
				return waitForCancel(ctx, p, r)
			}
			return done, nil
		}}, func(o *runner.Options) { o.MaxAgents, o.MaxWorkspaceAgents = 2, 2 })
		defer f.end()
		for _, id := range []string{"ses_a", "ses_b"} {
			f.ask(id, &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "go"}})
			if err := f.runAs(id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		f.ask("ses_c", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "go"}})
		if err := f.runAs("ses_c"); err != nil {
			t.Fatal(err)
		}
		<-f.computers.Started()[0].Ended()
		select {
		case <-f.computers.Started()[1].Ended():
			t.Error("the agent of the later turn was evicted")
		default:
		}
	})
}

func TestNoRoomForAnotherAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, func(o *runner.Options) { o.MaxAgents = 1 })
		defer f.end()
		f.start("go", auto)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.mustRun()
		}()
		synctest.Wait()
		f.ask("ses_b", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "go"}})
		if err := f.runAs("ses_b"); err == nil || f.world.Session("ses_b").GetTurn().GetRunId() != "" {
			t.Errorf("the turn was taken: %v", err)
		}
		f.must(alice, &sessionv1.Interrupt{})
		<-ended
	})
}

// TestTurnsOfASessionShareAnAgent interrupts a turn while its agent starts, so that the next turn begins meanwhile.
func TestTurnsOfASessionShareAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
			time.Sleep(10 * time.Minute) // longer than an agent may be idle
			return done, nil
		}}, nil)
		defer f.end()
		starts := make(chan struct{})
		f.computers.Refuse = func() error {
			<-starts
			return nil
		}
		f.start("go", auto)
		var turns sync.WaitGroup
		turns.Go(f.mustRun)
		synctest.Wait()
		f.must(alice, &sessionv1.Interrupt{})
		f.send("next")
		turns.Go(f.mustRun)
		synctest.Wait()
		close(starts)
		turns.Wait()
		f.expect("input go", "terminal interrupted", "input next", "terminal complete")
		if n := len(f.computers.Started()); n != 1 {
			t.Errorf("%d agents were started", n)
		}
	})
}

// TestAWorkspaceLeavesRoomForOthers runs as many turns of a workspace as it may have.
func TestAWorkspaceLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, func(o *runner.Options) { o.MaxAgents = 4 })
		defer f.end()
		ids := []string{"ses_a", "ses_b"}
		var turns sync.WaitGroup
		for _, id := range append(ids, "ses_c") {
			f.ask(id, &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "go"}})
		}
		for _, id := range ids {
			turns.Go(func() { _ = f.runAs(id) })
			synctest.Wait()
		}
		if err := f.runAs("ses_c"); err == nil || f.world.Session("ses_c").GetTurn().GetRunId() != "" {
			t.Errorf("a third turn was taken: %v", err)
		}
		for _, id := range ids {
			f.ask(id, &sessionv1.Interrupt{})
		}
		turns.Wait()
		turns.Go(func() { _ = f.runAs("ses_c") })
		synctest.Wait()
		if f.world.Session("ses_c").GetTurn().GetRunId() == "" {
			t.Error("the turn waits although the others have ended")
		}
		f.ask("ses_c", &sessionv1.Interrupt{})
		turns.Wait()
	})
}

// TestAgentOfAnotherFolderEndsFirst moves the folder of a session while its agent waits for a permission. The agent ends before its
// successor starts, so that two never work at once, and use the memory of one session.
func TestAgentOfAnotherFolderEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			if n++; n == 1 {
				return askPermission(ctx, p, r)
			}
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun()
		f.must(alice, &sessionv1.MoveCwd{Cwd: "other", Expected: "src"})
		f.send("never mind")
		f.computers.Refuse = func() error {
			select {
			case <-f.computers.Started()[0].Ended():
			default:
				t.Error("the agent still runs")
			}
			return nil
		}
		f.mustRun()
		f.last(t, 1, "terminal complete")
		if n := len(f.computers.Started()); n != 2 {
			t.Errorf("%d agents were started", n)
		}
	})
}

// TestIdleAgentsRest checks that the computer knows which agents it may end, and that a turn gets none that it ends.
func TestIdleAgentsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		isFull, isEnding := false, false
		f := newFixture(t, &runnertest.Agent{
			Prompt: func(_ context.Context, p *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
				if p.IsResting() {
					t.Error("an agent that works may be ended")
				}
				return done, nil
			},
			Resume: func(p *runnertest.Process) error {
				switch {
				case isFull:
					return &entity.Error{Code: entity.Unavailable, Message: "no place"}
				case isEnding:
					return errors.New("the process ends")
				}
				return nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		first := f.computers.Started()[0]
		if !first.IsResting() {
			t.Error("an agent without a turn may not be ended")
		}

		isFull = true
		f.send("more")
		if err := f.run(t.Context()); err == nil || f.world.Session(sessionID).GetTurn().GetRunId() != "" || !first.IsResting() {
			t.Errorf("a turn without a place: %v", err)
		}
		isFull = false
		f.mustRun()
		if n := len(f.computers.Started()); n != 1 {
			t.Errorf("%d agents were started, want that the idle one is used", n)
		}

		isEnding = true
		f.send("again")
		f.mustRun()
		f.last(t, 2, "input again", "terminal complete")
		if n := len(f.computers.Started()); n != 2 {
			t.Errorf("%d agents were started, want a second one", n)
		}
	})
}

// TestIdleAgentsOfParticipantsWithoutAccess ends the access of the participant of one of two sessions.
func TestIdleAgentsOfParticipantsWithoutAccess(t *testing.T) {
	joined := func(f *fixture) { // bob is the participant since his message has joined the turn
		f.startAs(alice)
		f.sendAs(bob, "on")
	}
	byClient := func(f *fixture) { f.startAs(client) }
	byApp := func(f *fixture) { f.startAs(ofApp) }
	byKey := func(f *fixture) { f.startAs(limitedKey) }
	for name, c := range map[string]struct {
		start func(*fixture)
		lose  func(*runnertest.World)
		ends  bool
	}{
		"removed":                      {byClient, accessLosses["removed"].lose, true},
		"demoted":                      {byClient, accessLosses["demoted"].lose, true},
		"disabled":                     {byClient, accessLosses["disabled"].lose, true},
		"revoked":                      {byClient, accessLosses["revoked"].lose, true},
		"key revoked":                  {byKey, accessLosses["key revoked"].lose, true},
		"key expired":                  {byKey, accessLosses["key expired"].lose, true},
		"app unregistered":             {byApp, accessLosses["app unregistered"].lose, true},
		"app with fewer scopes":        {byApp, accessLosses["app with fewer scopes"].lose, true},
		"the member who joined":        {joined, func(w *runnertest.World) { w.Refuse("bob", errNotFound) }, true},
		"the creator, after he joined": {joined, accessLosses["disabled"].lose, false},
		"the check fails": {byClient, func(w *runnertest.World) {
			w.Refuse("alice", entity.Errorf(entity.Unavailable, "the workspace moves"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: sayNothing}, nil)
				defer f.end()
				c.start(f)
				f.mustRun()
				f.ask("ses_b", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "go"}})
				if err := f.runAs("ses_b"); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				c.lose(f.world)
				<-f.computers.Started()[0].Ended()
				if took := time.Since(began); took < time.Minute != c.ends {
					t.Errorf("the agent ended after %s", took)
				}
				<-f.computers.Started()[1].Ended()
				if took := time.Since(began); took < 5*time.Minute || took > 6*time.Minute {
					t.Errorf("the agent of the other session ended after %s", took)
				}
			})
		})
	}
}
