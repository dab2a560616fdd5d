package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
)

// spaceEvery is the time between two checks of the space of a drive while processes run.
const spaceEvery = time.Second

// files returns the folder with the files of a workspace's drive. It returns NotFound if there is no drive.
func (d *Driver) files(workspaceID string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(d.options.Drives.Dir(), workspaceID, "files"))
	if err == nil {
		_, err = os.Stat(dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", entity.Errorf(entity.NotFound, "workspace %s has no computer", workspaceID)
	case err != nil:
		d.options.Log.Error("cannot read a drive", "workspace", workspaceID, "error", err)
		return "", entity.Errorf(entity.Unavailable, "the drive of workspace %s cannot be read; try again", workspaceID)
	}
	return dir, nil
}

// followSpace ends the processes of a container whenever the drive is full, until the container has ended.
func (c *runningContainer) followSpace() {
	ticker := time.NewTicker(spaceEvery)
	defer ticker.Stop()
	fell, stop := c.driver.options.Drives.WatchSpace()
	defer stop()
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		case <-fell:
		}
		if all := c.running(); len(all) > 0 {
			c.checkSpace(all)
		}
	}
}

// Processes returns the ids on this machine of all processes of a workspace's container. The container's process namespace is the
// namespace of the processes that the driver has started. Processes returns nil if the engine runs on another machine.
func (d *Driver) Processes(workspaceID string) (all []int) {
	var c *runningContainer
	d.mu.Lock()
	if m := d.computers[workspaceID]; m != nil {
		c = m.running
	}
	d.mu.Unlock()
	if c == nil {
		return nil
	}
	namespaces := map[string]bool{}
	for _, p := range c.running() {
		if namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.hostPID)); err == nil && p.hostPID > 0 {
			namespaces[namespace] = true
		}
	}
	if len(namespaces) == 0 {
		return nil
	}
	found, _ := filepath.Glob("/proc/[0-9]*/ns/pid") // fails only for an invalid pattern
	for _, path := range found {
		if namespace, err := os.Readlink(path); err != nil || !namespaces[namespace] {
			continue // it has ended, or is another user's
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (c *runningContainer) running() (all []*process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p != nil { // or it is being started, and found at the next check
			all = append(all, p)
		}
	}
	return all
}

// checkSpace ends processes if the drive is full.
func (c *runningContainer) checkSpace(all []*process) {
	ctx, cancel := c.driver.limit(context.Background())
	defer cancel()
	err := computer.CheckSpace(ctx, c.driver.options.Drives, c.workspaceID, nil, c.driver.options.Log)
	if !entity.HasCode(err, entity.LimitReached) {
		return
	}
	for _, p := range all {
		p.isFull.Store(true)
		if err := c.askThawed(ctx, agent.Request{End: p.pid}); err != nil && !isClosed(c.ended) {
			c.driver.options.Log.Error("cannot end a process although the drive is full", "workspace", c.workspaceID, "error", err)
		}
	}
}
