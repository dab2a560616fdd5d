package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A process is an entry of the table of processes.
type process struct {
	pid, parent int
	// isEnded is set for a process with nothing left but its exit status.
	isEnded bool
	// foreground is the foreground process group of the process's terminal, or -1.
	foreground int
	ticks      uint64
	started    uint64
}

// readProcess reads an entry of the proc file system.
func readProcess(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseProcess(pid, text)
}

// parseProcess parses a line of /proc/<pid>/stat; see proc_pid_stat(5). The name of the program, in parentheses, may contain
// any characters.
func parseProcess(pid int, text []byte) (process, error) {
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	const stateField = 3 // the first field after the name
	if end < 0 || len(fields) < 22-stateField+1 {
		return process{}, fmt.Errorf("process %d has an unknown format", pid)
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-stateField], 10, 64)
		return n
	}
	state := fields[0]
	p := process{
		pid: pid, parent: int(number(4)), isEnded: state == "Z" || state == "X", foreground: int(number(8)),
		started: uint64(number(22)),
	}
	for field := 14; field <= 17; field++ { // user, system, and both of the children that were waited for
		p.ticks += uint64(number(field))
	}
	return p, nil
}

// memory returns the bytes of memory that a process uses, 0 if the process has ended. It reads statm: since Linux 6.2, stat leaves out
// up to some hundred KiB for each processor of the machine, which is all of a small process.
func memory(pid int) uint64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), " ")
	resident, _, _ := strings.Cut(rest, " ")
	pages, _ := strconv.ParseUint(resident, 10, 64)
	return pages * uint64(os.Getpagesize())
}

// A table has the processes of the container by their ids.
type table map[int]process

func readTable() (table, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	t := make(table, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readProcess(pid)
		if err != nil {
			if isGone(err) {
				continue
			}
			return nil, err
		}
		t[pid] = p
	}
	return t, nil
}

// errBrokenChain means that a process's ancestors have changed while the table was read.
var errBrokenChain = errors.New("a process's parent has ended")

// root returns the oldest ancestor of a process below the engine or init: the parent of the ancestor is outside of the
// container, or is init.
func (t table) root(pid int) (process, error) {
	for range len(t) + 1 {
		p, found := t[pid]
		if !found {
			return process{}, errBrokenChain
		}
		if p.parent == 0 || p.parent == 1 {
			return p, nil
		}
		pid = p.parent
	}
	return process{}, errBrokenChain // a cycle: a process id was used again
}

// leftovers returns the running processes below init. isWhole is false if others may have been missed.
func (t table) leftovers() (found []process, isWhole bool) {
	isWhole = true
	for _, p := range t {
		if p.pid == 1 || p.isEnded {
			continue
		}
		switch r, err := t.root(p.pid); {
		case err != nil:
			isWhole = false
		case r.parent == 1:
			found = append(found, p)
		}
	}
	return found, isWhole
}

// IsStartedAt reports whether a process started at a time in clock ticks since boot.
func IsStartedAt(pid int, ticks uint64) bool {
	p, err := readProcess(pid)
	return err == nil && p.started == ticks
}
