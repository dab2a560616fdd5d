package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An initProcess is the first process of a container.
type initProcess struct {
	reaped chan os.Signal

	mu      sync.Mutex // guards out and watched
	out     *json.Encoder
	watched map[int]*watched
	// sweeping is held while leftovers are killed.
	sweeping sync.Mutex
}

type watched struct {
	Watch
	// pidfd is open as long as the process is in initProcess.watched.
	pidfd int
	ended chan struct{}
	// kills is the number of processes that the kernel had ended for lack of memory when the process started.
	kills uint64
	// isOverLimit is set when the process is ended because of its limits.
	isOverLimit bool
}

// runInit serves requests until the standard input ends.
func runInit(s streams) int {
	if os.Getpid() != 1 {
		return s.fail("the agent's init must be the first process of a container")
	}
	if err := protect(); err != nil {
		return s.fail(err.Error())
	}
	// Without a handler, the kernel does not deliver signals of the container's processes to their init.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	i := &initProcess{reaped: make(chan os.Signal, 1), out: json.NewEncoder(s.out), watched: map[int]*watched{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go i.reap(children)
	go i.enforceLimits()
	i.reply(Reply{Version: Version})
	lines := bufio.NewScanner(s.in)
	lines.Buffer(nil, MaxLine)
	for lines.Scan() {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return s.fail("cannot decode a request: " + err.Error())
		}
		// The server bounds the number of requests under way.
		go i.serve(r)
	}
	return 0
}

func (i *initProcess) reply(r Reply) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.out.Encode(r) // if the server has gone, the standard input ends, too
}

func (i *initProcess) serve(r Request) {
	answer := Reply{ID: r.ID}
	var err error
	switch {
	case r.Watch != nil:
		err = i.watch(*r.Watch)
	case r.Signal != nil:
		err = sendSignal(*r.Signal)
	case r.End != 0:
		err = i.end(r.End)
	case r.Sweep:
		err = i.sweep()
	case r.Usage:
		answer.Usage, err = i.usage()
	default:
		err = errors.New("unknown request")
	}
	if err != nil {
		answer.Error = err.Error()
	}
	i.reply(answer)
}

// reap waits for ended children, which are processes that have lost their parents.
func (i *initProcess) reap(children <-chan os.Signal) {
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err == unix.EINTR {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
		}
		select {
		case i.reaped <- syscall.SIGCHLD:
		default:
		}
	}
}

// watch replies after it has opened the process, and reports its end later. The process is held, so that its id is its own.
func (i *initProcess) watch(w Watch) error {
	p, err := readProcess(w.PID)
	if err != nil {
		return err
	}
	if p.parent != 0 {
		return fmt.Errorf("process %d was not started by the engine", w.PID)
	}
	pidfd, err := unix.PidfdOpen(w.PID, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	entry := &watched{Watch: w, pidfd: pidfd, ended: make(chan struct{}), kills: outOfMemoryKills()}
	i.mu.Lock()
	i.watched[w.PID] = entry
	i.mu.Unlock()
	go func() {
		awaitEnd(pidfd)
		i.mu.Lock()
		delete(i.watched, w.PID)
		_ = unix.Close(pidfd)
		isOutOfMemory := entry.isOverLimit || outOfMemoryKills() > entry.kills
		i.mu.Unlock()
		close(entry.ended)
		i.reply(Reply{Ended: w.PID, IsOutOfMemory: isOutOfMemory})
	}()
	return nil
}

// awaitEnd waits until a process has ended.
func awaitEnd(pidfd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return
		}
	}
}

func sendSignal(s Signal) error {
	if s.IsTerminal {
		p, err := readProcess(s.PID)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.foreground > 0 {
			return ignoreGone(unix.Kill(-p.foreground, s.Number))
		}
	}
	return ignoreGone(unix.Kill(s.PID, s.Number))
}

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// patience is how long init tries to end processes. A process that is in an uninterruptible call does not end sooner.
const patience = 5 * time.Second

// end ends a process and all its descendants, which become init's when the process has ended.
func (i *initProcess) end(pid int) error {
	i.mu.Lock()
	w := i.watched[pid]
	var err error
	if w != nil {
		err = ignoreGone(unix.PidfdSendSignal(w.pidfd, unix.SIGKILL, nil, 0))
	}
	i.mu.Unlock()
	if err != nil {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	if w != nil {
		select {
		case <-w.ended:
		case <-time.After(patience):
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	return i.sweep()
}

// sweep kills the processes below init until there is none. A process that forks while the table is read may be missed once,
// so it looks twice.
func (i *initProcess) sweep() error {
	i.sweeping.Lock()
	defer i.sweeping.Unlock()
	clean := 0
	for deadline := time.Now().Add(patience); clean < 2; {
		t, err := readTable()
		if err != nil {
			return err
		}
		found, isWhole := t.leftovers()
		if len(found) == 0 && isWhole {
			clean++
			continue
		}
		clean = 0
		for _, p := range found {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not end", len(found))
		}
		select {
		case <-i.reaped:
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (i *initProcess) usage() ([]Usage, error) {
	t, err := readTable()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	byRoot := make(map[int]*Usage, len(i.watched))
	for pid := range i.watched {
		byRoot[pid] = &Usage{PID: pid}
	}
	for _, p := range t {
		r, err := t.root(p.pid)
		u := byRoot[r.pid]
		if err != nil || u == nil {
			continue
		}
		u.Ticks += p.ticks
		if !p.isEnded {
			u.Processes++
			u.MemoryBytes += memory(p.pid)
		}
	}
	all := make([]Usage, 0, len(byRoot))
	for _, u := range byRoot {
		all = append(all, *u)
	}
	return all, nil
}

// limitsEvery is the interval at which the limits of process groups are checked.
const limitsEvery = 200 * time.Millisecond

// enforceLimits ends process groups that exceed their limits.
func (i *initProcess) enforceLimits() {
	for range time.Tick(limitsEvery) {
		i.mu.Lock()
		isNeeded := false
		for _, w := range i.watched {
			isNeeded = isNeeded || w.MemoryBytes > 0 || w.Processes > 0
		}
		i.mu.Unlock()
		if !isNeeded {
			continue
		}
		for _, pid := range i.overLimit() {
			_ = i.end(pid)
		}
	}
}

// overLimit marks and returns the processes of the groups that exceed their limits.
func (i *initProcess) overLimit() (pids []int) {
	all, err := i.usage()
	if err != nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	memory, processes := map[string]uint64{}, map[string]int{}
	for _, u := range all {
		if w := i.watched[u.PID]; w != nil {
			memory[w.Group] += u.MemoryBytes
			processes[w.Group] += u.Processes
		}
	}
	for pid, w := range i.watched {
		isOverMemory := w.MemoryBytes > 0 && memory[w.Group] > uint64(w.MemoryBytes)
		if isOverMemory || w.Processes > 0 && processes[w.Group] > w.Processes {
			w.isOverLimit = w.isOverLimit || isOverMemory
			pids = append(pids, pid)
		}
	}
	return pids
}

// outOfMemoryKills returns how many processes of the container the kernel has ended for lack of memory; 0 if it is unknown.
func outOfMemoryKills() uint64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if count, found := strings.CutPrefix(line, "oom_kill "); found {
				n, _ := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
				return n
			}
		}
	}
	return 0
}
