package actors

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// mailbox is protoactor's unbounded one, whose messages are answered and not dropped once its actor has stopped. What may
// wait in it is bounded before it is posted, by admission.
type mailbox struct {
	actor.Mailbox
	closed  atomic.Bool
	metrics *kindMetrics
}

func newMailbox(m *kindMetrics) *mailbox {
	return &mailbox{Mailbox: actor.Unbounded()(), metrics: m}
}

func (m *mailbox) PostUserMessage(message any) {
	m.metrics.mailboxDepth.Inc()
	m.Mailbox.PostUserMessage(message)
}

// PostSystemMessage lets an actor that is stopped while it is suspended, after a failure, go through what waits for it.
func (m *mailbox) PostSystemMessage(message any) {
	m.Mailbox.PostSystemMessage(message)
	if _, ok := message.(*actor.Stop); ok {
		m.Mailbox.PostSystemMessage(&actor.ResumeMailbox{})
	}
}

func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.Mailbox.RegisterHandlers(&deadLettering{invoker, m}, dispatcher)
}

// deadLettering stands between a mailbox and its actor.
type deadLettering struct {
	actor.MessageInvoker
	mailbox *mailbox
}

func (d *deadLettering) InvokeUserMessage(message any) {
	d.mailbox.metrics.mailboxDepth.Dec()
	if d.mailbox.closed.Load() {
		bounce(message)
		return
	}
	d.MessageInvoker.InvokeUserMessage(message)
}

// bounce answers a message whose actor is gone.
func bounce(message any) {
	switch m := actor.UnwrapEnvelopeMessage(message).(type) {
	case *request:
		m.metrics.deadLetters.Inc()
		m.answer(nil, ErrRetry)
	case requests:
		for _, r := range m {
			bounce(r)
		}
	case *settle:
		m.done <- ErrRetry
	case *resumption:
		m.done <- ErrRetry
	}
}
