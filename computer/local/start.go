package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer"
	guestnet "github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
)

// ensure starts the computer if it does not run. The caller holds the turn. After a failure it returns the same error until a
// pause is over.
func (g *guest) ensure(ctx context.Context) error {
	g.mu.Lock()
	box, failed, retryAt := g.box, g.failed, g.retryAt
	g.mu.Unlock()
	if box != nil {
		select {
		case <-box.Ended():
			g.discard()
		default:
			return nil
		}
	}
	if failed != nil && time.Now().Before(retryAt) {
		return failed
	}
	if err := g.driver.addComputer(ctx); err != nil {
		return err
	}
	err := g.boot(ctx)
	if err != nil {
		g.driver.removeComputer()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = nil
	if err == nil {
		g.failures = 0
		return nil
	}
	g.failures++
	g.retryAt = time.Now().Add(starting.After(g.failures))
	g.failed = entity.Errorf(entity.Unavailable, "cannot start the computer of workspace %s: %v", g.id, err)
	g.log("cannot start a computer", err)
	return g.failed
}

// boot starts the computer.
func (g *guest) boot(ctx context.Context) (err error) {
	if g.driver.running.Err() != nil {
		return errors.New("the node is shutting down")
	}
	config := g.driver.config(g.id)
	if config.Program, err = g.driver.program.Path(); err != nil {
		return err
	}
	if config.Unisolated {
		if err := os.MkdirAll(config.Home, 0o700); err != nil {
			return err
		}
	} else if config.UID == 0 {
		if config.UID, err = g.driver.takeUID(); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				g.driver.returnUID(config.UID)
			}
		}()
	}
	join := func(int) error { return nil }
	var control *cgroup.Group
	if root := g.driver.root; root != nil {
		if control, err = root.New(g.name(g.id), g.driver.o.Limits); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, removeEmpty(control))
			}
		}()
		first, err := control.Child("init", computer.Limits{})
		if err != nil {
			return err
		}
		join = first.Join
	}
	box, err := sandbox.Start(ctx, config, join)
	if err != nil {
		return err
	}
	if err := g.driver.keeper.Watch(box.PidFD()); err != nil {
		for _, file := range box.LinkFiles() {
			_ = file.Close()
		}
		return errors.Join(fmt.Errorf("cannot tell the keeper of the computer: %w", err), box.Kill(context.WithoutCancel(ctx)))
	}
	detach := func() {}
	if network := g.driver.o.Network; network != nil && !config.Unisolated {
		if detach, err = network.Attach(context.WithoutCancel(ctx), g.id, box.LinkFiles()); err != nil {
			return errors.Join(err, box.Kill(context.WithoutCancel(ctx)))
		}
	}
	g.mu.Lock()
	g.box, g.control, g.uid, g.detach, g.stopping = box, control, config.UID, detach, false
	g.suspended = false
	g.mu.Unlock()
	go g.follow(box)
	go g.followSpace(box)
	return nil
}

// config returns the configuration of a computer without the program. Its UID is 0 if the caller chooses one.
func (d *Driver) config(workspaceID string) sandbox.Config {
	c := sandbox.Config{
		Node: d.o.Node, Name: workspaceID, Files: filepath.Join(d.dir, workspaceID, "files"), Hostname: hostname(workspaceID),
		Unprivileged: d.report.Unprivileged, Nested: d.root == nil, ScratchBytes: d.o.ScratchBytes, ScratchFiles: scratchFiles,
		Link: guestnet.NoLink, ProgramPath: computer.ProgramPath,
	}
	if c.Nested {
		c.MaxProcesses = d.o.Limits.Processes
	}
	if d.o.Network != nil {
		c.Link, c.Resolver = d.o.Network.Link(), string(d.o.Network.ResolvConf())
	}
	switch {
	case d.report.Unisolated:
		c.Unisolated, c.Home, c.UID, c.Link = true, d.home(workspaceID), os.Getuid(), guestnet.NoLink
	case c.Unprivileged:
		c.UID = unprivilegedUID
	}
	return c
}

// homes is the folder with the home folders of unisolated computers, which exist while the computer runs.
const homes = ".homes"

