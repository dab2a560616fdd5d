package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// Deliver waits for a run that takes an input, for a limited time. It returns the session afterwards, and whether a run has taken the
// input; otherwise the input is queued. A note is queued until a turn takes it, and nothing waits for it. Errors: not_found if the session
// was deleted meanwhile.
func (r Request) Deliver(ctx context.Context, sent Accepted, limit time.Duration) (_ *sessionv1.Description, isTaken bool, err error) {
	found, err := r.describe(ctx, sent.SessionID)
	if err != nil || !isUntaken(found.GetSession(), sent.Seq) {
		return found, true, err
	}
	if p := session.PendingInput(found.GetSession(), sent.Seq); p.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE {
		return found, false, nil
	}
	later, err := r.await(ctx, limit, sent.SessionID, &sessionv1.AwaitInput{Seq: sent.Seq, Taken: true})
	switch {
	case err != nil && !entity.HasCode(err, entity.Unavailable):
		return nil, false, err
	case later == nil: // also if the server cannot hold the query: the input is durable
		return found, false, nil
	}
	return later, true, nil
}

// isUntaken reports whether no run has taken an input yet.
func isUntaken(s *sessionv1.Session, seq uint64) bool {
	return session.PendingInput(s, seq) != nil || slices.Contains(s.GetTurn().GetInputs(), seq) && s.GetTurn().GetRunId() == ""
}

// AwaitTerminal waits for the terminal of an input until the context waiting ends, which ends with ctx or before, and then takes at most the
// time of reading to read the terminal. The terminal is nil if there is none yet. Errors: not_found, forbidden, the errors of ctx.
func (r Request) AwaitTerminal(ctx, waiting context.Context, sent Accepted, reading time.Duration) (*sessionv1.TerminalRow, error) {
	if _, err := r.awaitWithin(ctx, waiting, sent.SessionID, &sessionv1.AwaitInput{Seq: sent.Seq}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	var row sessionv1.TerminalRow
	found, err := r.findRow(ctx, session.TerminalList, session.Key(sent.SessionID, entity.AscendingKey(sent.Seq)), &row)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// await sends a query that waits, and returns its answer, or nil if it has none within the time. Errors: the errors of the
// query and of ctx.
func (r Request) await(ctx context.Context, limit time.Duration, sessionID string, query *sessionv1.AwaitInput) (*sessionv1.Description, error) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.awaitWithin(ctx, waiting, sessionID, query)
}

// awaitWithin is await until the context waiting ends, which ends with ctx or before.
func (r Request) awaitWithin(ctx, waiting context.Context, sessionID string, query *sessionv1.AwaitInput) (*sessionv1.Description, error) {
	found, err := ask[*sessionv1.Description](waiting, r, r.query(sessionID, query))
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, nil
	}
	return found, err
}

// AwaitEnds waits until all sessions, or any of them, have ended their turns, or the context waiting ends, which ends with ctx or before.
// It returns the sessions that have ended, in the order of ids, and nil for each other one. Errors: not_found, forbidden if the caller may
// not read one of them, the errors of ctx.
func (r Request) AwaitEnds(ctx, waiting context.Context, ids []string, any bool) ([]*sessionv1.Session, error) {
	waiting, stop := context.WithCancel(waiting)
	defer stop()
	ended, failed := make([]*sessionv1.Session, len(ids)), make([]error, len(ids))
	var waits sync.WaitGroup
	for i, id := range ids {
		waits.Go(func() {
			ended[i], failed[i] = r.awaitEnd(waiting, id)
			if failed[i] != nil || any {
				stop()
			}
		})
	}
	waits.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, err := range failed {
		if err == nil || waiting.Err() != nil && isInterrupted(err) {
			continue
		}
		return nil, err
	}
	return ended, nil
}

// isInterrupted reports whether a query has failed because its context has ended. The router says so as unavailable.
func isInterrupted(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || entity.HasCode(err, entity.Unavailable)
}

// awaitEnd waits until a session runs no turn and no input waits for one, and returns it.
func (r Request) awaitEnd(ctx context.Context, id string) (*sessionv1.Session, error) {
	described, err := r.describe(ctx, id)
	for {
		if err != nil {
			return nil, err
		}
		seq := openInput(described.GetSession())
		if seq == 0 {
			return described.GetSession(), nil
		}
		described, err = ask[*sessionv1.Description](ctx, r, r.query(id, &sessionv1.AwaitInput{Seq: seq}))
	}
}

// openInput returns the seq of the last input of the running turn, or else of the last one that waits; 0 if there is none. A note
// waits for no turn of its own, and a follow-up of a session that asks or sleeps, perhaps after the running turn, waits for
// somebody else.
func openInput(s *sessionv1.Session) uint64 {
	var last uint64
	switch {
	case s.GetTurn() != nil:
		return slices.Max(s.GetTurn().GetInputs())
	case s.GetAsk() != nil || s.GetWakeAt() != 0:
		return 0
	}
	for _, p := range s.GetPending() {
		if p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE {
			last = max(last, p.GetSeq())
		}
	}
	return last
}
