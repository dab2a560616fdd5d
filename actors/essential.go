package actors

import "github.com/atelier-run/atelier/entity"

// maxEssential limits the payload of an essential or rationed proposal in bytes.
const maxEssential = 64 << 10

// isSmall reports whether a decision is small and has a command that accepted reports: such a decision is committed although the disk
// is nearly full. If accepted is nil, no decision is.
func isSmall(next *pending, accepted func(entity.Command) bool) bool {
	if accepted == nil || !accepted(next.request.command) {
		return false
	}
	size := 0
	for i := range next.decision.events {
		size += len(next.decision.events[i].Payload)
	}
	return size <= maxEssential
}
