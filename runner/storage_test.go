package runner_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// TestTurnWithoutRoomInTheJournal refuses what a turn stores, while its agent works or at its end. The turn ends with the reason, its agent
// ends, and nothing is repeated.
func TestTurnWithoutRoomInTheJournal(t *testing.T) {
	says := func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
		p.Say(ctx, r, "working")
		return done, nil
	}
	rows := func(c entity.Command) bool {
		r, is := c.Message.(*sessionv1.RecordRows)
		return is && len(r.GetRows()) > 0
	}
	for name, prompt := range map[string]func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error){
		"while the agent works": waitForCancel, "at the end": says,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: prompt}, nil)
				defer f.end()
				f.start("go", auto)
				refused := 0
				f.world.Intercept(func(c entity.Command) error {
					if rows(c) {
						refused++
						return entity.Errorf(entity.InsufficientStorage, "there is no room")
					}
					return nil
				})
				f.mustRun()
				f.expect("input go", "terminal interrupted insufficient_storage")
				if refused != 1 {
					t.Errorf("%d commands were refused", refused)
				}
				<-f.computers.Started()[0].Ended()
			})
		})
	}
}
