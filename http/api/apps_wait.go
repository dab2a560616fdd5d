package api

import (
	"context"
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

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
func waitForChange[In any](a apps, status int, decode func(*server.Call) (In, error), submit func(*server.Call, In) (appservice.Change, error)) server.Handler {
	return func(c *server.Call) error {
		return c.RunLong(func(ctx context.Context) error {
			made, err := submitChange(ctx, c, decode, submit)
			if err != nil {
				return err
			}
			c.AwaitAnswer()
			found, err := a.awaitChange(ctx, c, made)
			if refused := server.Refusal(ctx); refused != nil {
				return refused
			}
			if err != nil {
				return err
			}
			if made.HasFailed(found.GetApp()) {
				c.Response.WriteJSON(http.StatusBadGateway, reconcileFailure{
					entity.ReconcileFailed, "the computer of the workspace did not accept the configuration",
					found.GetApp().GetReconciliationError(), a.view(c, found),
				})
				return nil
			}
			if made.HasReplacedKey(found.GetApp()) {
				c.EndCredential(made.AppID) // the process that was replaced had another key
			}
			c.Response.WriteJSON(status, appAnswer{a.view(c, found)})
			return nil
		})
	}
}

func submitChange[In any](
	ctx context.Context, c *server.Call, decode func(*server.Call) (In, error), submit func(*server.Call, In) (appservice.Change, error),
) (appservice.Change, error) {
	return server.Submit(ctx, c, func(c *server.Call) (appservice.Change, error) {
		in, err := decode(c)
		if err != nil {
			return appservice.Change{}, c.Withhold(err)
		}
		return submit(c, in)
	})
}

// awaitChange waits for the result of a change, for WaitTime, and describes the app. The description has RequestTime after the wait.
func (a apps) awaitChange(ctx context.Context, c *server.Call, made appservice.Change) (*appv1.Description, error) {
	limited, cancel := context.WithTimeout(ctx, a.WaitTime+c.RequestTime())
	defer cancel()
	waiting, end := c.Waiting(limited, a.WaitTime)
	defer end()
	return a.request(c).Await(limited, waiting, made)
}
