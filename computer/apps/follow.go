package apps

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/retry"
)

const (
	// watchTimeout limits one query that waits for a change of the app. After it, follow repeats the query.
	watchTimeout = 5 * time.Minute
	// askTimeout limits one command to the app.
	askTimeout = 10 * time.Second
)

// A configuration is a numbered configuration that is to run.
type configuration struct {
	generation uint64
	runtime    *appv1.Runtime
	// isRequested is set if the generation is to be reconciled, and not if it was accepted before.
	isRequested  bool
	path, userID string
}

// wanted returns the configuration that is to run; nil if no configuration is to run.
func wanted(a *appv1.App) *configuration {
	c := &configuration{path: a.GetPath(), userID: a.GetCreatedByUserId()}
	switch {
	case a.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING && a.GetRequested() != nil:
		c.generation, c.runtime, c.isRequested = a.GetGeneration(), a.GetRequested(), true
	case a.GetAccepted() != nil:
		c.generation, c.runtime = a.GetAcceptedGeneration(), a.GetAccepted()
	default:
		return nil
	}
	return c
}

// following has the pauses before a query for changes that has failed is repeated.
var following = retry.Policy{First: time.Second, Longest: time.Second}

// follow sends the state of the app after each change, until ctx ends.
func (l *loop) follow(ctx context.Context, news chan<- *appv1.App) {
	revision := uint64(0)
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, watchTimeout)
		described, err := entity.ReplyAs[*appv1.Description](l.s.ask(asking, l.identity, &appv1.AwaitRuntime{Revision: revision}))
		cancel()
		if err != nil {
			retry.Pause(ctx, following.After(1)) // the query has reached its deadline, or the partition is moving
			continue
		}
		revision = described.GetApp().GetRevision()
		select {
		case news <- described.GetApp():
		case <-ctx.Done():
		}
	}
}

// report sends a report until the app has answered it. A refusal is no failure: the app refuses a report that its state has overtaken.
func (l *loop) report(ctx context.Context, m proto.Message) {
	_ = entity.AskUntilAnswered(ctx, func() error {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, err := l.s.ask(asking, l.identity, m)
		if err != nil && !entity.IsRefusal(err) && ctx.Err() == nil {
			l.s.o.Log.Warn("cannot report to an app; retrying", slog.String("app", l.identity), slog.Any("error", err))
		}
		return err
	})
}

// excerpt returns the beginning of a text that the entity of an app stores.
func excerpt(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	return string(runes[:min(len(runes), app.MaxReason)])
}
