package bench

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// sayEvery is the interval between two texts of an agent. The runner passes each on at once, because it pauses for a shorter time.
const sayEvery = 250 * time.Millisecond

// talkers are scripted agents. Each says a text whenever its channel gets an element, until the benchmark ends.
type talkers struct {
	channels map[string]chan struct{}
	ready    sync.WaitGroup
	end      chan struct{}
}

func (t *talkers) prompt(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	t.ready.Done()
	for {
		select {
		case <-t.channels[p.Launch.SessionID]:
			p.Say(ctx, r, stamped())
		case <-t.end:
			return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
		case <-ctx.Done():
			return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
		}
	}
}

// BenchmarkSessionAgents lets the agents of 200 sessions say a text, four times a second each: scripted agents in this process,
// which the runner reads through pipes by the Agent Client Protocol. The texts arrive at one follower of each timeline. The variant
// pipe writes the same text to 200 pipes with a reader each.
func BenchmarkSessionAgents(b *testing.B) {
	store, _ := openJournal(b)
	t := &talkers{channels: map[string]chan struct{}{}, end: make(chan struct{})}
	t.ready.Add(deltaSessions)
	var turns *runner.Runner
	a := newSessionActors(b, store, time.Hour, func(router *cluster.Router) (string, actors.Executor) {
		turns = runner.New(runner.Options{
			Asker: router, Computers: &runnertest.Computers{Agent: &runnertest.Agent{Prompt: t.prompt}}, Builtin: []string{"agent"}, Version: "bench",
		})
		run := func(ctx context.Context, task actors.Task, m *sessionv1.TurnTask) (proto.Message, error) {
			return turns.RunTurn(ctx, task.Identity, m)
		}
		return session.TurnTask, actors.Executor{Limit: deltaSessions, Timeout: time.Hour, LongestPause: time.Second, Run: actors.RunTyped(run)}
	})
	b.Cleanup(turns.Close)
	a.found(rawWorkspace)
	var said, pipes delivery
	var writers [deltaSessions]*os.File
	var channels [deltaSessions]chan struct{}
	for i := range deltaSessions {
		channels[i] = make(chan struct{})
		t.channels[sessionID(i)] = channels[i]
		writers[i] = pipes.open(b)
	}
	for i := range deltaSessions {
		identity := session.Identity(rawWorkspace, sessionID(i))
		if _, err := a.start(identity); err != nil {
			b.Fatal(err)
		}
		follow(b, a.router, identity, &said)
	}
	b.Cleanup(func() { close(t.end) })
	t.ready.Wait()
	measureDeltas(b, sayEvery, []source{
		{"agent", func(i int) error { channels[i] <- struct{}{}; return nil }, &said},
		{"pipe", func(i int) error { _, err := writers[i].WriteString(stamped()); return err }, &pipes},
	})
}
