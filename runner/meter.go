package runner

import (
	"sync"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner/meta"
)

// A meter counts the tokens of the running turn. Its methods may be called concurrently.
type meter struct {
	mu sync.Mutex
	// metered has the tokens that the gateway has counted since the prompt was sent. reported has the tokens that the agent has reported for
	// the prompt. counted = tokens(earlier prompts of the turn) − tokens of the prompt that belong to earlier turns.
	metered, reported, counted meta.TokenUsage
}

// beginTurn makes the usage of the turn zero. hasPrompt is set if the agent works on the prompt of an earlier turn, which the turn continues.
func (m *meter) beginTurn(hasPrompt bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !hasPrompt {
		m.metered, m.reported = meta.TokenUsage{}, meta.TokenUsage{}
	}
	used := m.promptUsage()
	m.counted = meta.TokenUsage{InputTokens: -used.InputTokens, OutputTokens: -used.OutputTokens}
}

// beginPrompt begins to count the tokens of a further prompt of the turn.
func (m *meter) beginPrompt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted = m.turnUsage()
	m.metered, m.reported = meta.TokenUsage{}, meta.TokenUsage{}
}

// add counts tokens that have passed through the gateway.
func (m *meter) add(input, output int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metered.InputTokens += input
	m.metered.OutputTokens += output
}

// report takes the tokens that the agent has reported for its prompt so far.
func (m *meter) report(total meta.TokenUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reported = total
}

// usage returns the tokens of the turn so far.
func (m *meter) usage() *sessionv1.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.turnUsage()
	return &sessionv1.Usage{
		InputTokens: uint64(min(used.InputTokens, entity.MaxTime)), OutputTokens: uint64(min(used.OutputTokens, entity.MaxTime)),
	}
}

// turnUsage is usage. The caller holds mu.
func (m *meter) turnUsage() meta.TokenUsage {
	used := m.promptUsage()
	return meta.TokenUsage{
		InputTokens:  max(m.counted.InputTokens+used.InputTokens, 0),
		OutputTokens: max(m.counted.OutputTokens+used.OutputTokens, 0),
	}
}

// promptUsage returns the tokens of the prompt so far: the greater of the counts of the gateway and of the agent. The caller holds mu.
func (m *meter) promptUsage() meta.TokenUsage {
	return meta.TokenUsage{
		InputTokens:  max(m.metered.InputTokens, m.reported.InputTokens),
		OutputTokens: max(m.metered.OutputTokens, m.reported.OutputTokens),
	}
}
