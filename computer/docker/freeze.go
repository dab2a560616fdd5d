package docker

import (
	"context"
	"errors"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer/docker/agent"
)

// freeze suspends or resumes all processes of the container, its init included. It does nothing if they are in that state.
func (c *runningContainer) freeze(ctx context.Context, isFrozen bool) error {
	c.freezing.Lock()
	defer c.freezing.Unlock()
	if c.isFrozen() == isFrozen {
		return nil
	}
	if err := c.pause(ctx, isFrozen); err != nil {
		return err
	}
	return nil
}

// pause freezes or thaws a container that is not in this state. The caller holds freezing.
func (c *runningContainer) pause(ctx context.Context, isFrozen bool) (err error) {
	ctx, cancel := c.driver.limit(ctx)
	defer cancel()
	if isFrozen {
		_, err = c.driver.engine.ContainerPause(ctx, c.id, client.ContainerPauseOptions{})
	} else {
		_, err = c.driver.engine.ContainerUnpause(ctx, c.id, client.ContainerUnpauseOptions{})
	}
	if err != nil && !isClosed(c.ended) {
		return unavailable("freeze or thaw a container", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if isFrozen {
		c.thawed = make(chan struct{})
	} else {
		close(c.thawed)
	}
	return nil
}

func (c *runningContainer) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !isClosed(c.thawed)
}

// askThawed sends a request to init, and again if init was frozen before it could answer. It waits while the container is
// frozen.
func (c *runningContainer) askThawed(ctx context.Context, r agent.Request) error {
	for {
		c.mu.Lock()
		thawed := c.thawed
		c.mu.Unlock()
		select {
		case <-thawed:
		case <-c.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		limited, cancel := c.driver.limit(ctx)
		_, err := c.control.ask(limited, r)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && c.isFrozen() {
			continue
		}
		return err
	}
}

// whileThawed calls do while the container is not frozen. A frozen one is thawed for that time, with all its processes, because
// the engine delivers no signal to a frozen one.
func (c *runningContainer) whileThawed(ctx context.Context, do func() error) error {
	c.freezing.Lock()
	defer c.freezing.Unlock()
	if !c.isFrozen() {
		return do()
	}
	if err := c.pause(ctx, false); err != nil {
		return err
	}
	return errors.Join(do(), c.pause(context.WithoutCancel(ctx), true))
}
