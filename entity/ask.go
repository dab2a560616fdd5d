package entity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/retry"
)

// An Asker sends commands to entities, on whichever member of the cluster an entity is.
type Asker interface {
	// Ask sends a command to the entity that the command names, and returns the reply. A reply that reports a change is sent after the
	// change is durable. A query that waits is answered late; the end of ctx ends the query. If IsRefusal reports that an error is a
	// refusal, the command had no effect. After any other error it is unknown whether the command took effect.
	Ask(ctx context.Context, c Command) (proto.Message, error)
}

// An AskSettler is an Asker that can also wait for reactions.
type AskSettler interface {
	Asker
	// Settle waits until all reactions to the events that the entity has recorded so far are done. Settle does not wait for the
	// reactions of the other entities that these reactions change. Errors: unavailable if the entity's reactions are parked.
	Settle(ctx context.Context, kind, identity string) error
}

// Ask sends a command and returns the reply, which must be of the type Reply. Errors: the errors of a.
func Ask[Reply proto.Message](ctx context.Context, a Asker, c Command) (Reply, error) {
	return ReplyAs[Reply](a.Ask(ctx, c))
}

// AskAsPlatform is Ask for a command of the platform that may be applied more than once.
func AskAsPlatform[Reply proto.Message](ctx context.Context, a Asker, kind, identity string, m proto.Message) (Reply, error) {
	return Ask[Reply](ctx, a, Command{Kind: kind, Identity: identity, Principal: Platform(), Message: m})
}

// answering has the pauses of AskUntilAnswered.
var answering = retry.Policy{First: 50 * time.Millisecond, Longest: 5 * time.Second}

// AskUntilAnswered calls ask, which sends a command, until it is known whether the command took effect: until ask returns nil or a refusal.
// The command must have the same effect if it is applied again: it has an ID, or the entity recognizes it. Between two calls there is a pause. If ctx
// ends first, the outcome is unknown, and the error has the cause of ctx and wraps the error of the last call.
func AskUntilAnswered(ctx context.Context, ask func() error) (err error) {
	for range answering.Attempts(ctx) {
		if err = ask(); err == nil || IsRefusal(err) {
			return err
		}
	}
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%v: %w", cause, err) // the cause may look like a refusal
	}
	return err
}

// ReplyAs returns the results of Asker.Ask with the reply's type. It returns an error if the reply is of another type.
func ReplyAs[Reply proto.Message](reply proto.Message, err error) (typed Reply, _ error) {
	if err != nil {
		return typed, err
	}
	typed, is := reply.(Reply)
	if !is {
		return typed, fmt.Errorf("the reply is %T, want %T", reply, typed)
	}
	return typed, nil
}
