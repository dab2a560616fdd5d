package egress

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// The reasons to refuse a flow that are not reasons of the policy.
const (
	refusedRate      refusal = "rate"
	refusedFlows     refusal = "flows"
	refusedNodeFlows refusal = "node_flows"
	refusedDetached  refusal = "detached"
)

// A budget is the budget that the links of one computer share.
type budget struct {
	rate *rate.Limiter
	// links counts the links that share the budget. Egress.mu guards it.
	links int
	flows atomic.Int64
	// queries has an element for each DNS query that is being answered, queryConnections one for each connection for queries.
	queries, queryConnections chan struct{}
	queryRate                 *rate.Limiter
}

// takeBudget returns the budget of a computer to another of its links. The caller returns it with returnBudget.
func (e *Egress) takeBudget(workspaceID string) *budget {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.budgets[workspaceID]
	if b == nil {
		b = &budget{
			rate:    rate.NewLimiter(rate.Limit(e.limits.FlowsPerSecond), e.limits.FlowBurst),
			queries: make(chan struct{}, queriesAtOnce), queryConnections: make(chan struct{}, queryConnections),
			queryRate: rate.NewLimiter(queriesPerSecond, 2*queriesPerSecond),
		}
		e.budgets[workspaceID] = b
		e.metrics.computers.Inc()
	}
	b.links++
	return b
}

func (e *Egress) returnBudget(workspaceID string, b *budget) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.links--; b.links == 0 {
		delete(e.budgets, workspaceID)
		e.metrics.computers.Dec()
	}
}

// A computer bounds and ends the flows of one link of a computer.
type computer struct {
	egress *Egress
	log    *slog.Logger
	budget *budget
	// running ends when the computer is detached, after which cancel has no effect.
	running context.Context
	cancel  context.CancelFunc
	// work are the goroutines that use the computer's link. close closes the link, so that they end.
	work  sync.WaitGroup
	close func()
	// finished is closed when the link is closed and all work is done.
	finished chan struct{}

	mu       sync.Mutex
	detached bool
}

func newComputer(ctx context.Context, e *Egress, workspaceID string) *computer {
	c := &computer{
		egress: e, log: e.log.With("workspace", workspaceID), close: func() {}, finished: make(chan struct{}),
		budget: e.takeBudget(workspaceID),
	}
	c.running, c.cancel = context.WithCancel(ctx)
	// Each flow ends with running too.
	context.AfterFunc(c.running, func() {
		c.mu.Lock()
		c.detached = true
		closeLink := c.close
		c.mu.Unlock()
		closeLink()
		c.work.Wait()
		e.returnBudget(workspaceID, c.budget)
		close(c.finished)
	})
	return c
}

// stop detaches the computer and returns when all of its work is done.
func (c *computer) stop() {
	c.cancel()
	<-c.finished
}

// link sets the function that closes the link. If the computer is already detached, it closes the link and returns false.
func (c *computer) link(closeLink func()) bool {
	c.mu.Lock()
	detached := c.detached
	if !detached {
		c.close = closeLink
	}
	c.mu.Unlock()
	if detached {
		closeLink()
	}
	return !detached
}

// start runs a function in a goroutine that stop waits for. It does nothing and returns false if the computer is detached.
func (c *computer) start(f func()) bool {
	if !c.begin() {
		return false
	}
	go func() {
		defer c.work.Done()
		f()
	}()
	return true
}

// begin makes stop wait until the caller calls c.work.Done. It returns false if the computer is detached.
func (c *computer) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.detached {
		c.work.Add(1)
	}
	return !c.detached
}

// admit counts a flow with a destination that the policy allows, and returns the function that must be called when the flow has
// ended. Otherwise it returns, counts and logs the reason of the refusal. A zero destination is the destination of the proxy.
func (c *computer) admit(protocol string, to netip.AddrPort) (release func(), reason refusal) {
	e := c.egress
	if reason = c.count(to); reason != allowed {
		e.metrics.refused.WithLabelValues(string(reason)).Inc()
		if reason != refusedRate { // so that the rate bounds the log, too
			c.log.Debug("a flow of a computer was refused", "protocol", protocol, "destination", to, "reason", string(reason))
		}
		return nil, reason
	}
	open := e.metrics.flows.WithLabelValues(protocol)
	open.Inc()
	e.metrics.opened.WithLabelValues(protocol).Inc()
	return func() {
		open.Dec()
		e.flows.Add(-1)
		c.budget.flows.Add(-1)
		c.work.Done()
	}, allowed
}

// count counts a flow unless it returns a reason to refuse it. The rate is checked first, because it also bounds the work for flows
// that are refused.
func (c *computer) count(to netip.AddrPort) refusal {
	e := c.egress
	if !c.budget.rate.Allow() {
		return refusedRate
	}
	if to.IsValid() {
		if reason := e.policy.check(to, &e.own); reason != allowed {
			return reason
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.detached {
		return refusedDetached
	}
	if c.budget.flows.Add(1) > int64(e.limits.Flows) {
		c.budget.flows.Add(-1)
		return refusedFlows
	}
	if e.flows.Add(1) > int64(e.limits.NodeFlows) {
		e.flows.Add(-1)
		c.budget.flows.Add(-1)
		return refusedNodeFlows
	}
	c.work.Add(1)
	return allowed
}
