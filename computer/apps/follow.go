package apps

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

const (
	// watchTimeout limits one query for a change of the app, which is then repeated.
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

// wanted returns the configuration that is to run; nil if there is none.
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

// follow sends the app whenever it has changed, until ctx ends.
func (l *loop) follow(ctx context.Context, news chan<- *appv1.App) {
	revision := uint64(0)
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, watchTimeout)
		described, err := entity.ReplyAs[*appv1.Description](l.s.ask(asking, l.identity, &appv1.AwaitRuntime{Revision: revision}))
		cancel()
		if err != nil {
			pause(ctx, time.Second) // the deadline of the query, or a partition that moves
			continue
		}
		revision = described.GetApp().GetRevision()
		select {
		case news <- described.GetApp():
		case <-ctx.Done():
		}
	}
}

// pause waits, with jitter. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// report sends a report until the app has answered it. Another state of the app makes a report void, so a refusal is no failure.
func (l *loop) report(ctx context.Context, m proto.Message) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := l.s.ask(asking, l.identity, m)
		cancel()
		if err == nil || entity.IsRefusal(err) || !pause(ctx, wait) {
			return
		}
		l.s.o.Log.Warn("cannot report to an app; retrying", slog.String("app", l.identity), slog.Any("error", err))
	}
}

// excerpt returns the beginning of a text that the entity of an app stores.
func excerpt(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	return string(runes[:min(len(runes), app.MaxReason)])
}
