package local

import (
	"context"
	"net"
	"slices"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// Start implements computer.Host.
func (d *Driver) Start(ctx context.Context, workspaceID string, s computer.Spec) (computer.Process, error) {
	if err := validate(&s); err != nil {
		return nil, err
	}
	if s.OwnNetwork && d.report.Unisolated {
		return nil, entity.Errorf(entity.InvalidRequest, "this node cannot give processes networks of their own, because it does not isolate them")
	}
	g, err := d.guest(workspaceID)
	if err != nil {
		return nil, err
	}
	p, err := g.start(ctx, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Dial implements computer.Host.
func (d *Driver) Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error) {
	if err := checkDialPort(port); err != nil {
		return nil, err
	}
	g, err := d.guest(workspaceID)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	box := g.box
	g.mu.Unlock()
	if box == nil {
		return nil, entity.Errorf(entity.Unavailable, "the computer of workspace %s is not running", workspaceID)
	}
	c, err := box.Network().Dial(ctx, port)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, entity.Errorf(entity.Unavailable, "cannot connect to port %d of the computer of workspace %s: %v", port, workspaceID, err)
	}
	return c, nil
}

// StopUnused implements computer.Host.
func (d *Driver) StopUnused(ctx context.Context) (bool, error) {
	unused := d.longestUnused()
	if unused == nil {
		return false, nil
	}
	err := unused.stopUnused(ctx)
	return err == nil, err
}

// OwnNetworks implements computer.Host.
func (d *Driver) OwnNetworks() bool { return d.forbidden == nil && !d.report.Unisolated }

// Freeze implements computer.Host.
func (d *Driver) Freeze(ctx context.Context, workspaceID string, frozen bool) error {
	g, err := d.guest(workspaceID)
	if err != nil {
		return err
	}
	return g.freeze(ctx, frozen)
}

// Stop implements computer.Host.
func (d *Driver) Stop(ctx context.Context, workspaceID string) error {
	if d.forbidden != nil {
		return nil // no computer runs
	}
	d.mu.Lock()
	g := d.guests[workspaceID]
	d.mu.Unlock()
	if g == nil {
		return nil
	}
	return g.stop(ctx)
}

// Memory implements computer.Host. The memory of one computer is known with control groups only.
func (d *Driver) Memory(_ context.Context, workspaceID string) (used, limit uint64, err error) {
	if workspaceID == "" {
		return d.memoryOfAll()
	}
	g, err := d.guest(workspaceID)
	if err != nil {
		return 0, 0, err
	}
	g.mu.Lock()
	control := g.control
	g.mu.Unlock()
	if control == nil || d.o.Limits.MemoryBytes <= 0 {
		return 0, 0, nil
	}
	all, err := control.Usage()
	if err != nil {
		return 0, 0, entity.Errorf(entity.Unavailable, "cannot measure the computer of workspace %s: %v", workspaceID, err)
	}
	return all.MemoryBytes, uint64(d.o.Limits.MemoryBytes), nil
}

// Processes returns the ids on this machine of the processes of a workspace's computer.
func (d *Driver) Processes(workspaceID string) []int {
	d.mu.Lock()
	g := d.guests[workspaceID]
	d.mu.Unlock()
	if g == nil {
		return nil
	}
	g.mu.Lock()
	box, control := g.box, g.control
	g.mu.Unlock()
	if control != nil {
		all, err := control.Processes()
		if err != nil {
			g.log("cannot list the processes of a computer", err)
		}
		return all
	}
	if box == nil {
		return nil
	}
	return box.Processes()
}

// Usage implements computer.Host. Without control groups only the names of the groups are known.
func (d *Driver) Usage(_ context.Context, workspaceID string) ([]computer.Usage, error) {
	g, err := d.guest(workspaceID)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []computer.Usage
	for name, shared := range g.groups {
		u := computer.Usage{Group: name}
		if shared.control != nil {
			used, err := shared.control.Usage()
			if err != nil {
				return nil, entity.Errorf(entity.Unavailable, "cannot measure %s of workspace %s: %v", name, workspaceID, err)
			}
			u.MemoryBytes, u.Processor, u.Processes = used.MemoryBytes, used.Processor, used.Processes
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b computer.Usage) int {
		if a.Group < b.Group {
			return -1
		}
		return 1
	})
	return all, nil
}
