package runner

import (
	"context"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// effect is the end of the turn that the tools have requested.
type effect struct {
	ask    *sessionv1.Ask
	wakeAt int64
}

var (
	errNoTurn   = entity.Errorf(entity.InvalidRequest, "no turn of the session runs")
	errQuestion = entity.Errorf(entity.InvalidRequest, "a question has a text and at most %d options", session.MaxOptions)
	errSleep    = entity.Errorf(entity.InvalidRequest, "the end of the sleep is not a time from 1970 to the greatest time of the API")
)

// WorkspaceID implements Session.
func (l *agent) WorkspaceID() string { return l.id.workspace }

// SessionID implements Session.
func (l *agent) SessionID() string { return l.id.session }

// UserID implements Session.
func (l *agent) UserID() string { return l.userID }

// Capabilities implements Session.
func (l *agent) Capabilities() []string { return session.Granted(l.bounds) }

// Participant implements Session.
func (l *agent) Participant() *sessionv1.Participant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.participant
}

// join reports inputs that the agent has taken. From then on, the agent works on behalf of the participant of the last of these inputs, as the
// session records. Inputs of the system, and inputs without a participant, do not change the participant.
func (l *agent) join(inputs []row) {
	l.mu.Lock()
	for _, in := range inputs {
		if in.participant != nil && in.GetInput().GetSender().GetKind() != sessionv1.SenderKind_SENDER_KIND_SYSTEM {
			l.participant = in.participant
		}
	}
	l.mu.Unlock()
	l.out.join(seqsOf(inputs)...)
}

// Ask implements Session.
func (l *agent) Ask(_ context.Context, text string, options []string) error {
	if text == "" || len(options) > session.MaxOptions {
		return errQuestion
	}
	asked := &sessionv1.Ask{Text: limit(text, session.MaxQuestion)}
	for i, label := range options {
		asked.Options = append(asked.Options, &sessionv1.Option{Id: strconv.Itoa(i + 1), Label: limit(label, maxTitle)})
	}
	return l.request(effect{ask: asked})
}

// SleepUntil implements Session.
func (l *agent) SleepUntil(_ context.Context, at time.Time) error {
	if ms := at.UnixMilli(); ms <= 0 || ms > entity.MaxTime {
		return errSleep
	}
	return l.request(effect{wakeAt: at.UnixMilli()})
}

func (l *agent) request(e effect) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == nil {
		return errNoTurn
	}
	l.effect, l.lastUpdate = e, time.Now()
	return nil
}

// forget drops the question or the sleep that the agent has requested in a prompt that does not continue.
func (l *agent) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effect = effect{}
}

// Progress implements Session.
func (l *agent) Progress(_ context.Context, step string, completed, total uint64) error {
	l.mu.Lock()
	if l.turn == nil {
		l.mu.Unlock()
		return errNoTurn
	}
	next := &sessionv1.Machine{Step: limit(step, maxTitle), Completed: completed, Total: total}
	if before := l.progress; before != nil {
		if next.Step == "" {
			next.Step = before.GetStep()
		}
		if completed == 0 && total == 0 {
			next.Completed, next.Total = before.GetCompleted(), before.GetTotal()
		}
	}
	l.progress, l.lastUpdate = next, time.Now()
	l.mu.Unlock()
	l.out.set(true, func(r *sessionv1.RecordRows) { r.Progress = next })
	return nil
}
