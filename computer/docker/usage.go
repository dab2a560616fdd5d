package docker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// measureTime is how long a measurement waits for an init, which may be slow because its container is short of processors or memory.
// Then the last result of the container stands for the present one.
const measureTime = 500 * time.Millisecond

// Memory implements computer.Host. It does not count files in memory, and counts shared memory of processes several times.
func (d *Driver) Memory(ctx context.Context, workspaceID string) (used, limit uint64, err error) {
	if workspaceID == "" {
		return d.memoryOfAll(ctx)
	}
	if d.options.Limits.MemoryBytes <= 0 {
		return 0, 0, nil
	}
	groups, err := d.Usage(ctx, workspaceID)
	if err != nil || len(groups) == 0 {
		return 0, 0, err
	}
	return memoryOf(groups), uint64(d.options.Limits.MemoryBytes), nil
}

func memoryOf(groups []computer.Usage) (sum uint64) {
	for _, g := range groups {
		sum += g.MemoryBytes
	}
	return sum
}

// memoryOfAll is Memory of all containers, which are measured side by side. A frozen container counts with its last measurement, and a
// container that ends meanwhile uses nothing.
func (d *Driver) memoryOfAll(ctx context.Context) (used, limit uint64, err error) {
	if d.options.MaxMemory <= 0 {
		return 0, 0, nil
	}
	var running []*runningContainer
	d.mu.Lock()
	for _, m := range d.computers {
		switch {
		case m.running == nil || m.users == 0:
		case m.isFrozen:
			used += memoryOf(m.running.lastUsage())
		default:
			running = append(running, m.running)
		}
	}
	d.mu.Unlock()
	sums := make([]uint64, len(running))
	var measuring sync.WaitGroup
	for i, c := range running {
		measuring.Go(func() {
			groups, _ := c.usage(ctx) // an error means that the container ends, or that it was never measured
			sums[i] = memoryOf(groups)
		})
	}
	measuring.Wait()
	for _, sum := range sums {
		used += sum
	}
	return used, uint64(d.options.MaxMemory), nil
}

// Usage implements computer.Host. It returns nothing if the computer is not running.
func (d *Driver) Usage(ctx context.Context, workspaceID string) ([]computer.Usage, error) {
	if err := d.checkExists(workspaceID); err != nil {
		return nil, err
	}
	d.mu.Lock()
	isRunning := d.computers[workspaceID] != nil && d.computers[workspaceID].running != nil
	d.mu.Unlock()
	if !isRunning {
		return nil, nil
	}
	c, err := d.current(workspaceID)
	if err != nil {
		return nil, err
	}
	return c.usage(ctx)
}

var errSlowUsage = entity.Errorf(entity.Unavailable, "the computer does not answer; try again")

// usage returns the use by each process group: the present use, or the last one that is known if init does not answer within measureTime.
// A container has one measurement in progress at most. The result belongs to all callers, and must not be changed. Errors: unavailable if
// the container has ended, or was never measured; ctx.Err().
func (c *runningContainer) usage(ctx context.Context) ([]computer.Usage, error) {
	measured := c.measuring.DoChan("", func() (any, error) {
		groups, err := c.askUsage()
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.last = groups
		}
		return groups, err
	})
	slow := time.NewTimer(measureTime)
	defer slow.Stop()
	select {
	case result := <-measured:
		return result.Val.([]computer.Usage), result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-slow.C:
	}
	if last := c.lastUsage(); last != nil {
		return last, nil
	}
	return nil, errSlowUsage
}

func (c *runningContainer) lastUsage() []computer.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// tick is the unit of the agent's measurements of processor time.
const tick = 10 * time.Millisecond

// askUsage asks init for the use by each process group, however long that lasts.
func (c *runningContainer) askUsage() ([]computer.Usage, error) {
	ctx, cancel := c.driver.limit(context.Background())
	defer cancel()
	reply, err := c.control.ask(ctx, agent.Request{Usage: true})
	if err != nil {
		return nil, err
	}
	measured := map[int]agent.Usage{}
	for _, u := range reply.Usage {
		measured[u.PID] = u
	}
	groups := map[string]*computer.Usage{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p == nil {
			continue
		}
		u, found := measured[p.pid]
		if !found {
			continue
		}
		g := groups[p.group]
		if g == nil {
			g = &computer.Usage{Group: p.group, Processor: c.used[p.group]}
			groups[p.group] = g
		}
		p.used = max(p.used, time.Duration(u.Ticks)*tick)
		g.MemoryBytes += u.MemoryBytes
		g.Processor += p.used
		g.Processes += u.Processes
	}
	all := make([]computer.Usage, 0, len(groups))
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, *groups[name])
	}
	return all, nil
}
