package docker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// The labels of the driver's containers.
const (
	nodeLabel      = "run.atelier.node"
	workspaceLabel = "run.atelier.workspace"
)

// A runningContainer is the container of a running computer.
type runningContainer struct {
	driver      *Driver
	workspaceID string
	id          string
	control     *control
	// ended is closed when the connection to init has ended, and with it all processes; removed, when the engine has been
	// asked to remove the container.
	ended   chan struct{}
	removed chan struct{}

	dialers dialers

	// measuring has the measurement of the process groups in progress.
	measuring singleflight.Group

	// freezing is held while the container is frozen or thawed; it is locked before mu.
	freezing sync.Mutex

	mu sync.Mutex
	// isStopped is set if the driver has ended the container.
	isStopped bool
	// processes has the processes by their ids; nil: one that is being started.
	processes map[string]*process
	// thawed is closed unless the container is frozen.
	thawed chan struct{}
	// used is the processor time of ended processes by their groups that have processes.
	used map[string]time.Duration
	// last is the result of the last measurement of the process groups.
	last []computer.Usage
	// measured is the processor time as of the last sample, and when it was taken.
	measured   uint64
	measuredAt time.Time
}

// startContainer creates and starts a container, and waits until its init is ready. If it fails, no container is left, as far
// as the engine answers.
func (d *Driver) startContainer(ctx context.Context, workspaceID string) (*runningContainer, error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	files, err := d.files(workspaceID)
	if err != nil {
		return nil, err
	}
	if !validName.MatchString(workspaceID) {
		return nil, entity.Errorf(entity.InvalidRequest, "%q is not the id of a workspace", workspaceID)
	}
	program, err := d.program.Path()
	if err != nil {
		return nil, err
	}
	created, err := d.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   fmt.Sprintf("atelier-%s-%s", workspaceID, rand.Text()[:8]),
		Config: d.config(workspaceID), HostConfig: d.hostConfig(files, program),
	})
	if err != nil {
		return nil, unavailable("create a container", err)
	}
	c := &runningContainer{
		driver: d, workspaceID: workspaceID, id: created.ID, ended: make(chan struct{}), removed: make(chan struct{}),
		processes: map[string]*process{}, used: map[string]time.Duration{}, thawed: make(chan struct{}),
	}
	close(c.thawed)
	if err := c.connect(ctx); err != nil {
		if left := d.remove(context.WithoutCancel(ctx), c.id); left != nil {
			d.options.Log.Warn("a container that does not start cannot be removed; the next start of the server removes it",
				"workspace", workspaceID, "container", c.id, "error", left)
		}
		return nil, err
	}
	return c, nil
}

// connect attaches to the container's init, starts the container, and waits until init is ready.
func (c *runningContainer) connect(ctx context.Context) error {
	engine := c.driver.engine
	attached, err := engine.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		// The client does not pass on the engine's reason, which mostly is that the container cannot be started.
		if _, reason := engine.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); reason != nil {
			err = reason
		}
		return unavailable("attach to a container", err)
	}
	if _, err := engine.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		attached.Close()
		return unavailable("start a container", err)
	}
	c.control = newControl(attached.HijackedResponse, c.driver.options.Timeout)
	version, err := c.control.awaitReady(ctx)
	if err == nil && version != agent.Version {
		err = fmt.Errorf("the server's program was replaced by one of another version: restart the server")
	}
	if err != nil {
		c.control.close()
		return unavailable("run the agent in a container", err)
	}
	go func() {
		<-c.control.ended
		close(c.ended)
	}()
	return nil
}

// config is the part of a container's configuration that does not depend on this machine.
func (d *Driver) config(workspaceID string) *container.Config {
	command := d.agentCommand("init")
	return &container.Config{
		Image: d.options.Image, Entrypoint: command[:1], Cmd: command[1:], User: d.options.User, WorkingDir: "/",
		Hostname: "computer", Env: d.options.Env,
		// The engine closes init's standard input when this connection ends.
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels:      map[string]string{nodeLabel: d.options.Node, workspaceLabel: workspaceID},
	}
}

