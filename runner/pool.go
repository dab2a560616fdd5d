package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// A pool has the agents of this process by their sessions: the agents with a running turn, and the idle agents.
type pool struct {
	r *Runner

	mu       sync.Mutex
	agents   map[sessionID]*pooled
	isClosed bool
	// users has an entry for each session with an agent that a turn uses or starts: a channel that is closed when the turn releases the agent.
	users map[sessionID]chan struct{}
	// starting has the number of agents that are being started, by their workspaces.
	starting map[string]int
}

type pooled struct {
	agent *agent
	// idleSince is zero while a turn runs.
	idleSince time.Time
	timer     *time.Timer
}

var errTooManyAgents = errors.New("too many agents of the workspace, or of all, run on this node")

func newPool(r *Runner) *pool {
	return &pool{r: r, agents: map[sessionID]*pooled{}, users: map[sessionID]chan struct{}{}, starting: map[string]int{}}
}

// acquire returns the agent of a session for a turn: the idle agent, if it suits the session, or else a new agent. The caller calls release.
// Errors: errTooManyAgents, and the errors of Runner.start and of Process.Resume.
func (p *pool) acquire(ctx context.Context, s *sessionv1.Session, choice Choice) (*agent, error) {
	id := sessionID{s.GetWorkspaceId(), s.GetId()}
	if err := p.enter(ctx, id); err != nil {
		return nil, err
	}
	l, err := p.findOrStart(ctx, id, s, choice)
	if err != nil {
		p.leave(id)
	}
	return l, err
}

