package actors

// maxEssential limits the payload of an essential proposal in bytes.
const maxEssential = 64 << 10

// isEssential reports whether a decision is accepted although the disk is nearly full.
func (p *pipeline) isEssential(next *pending) bool {
	essential := p.term.system.essential
	if essential == nil || !essential(next.request.command) {
		return false
	}
	size := 0
	for i := range next.decision.events {
		size += len(next.decision.events[i].Payload)
	}
	return size <= maxEssential
}