// hostConfig is the part of a container's configuration that isolates it.
func (d *Driver) hostConfig(files, program string) *container.HostConfig {
	o := d.options
	// Docker would add noexec, Podman would not. Agents and builds run programs and load libraries that they put there.
	temporary := fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,size=%d", o.TemporaryBytes)
	h := &container.HostConfig{
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: files, Target: agent.DriveDir},
			{Type: mount.TypeBind, Source: program, Target: computer.ProgramPath, ReadOnly: true},
		},
		NetworkMode: container.NetworkMode(o.Network), ReadonlyRootfs: true,
		Tmpfs:   map[string]string{"/tmp": temporary, "/var/tmp": temporary, "/run": temporary},
		ShmSize: o.TemporaryBytes, IpcMode: container.IPCModePrivate,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		OomScoreAdj: oomScore,
		AutoRemove:  true, RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig: container.LogConfig{Type: "none"},
		Resources: container.Resources{
			CgroupParent: o.CgroupParent,
			Memory:       o.Limits.MemoryBytes, MemorySwap: o.Limits.MemoryBytes,
			NanoCPUs: int64(math.Round(o.Limits.Processors * 1e9)),
			Ulimits:  ulimits(),
		},
	}
	// Docker disables IPv6 in containers without a network. Servers for development may listen on localhost as ::1.
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0"}
	}
	if o.Limits.Processes > 0 {
		most := int64(o.Limits.Processes)
		h.PidsLimit = &most
	}
	return h
}

// oomScore is the oom_score_adj of the processes of containers, below which they cannot lower it: the kernel ends them before the server if
// the machine is out of memory. Programs begin with 500 (package agent), so that init ends last.
const oomScore = 400

// mostProcesses limits the processes and threads of a user on the whole machine.
const mostProcesses = 1 << 14

// ulimits returns the resource limits of the processes, which do not exceed the server's own: Podman sets missing limits to constants,
// which it may not be allowed to set. Options.Limits has a limit on processes for each container.
func ulimits() []*container.Ulimit {
	all := []*container.Ulimit{{Name: "core"}}
	const softFiles, hardFiles = 1024, 1 << 16
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err == nil {
		hard := int64(min(l.Max, hardFiles))
		all = append(all, &container.Ulimit{Name: "nofile", Soft: min(softFiles, hard), Hard: hard})
	}
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err == nil {
		most := int64(min(l.Max, mostProcesses))
		all = append(all, &container.Ulimit{Name: "nproc", Soft: most, Hard: most})
	}
	return all
}

// stop ends all processes of the container, by ending its init.
func (c *runningContainer) stop() {
	c.mu.Lock()
	c.isStopped = true
	c.mu.Unlock()
	c.control.close()
}

func (c *runningContainer) awaitRemoved(ctx context.Context) error {
	select {
	case <-c.removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve records that a process is being started. It returns InvalidRequest if one with the same id runs.
func (c *runningContainer) reserve(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.processes[id]; found {
		return entity.Errorf(entity.InvalidRequest, "a process with the id %s is running", id)
	}
	c.processes[id] = nil
	return nil
}

func (c *runningContainer) add(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[p.id] = p
}

// forget removes a process, or the reservation of its id. A group without processes has used nothing.
func (c *runningContainer) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[id]
	delete(c.processes, id)
	if p == nil {
		return
	}
	for _, other := range c.processes {
		if other != nil && other.group == p.group {
			c.used[p.group] += p.used
			return
		}
	}
	delete(c.used, p.group)
}

// maxStats bounds the engine's answer about the use of a container.
const maxStats = 1 << 20

// sample measures the container's processors and memory.
func (c *runningContainer) sample(ctx context.Context, s *computerv1.Sample) error {
	answer, err := c.driver.engine.ContainerStats(ctx, c.id, client.ContainerStatsOptions{})
	if err != nil {
		return unavailable("measure a container", err)
	}
	defer answer.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxStats)).Decode(&stats); err != nil {
		return unavailable("measure a container", err)
	}
	memory := stats.MemoryStats
	s.MemUsedMb, s.MemTotalMb = megabytes(min(memory.Usage, memory.Limit)), megabytes(memory.Limit)
	processors := c.driver.options.Limits.Processors
	if processors == 0 {
		processors = float64(max(stats.CPUStats.OnlineCPUs, 1))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, total := time.Now(), stats.CPUStats.CPUUsage.TotalUsage
	if elapsed := now.Sub(c.measuredAt); !c.measuredAt.IsZero() && elapsed > 0 && total >= c.measured {
		s.CpuPct = min(100*float64(total-c.measured)/(float64(elapsed)*processors), 100)
	}
	c.measured, c.measuredAt = total, now
	return nil
}