// enter waits until no other turn of a session uses or starts its agent. A turn that was interrupted while its agent started has
// ended for the session, which may already run the next turn.
func (p *pool) enter(ctx context.Context, id sessionID) error {
	for {
		p.mu.Lock()
		left := p.users[id]
		if left == nil {
			p.users[id] = make(chan struct{})
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave lets the next turn of a session enter.
func (p *pool) leave(id sessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.users[id])
	delete(p.users, id)
}

func (p *pool) findOrStart(ctx context.Context, id sessionID, s *sessionv1.Session, choice Choice) (*agent, error) {
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return nil, context.Canceled
	}
	var before *agent
	if found := p.agents[id]; found != nil {
		isResumed := false
		if found.agent.suits(s, choice) {
			err := found.agent.process.Resume()
			if refusal, is := errors.AsType[*entity.Error](err); is {
				p.mu.Unlock()
				return nil, refusal // the agent remains idle
			}
			isResumed = err == nil
		}
		if found.timer != nil {
			found.timer.Stop()
		}
		if isResumed {
			found.idleSince = time.Time{}
			p.mu.Unlock()
			return found.agent, nil
		}
		delete(p.agents, id)
		before = found.agent
	}
	evicted, ok := p.makeRoom(id.workspace)
	if ok {
		p.starting[id.workspace]++
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.end()
	}
	if before != nil {
		if reason, hasEnded := before.process.hasEnded(); hasEnded && isLoss(reason) {
			p.r.addresses.lose(before.address)
		}
		before.end()
		before.process.awaitExit(ctx, p.r.o.CancelTimeout)
	}
	if !ok {
		return nil, errTooManyAgents
	}
	l, err := p.r.start(ctx, s, choice)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting[id.workspace]--; p.starting[id.workspace] == 0 {
		delete(p.starting, id.workspace)
	}
	if err != nil {
		return nil, err
	}
	if p.isClosed {
		l.end()
		return nil, context.Canceled
	}
	p.agents[id] = &pooled{agent: l}
	return l, nil
}

// makeRoom reports whether a further agent of a workspace may be started. If a limit is reached, it removes the agent that has been idle for the
// longest time, and returns it in evicted: an agent of the workspace if the limit of the workspace is reached, otherwise any agent. The caller
// holds mu.
func (p *pool) makeRoom(workspace string) (evicted *agent, ok bool) {
	all, own := len(p.agents), p.starting[workspace]
	for _, n := range p.starting {
		all += n
	}
	var oldest, oldestOwn *pooled
	for id, c := range p.agents {
		isOlder := func(than *pooled) bool {
			return !c.idleSince.IsZero() && (than == nil || c.idleSince.Before(than.idleSince))
		}
		if isOlder(oldest) {
			oldest = c
		}
		if id.workspace != workspace {
			continue
		}
		if own++; isOlder(oldestOwn) {
			oldestOwn = c
		}
	}
	switch {
	case own >= p.r.o.MaxWorkspaceAgents:
		oldest = oldestOwn
	case all < p.r.o.MaxAgents:
		return nil, true
	}
	if oldest == nil {
		return nil, false
	}
	oldest.timer.Stop()
	delete(p.agents, oldest.agent.id)
	return oldest.agent, true
}

// suits reports whether a process can run the next turn of a session.
func (l *agent) suits(s *sessionv1.Session, choice Choice) bool {
	select {
	case <-l.peer.done():
		return false
	default:
	}
	if _, hasEnded := l.process.hasEnded(); hasEnded {
		return false
	}
	return l.choice.Agent == choice.Agent && l.choice.HasModel == choice.HasModel && l.choice.Model.Name == choice.Model.Name &&
		l.cwd == s.GetCwd() && l.mode == s.GetMode() && session.EqualBounds(l.bounds, s.GetTurn().GetBounds())
}

// release keeps an agent for the next turn of its session, for a time.
func (p *pool) release(l *agent) {
	defer p.leave(l.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.agents[l.id]
	if found == nil || found.agent != l {
		return
	}
	found.idleSince = time.Now()
	l.process.Rest()
	since := found.idleSince
	found.timer = time.AfterFunc(min(p.r.o.IdleTimeout, checkEvery), func() { p.expire(found, since) })
}

// checkEvery is the interval in which the participants of the sessions of idle agents are checked.
const checkEvery = 5 * time.Second

// expire ends an agent that has been idle since a time, if it has been idle for Options.IdleTimeout or its participant has lost the access
// (participant.go). Otherwise it checks again later.
func (p *pool) expire(c *pooled, since time.Time) {
	left := p.r.o.IdleTimeout - time.Since(since)
	isOver := left <= 0 || p.r.hasLostAccess(c.agent)
	p.mu.Lock()
	isIdle := p.agents[c.agent.id] == c && c.idleSince.Equal(since)
	switch {
	case isIdle && isOver:
		delete(p.agents, c.agent.id)
	case isIdle:
		c.timer.Reset(min(left, checkEvery))
	}
	p.mu.Unlock()
	if isIdle && isOver {
		c.agent.end()
	}
}

// hasLostAccess reports whether the participant of the last turn of an agent is known to have lost the access.
func (r *Runner) hasLostAccess(l *agent) bool {
	ctx, cancel := context.WithTimeout(context.Background(), checkEvery)
	defer cancel()
	_, hasLost := errors.AsType[*failure](r.checkParticipant(ctx, l.id.workspace, l.Participant(), l.bounds))
	return hasLost
}

// remove removes an agent after its process has ended.
func (p *pool) remove(l *agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.agents[l.id]; found != nil && found.agent == l {
		if found.timer != nil {
			found.timer.Stop()
		}
		delete(p.agents, l.id)
	}
}

// discard ends the agent of a session, if the session has an agent.
func (p *pool) discard(id sessionID) {
	p.mu.Lock()
	found := p.agents[id]
	delete(p.agents, id)
	p.mu.Unlock()
	if found != nil {
		found.agent.end()
	}
}

// discardIdle ends the agents of a workspace that are idle.
func (p *pool) discardIdle(workspace string) {
	p.mu.Lock()
	var idle []*agent
	for id, c := range p.agents {
		if id.workspace == workspace && !c.idleSince.IsZero() {
			c.timer.Stop()
			delete(p.agents, id)
			idle = append(idle, c.agent)
		}
	}
	p.mu.Unlock()
	for _, l := range idle {
		l.end()
	}
}

// close ends all agents, and makes acquire fail.
func (p *pool) close() {
	p.mu.Lock()
	p.isClosed = true
	var all []*agent
	for _, c := range p.agents {
		all = append(all, c.agent)
	}
	p.agents = map[sessionID]*pooled{}
	p.mu.Unlock()
	for _, l := range all {
		l.end()
	}
}
