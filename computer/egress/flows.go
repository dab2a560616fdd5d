package egress

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// The reasons to refuse a flow besides those of the policy.
const (
	refusedRate      refusal = "rate"
	refusedFlows     refusal = "flows"
	refusedNodeFlows refusal = "node_flows"
	refusedDetached  refusal = "detached"
)

// A computer bounds and ends the flows of one computer.
type computer struct {
	egress *Egress
	log    *slog.Logger
	rate   *rate.Limiter
	// running ends when the computer is detached, after which cancel has no effect.
	running context.Context
	cancel  context.CancelFunc
	// work are the goroutines that use the computer's link. close closes the link, so that they end.
	work  sync.WaitGroup
	close func()
	// finished is closed when the link is closed and all work is done.
	finished chan struct{}

	mu       sync.Mutex
	flows    int
	detached bool
}

func newComputer(ctx context.Context, e *Egress, workspaceID string) *computer {
	c := &computer{
		egress: e, log: e.log.With("workspace", workspaceID), close: func() {}, finished: make(chan struct{}),
		rate: rate.NewLimiter(rate.Limit(e.limits.FlowsPerSecond), e.limits.FlowBurst),
	}
	c.running, c.cancel = context.WithCancel(ctx)
	e.metrics.computers.Inc()
	// Each flow ends with running too.
	context.AfterFunc(c.running, func() {
		c.mu.Lock()
		c.detached = true
		closeLink := c.close
		c.mu.Unlock()
		closeLink()
		c.work.Wait()
		e.metrics.computers.Dec()
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
// ended. Otherwise it returns why the flow is refused, which it counts and logs. A zero destination is that of the proxy.
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
		c.mu.Lock()
		c.flows--
		c.mu.Unlock()
		c.work.Done()
	}, allowed
}

// count counts a flow unless it returns a reason to refuse it. The rate is checked first, because it also bounds the work for flows
// that are refused.
func (c *computer) count(to netip.AddrPort) refusal {
	e := c.egress
	if !c.rate.Allow() {
		return refusedRate
	}
	if to.IsValid() {
		if reason := e.policy.check(to, &e.own); reason != allowed {
			return reason
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.detached:
		return refusedDetached
	case c.flows >= e.limits.Flows:
		return refusedFlows
	case e.flows.Add(1) > int64(e.limits.NodeFlows):
		e.flows.Add(-1)
		return refusedNodeFlows
	}
	c.flows++
	c.work.Add(1)
	return allowed
}