func (d *Driver) home(workspaceID string) string { return filepath.Join(d.dir, homes, workspaceID) }

// unprivilegedUID is the user id of processes in the user namespace of an unprivileged server, where it is the only one.
const unprivilegedUID = 1000

// hostname returns a host name for a workspace.
func hostname(workspaceID string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(workspaceID))
	return strings.Trim(name[:min(len(name), 60)], "-")
}

// halt ends the running computer with all its processes, and returns when they have ended. The caller holds the turn.
func (g *guest) halt(ctx context.Context) error {
	g.mu.Lock()
	box, control := g.box, g.control
	g.failed, g.failures, g.frozen = nil, 0, false
	if box == nil {
		g.mu.Unlock()
		return nil
	}
	g.stopping = true
	var all []*process
	for _, p := range g.processes {
		if p.process != nil { // or it is being started, which fails
			all = append(all, p)
		}
	}
	g.mu.Unlock()
	if control != nil { // first, because a suspended process cannot end with its namespace
		if err := control.Kill(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := box.Kill(ctx); err != nil {
		return err
	}
	for _, p := range all {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	g.discard()
	return nil
}

// discard removes the leftovers of a computer that has ended.
func (g *guest) discard() {
	g.mu.Lock()
	control, uid, detach := g.control, g.uid, g.detach
	g.box, g.control, g.uid, g.detach = nil, nil, 0, nil
	g.processes, g.groups = map[string]*process{}, map[string]*group{}
	if g.idle != nil {
		g.idle.Stop()
	}
	g.mu.Unlock()
	defer g.driver.removeComputer()
	if detach != nil {
		detach()
	}
	if control != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		if err := errors.Join(control.Kill(ctx), control.Remove(ctx)); err != nil && !errors.Is(err, os.ErrNotExist) {
			g.log("cannot remove the control group of a computer", err)
		}
	}
	g.driver.returnUID(uid)
	if g.driver.report.Unisolated {
		if err := os.RemoveAll(g.driver.home(g.id)); err != nil {
			g.log("cannot remove the home folder of a computer", err)
		}
	}
}

// follow waits for the end of a running computer. If it had processes and was not stopped, follow starts it again, so that it is
// known whether it can be started.
func (g *guest) follow(box *sandbox.Computer) {
	<-box.Ended()
	g.mu.Lock()
	current, stopping, lost := g.box == box, g.stopping, len(g.processes)
	g.mu.Unlock()
	if !current || stopping {
		return
	}
	g.log("a computer has ended unexpectedly", errors.New("its init has ended: "+box.Diagnosis()))
	if g.take(g.driver.running) != nil {
		return
	}
	defer g.give()
	g.mu.Lock()
	current = g.box == box
	g.mu.Unlock()
	if !current {
		return
	}
	g.discard()
	if lost > 0 {
		g.revive()
	}
}

// revive starts the computer until it runs or a start is not wanted any more. The caller holds the turn, which it gives to others
// during pauses.
func (g *guest) revive() {
	for {
		ctx, cancel := context.WithTimeout(g.driver.running, endTimeout)
		err := g.ensure(ctx)
		cancel()
		if err == nil || g.driver.running.Err() != nil {
			g.mu.Lock()
			g.awaitIdle()
			g.mu.Unlock()
			return
		}
		g.mu.Lock()
		pause := time.Until(g.retryAt)
		g.mu.Unlock()
		g.give()
		retry.Pause(g.driver.running, max(pause, starting.First))
		g.turn <- struct{}{}
		g.mu.Lock()
		wanted := g.failed != nil
		g.mu.Unlock()
		if !wanted {
			return // it was stopped, or has been started
		}
	}
}

// failure returns an error if the computer does not start. It tries again if the pause after the last failure is over.
func (g *guest) failure(ctx context.Context) error {
	g.mu.Lock()
	failed, again := g.failed, !time.Now().Before(g.retryAt)
	g.mu.Unlock()
	if failed == nil || !again {
		return failed
	}
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.give()
	err := g.ensure(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awaitIdle()
	return err
}
