package docker

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// A machine is the driver's knowledge of a workspace's computer. It exists while the computer runs, is about to, or is frozen.
// Its fields are guarded by Driver.mu.
type machine struct {
	// running is the container; nil: none.
	running *runningContainer
	// starting is set while the container is started.
	starting *starting
	// users is the number of processes, including processes that are being started.
	users    int
	isFrozen bool
	// idle removes the container. The container has been without a process since idleSince.
	idle      *time.Timer
	idleSince time.Time
}

// A starting is the start of a container. Several processes may wait for it.
type starting struct {
	done chan struct{} // closed when c and err are set
	c    *runningContainer
	err  error
}

// acquire returns the running container of a workspace, and starts it if necessary. The container is not removed as idle
// before release is called. acquire returns Unavailable if the computer is frozen or cannot be started, and NotFound if the
// workspace has no drive.
func (d *Driver) acquire(ctx context.Context, workspaceID string) (c *runningContainer, release func(), err error) {
	d.mu.Lock()
	if d.isClosed {
		d.mu.Unlock()
		return nil, nil, entity.Errorf(entity.Unavailable, "the node is shutting down")
	}
	m := d.computers[workspaceID]
	if m == nil {
		m = &machine{}
		d.computers[workspaceID] = m
	}
	if m.isFrozen {
		d.mu.Unlock()
		return nil, nil, entity.Errorf(entity.Unavailable, "the computer of workspace %s is frozen; try again later", workspaceID)
	}
	m.users++
	if m.idle != nil {
		m.idle.Stop()
	}
	c, s := m.running, m.starting
	if c == nil && s == nil {
		unused, err := d.makeRoom()
		if err != nil {
			d.mu.Unlock()
			d.release(workspaceID, m)
			return nil, nil, err
		}
		s = &starting{done: make(chan struct{})}
		m.starting = s
		// The caller that has started it may go, while others wait.
		go d.start(context.WithoutCancel(ctx), workspaceID, m, s, unused)
	}
	d.mu.Unlock()
	release = func() { d.release(workspaceID, m) }
	if c != nil {
		return c, release, nil
	}
	select {
	case <-s.done:
		c, err = s.c, s.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return c, release, nil
}

// makeRoom chooses the container that the caller removes before it starts a new container. The container is nil if fewer than
// Options.MaxContainers run, and otherwise the container that has been without a process for the longest time. makeRoom returns
// Unavailable if all containers have processes. The caller holds mu.
func (d *Driver) makeRoom() (unused *runningContainer, err error) {
	all := 0
	for _, m := range d.computers {
		if m.running != nil || m.starting != nil {
			all++
		}
	}
	if most := d.options.MaxContainers; most == 0 || all < most {
		return nil, nil
	}
	if unused = d.takeUnused(); unused == nil {
		return nil, entity.Errorf(entity.Unavailable, "too many computers run on this node")
	}
	return unused, nil
}

// takeUnused returns the container that has been without a process for the longest time, for the caller to remove it: a process that comes
// now gets a new one. It returns nil if all containers have processes. The caller holds mu.
func (d *Driver) takeUnused() *runningContainer {
	workspaceID, found := "", (*machine)(nil)
	for id, m := range d.computers {
		if m.running != nil && m.users == 0 && !m.isFrozen && (found == nil || m.idleSince.Before(found.idleSince)) {
			workspaceID, found = id, m
		}
	}
	if found == nil {
		return nil
	}
	c := found.running
	found.running = nil
	d.forget(workspaceID, found)
	return c
}

// StopUnused implements computer.Host.
func (d *Driver) StopUnused(ctx context.Context) (bool, error) {
	d.mu.Lock()
	unused := d.takeUnused()
	d.mu.Unlock()
	if unused == nil {
		return false, nil
	}
	ctx, cancel := d.limit(ctx)
	defer cancel()
	unused.stop()
	return true, unused.awaitRemoved(ctx)
}

// start starts the container of a workspace for all callers that wait for s, when a container that gives way to it, or nil, is removed.
func (d *Driver) start(ctx context.Context, workspaceID string, m *machine, s *starting, unused *runningContainer) {
	if unused != nil {
		unused.stop()
		waiting, cancel := d.limit(ctx)
		if err := unused.awaitRemoved(waiting); err != nil {
			d.options.Log.Warn("a container without processes is not removed", "workspace", unused.workspaceID, "container", unused.id, "error", err)
		}
		cancel()
	}
	s.c, s.err = d.startContainer(ctx, workspaceID)
	d.mu.Lock()
	m.starting = nil
	if s.err == nil {
		m.running = s.c
		go d.awaitEnd(workspaceID, m, s.c)
		go s.c.followSpace()
		d.awaitIdle(workspaceID, m)
	}
	isStale := s.err == nil && (d.isClosed || d.computers[workspaceID] != m)
	d.mu.Unlock()
	if isStale { // Stop was called in the meantime
		s.c.stop()
		<-s.c.removed
		s.c, s.err = nil, entity.Errorf(entity.Unavailable, "the computer of workspace %s was stopped while it started", workspaceID)
	}
	close(s.done)
}

// awaitEnd forgets a container that has ended, and has the engine remove it.
func (d *Driver) awaitEnd(workspaceID string, m *machine, c *runningContainer) {
	<-c.ended
	d.mu.Lock()
	if m.running == c {
		m.running = nil
	}
	d.forget(workspaceID, m)
	d.mu.Unlock()
	if err := d.remove(context.Background(), c.id); err != nil {
		d.options.Log.Warn("a container that has ended cannot be removed; the next start of the server removes it",
			"workspace", workspaceID, "container", c.id, "error", err)
	}
	close(c.removed)
}

// forget removes a machine that has nothing to remember. The caller holds mu.
func (d *Driver) forget(workspaceID string, m *machine) {
	if d.computers[workspaceID] == m && m.running == nil && m.starting == nil && m.users == 0 && !m.isFrozen {
		delete(d.computers, workspaceID)
	}
}

// release ends the use of a container by a process. After the last one, the container becomes idle.
func (d *Driver) release(workspaceID string, m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.users--
	d.forget(workspaceID, m)
	d.awaitIdle(workspaceID, m)
}

// awaitIdle removes the container of a machine without processes after some time, unless it has got one by then. The caller
// holds mu.
func (d *Driver) awaitIdle(workspaceID string, m *machine) {
	if m.users > 0 || m.running == nil {
		return
	}
	if m.idle != nil {
		m.idle.Stop()
	}
	m.idleSince = time.Now()
	m.idle = time.AfterFunc(d.options.IdleAfter, func() {
		d.mu.Lock()
		c := m.running
		isIdle := m.users == 0 && !m.isFrozen && c != nil
		if isIdle {
			m.running = nil // a process that comes now gets a new container
			d.forget(workspaceID, m)
		}
		d.mu.Unlock()
		if isIdle {
			c.stop()
		}
	})
}

// current returns the running container of a workspace. It returns Unavailable if there is none, or if it is frozen.
func (d *Driver) current(workspaceID string) (*runningContainer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m := d.computers[workspaceID]; {
	case m == nil || m.running == nil:
		return nil, entity.Errorf(entity.Unavailable, "the computer of workspace %s is not running", workspaceID)
	case m.isFrozen:
		return nil, entity.Errorf(entity.Unavailable, "the computer of workspace %s is frozen; try again later", workspaceID)
	default:
		return m.running, nil
	}
}

// Stop implements computer.Host.
func (d *Driver) Stop(ctx context.Context, workspaceID string) error {
	d.mu.Lock()
	m := d.computers[workspaceID]
	if m == nil {
		d.mu.Unlock()
		return nil
	}
	c, s := m.running, m.starting
	m.isFrozen = false
	m.running = nil
	delete(d.computers, workspaceID) // a start that is under way sees this, and ends
	d.mu.Unlock()
	if c == nil && s != nil {
		select {
		case <-s.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if c == nil {
		return nil
	}
	c.stop()
	ctx, cancel := d.limit(ctx)
	defer cancel()
	// A frozen init cannot exit, and the engine may not be able to end it. It exits before anything else if it is thawed now.
	if err := c.freeze(ctx, false); err != nil {
		return err
	}
	if err := d.remove(ctx, c.id); err != nil {
		return err
	}
	return c.awaitRemoved(ctx)
}

// Freeze implements computer.Host.
func (d *Driver) Freeze(ctx context.Context, workspaceID string, isFrozen bool) error {
	if err := d.checkExists(workspaceID); err != nil {
		return err
	}
	ctx, cancel := d.limit(ctx)
	defer cancel()
	d.mu.Lock()
	m := d.computers[workspaceID]
	if m == nil && isFrozen {
		m = &machine{}
		d.computers[workspaceID] = m
	}
	if m == nil {
		d.mu.Unlock()
		return nil
	}
	// From here on no process starts; one that is about to is awaited, so that it is frozen, too.
	m.isFrozen = isFrozen
	c, s := m.running, m.starting
	d.forget(workspaceID, m)
	d.mu.Unlock()
	if c == nil && s != nil {
		select {
		case <-s.done:
			c = s.c
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if c == nil {
		return nil
	}
	return c.freeze(ctx, isFrozen)
}

// Start implements computer.Host.
func (d *Driver) Start(ctx context.Context, workspaceID string, s computer.Spec) (computer.Process, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.OwnNetwork {
		return nil, entity.Errorf(entity.InvalidRequest, "this node cannot give processes networks of their own, because its computers are containers")
	}
	if err := d.checkExists(workspaceID); err != nil {
		return nil, err
	}
	if err := computer.CheckSpace(ctx, d.options.Drives, workspaceID, nil, d.options.Log); err != nil {
		return nil, err
	}
	c, release, err := d.acquire(ctx, workspaceID)
	if err != nil {
		return nil, err
	}
	p, err := c.exec(ctx, s)
	if err != nil {
		release()
		return nil, err
	}
	go func() {
		<-p.done
		release()
	}()
	return p, nil
}
