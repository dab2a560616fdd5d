package actors

import "github.com/atelier-run/atelier/persistence"

// maxUrgent limits the payload of a proposal that is more urgent than others, in bytes.
const maxUrgent = 64 << 10

// urgencyOf returns the urgency of the proposal of a decision: the urgency of its command, if the events are small.
func (s *System) urgencyOf(next *pending) persistence.Urgency {
	if s.urgency == nil {
		return persistence.Ordinary
	}
	size := 0
	for i := range next.decision.events {
		size += len(next.decision.events[i].Payload)
	}
	if size > maxUrgent {
		return persistence.Ordinary
	}
	return s.urgency(next.request.command)
}
