package api

import (
	"context"
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// change is a durable change of an app.
type change struct {
	appID string
	// await is the query that waits for its result; nil: the change needs no reconciliation.
	await *appv1.AwaitApp
}

// reconcileFailure is the response to a change that the computer has not accepted.
type reconcileFailure struct {
	Error   entity.Code `json:"error"`
	Message string      `json:"message"`
	Reason  string      `json:"reason"`
	App     appView     `json:"app"`
}

// waitForChange returns the handler of a request that waits for the result of a change. submit makes the change durable; it has the time
// of an ordinary request. The request counts as a stream, because it needs no more resources than one: the query that waits is held
// by the actor of the app. A client that disconnects ends only the query. The response to a configuration that the computer did not
// accept in time has the app, which is reconciling.
func waitForChange[In any](a apps, status int, decode func(*server.Call) (In, error), submit func(*server.Call, In) (change, error)) server.Handler {
	return func(c *server.Call) error {
		return c.RunLong(func(ctx context.Context) error {
			made, err := submitChange(ctx, c, decode, submit)
			if err != nil {
				return err
			}
			c.EndBody()
			found, err := a.awaitChange(ctx, c, made)
			if refused := server.Refusal(ctx); refused != nil {
				return refused
			}
			if err != nil {
				return err
			}
			if failed := found.GetApp(); made.await.GetGeneration() > 0 && failed.GetGeneration() == made.await.GetGeneration() &&
				failed.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_FAILED {
				c.Response.WriteJSON(http.StatusBadGateway, reconcileFailure{
					entity.ReconcileFailed, "the computer of the workspace did not accept the configuration", failed.GetReconciliationError(),
					a.view(c, found),
				})
				return nil
			}
			c.Response.WriteJSON(status, appAnswer{a.view(c, found)})
			return nil
		})
	}
}

func submitChange[In any](
	ctx context.Context, c *server.Call, decode func(*server.Call) (In, error), submit func(*server.Call, In) (change, error),
) (change, error) {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTime())
	defer cancel()
	c = c.With(ctx)
	in, err := decode(c)
	if err != nil {
		return change{}, c.Withhold(err)
	}
	return submit(c, in)
}

// awaitChange waits for the result of a change, for WaitTime, and describes the app. Errors: those of the query, and of ctx.
func (a apps) awaitChange(ctx context.Context, c *server.Call, made change) (*appv1.Description, error) {
	if made.await != nil {
		waiting, cancel := context.WithTimeout(ctx, a.WaitTime)
		defer cancel()
		found, err := server.Ask[*appv1.Description](c.With(waiting), appCommand(c, made.appID, made.await))
		if err == nil {
			// The ports that the app does not use any more are free when the response arrives.
			return found, c.With(waiting).Settle(entity.KindApp, app.Identity(c.Workspace.ID, made.appID))
		}
		if ctx.Err() != nil || waiting.Err() == nil {
			return found, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.RequestTime())
	defer cancel()
	return describeApp(c.With(ctx), made.appID)
}
