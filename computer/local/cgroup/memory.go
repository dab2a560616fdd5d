package cgroup

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LimitMemory limits the memory of all groups of the node together. Version 1 does not accept a limit below the present use.
func (r *Root) LimitMemory(bytes int64) error {
	g := &Group{root: r, path: r.parent}
	if !r.unified {
		// A limit on memory must not exceed the limit with swap space, which an earlier process of the node may have set.
		_ = write(g.dir(memory), "memory.memsw.limit_in_bytes", "-1")
	}
	return g.wrap("limit", g.limit(Limits{MemoryBytes: bytes}))
}

// MemoryUsage returns the memory that all groups of the node use together, without file content that the kernel can evict at once.
func (r *Root) MemoryUsage() (uint64, error) {
	g := &Group{root: r, path: r.parent}
	used, err := g.memoryUsage()
	return used, g.wrap("measure", err)
}

// A Memory is the use and the limit of a control group. A Limit of 0 means that there is none.
type Memory struct{ Used, Limit uint64 }

// OwnMemory returns the memory of the control group that restricts this process most. The process's group and the mounted groups above
// it restrict the process; the group with the lowest limit counts.
func OwnMemory() Memory { return readMemory("/proc/self/mountinfo", "/proc/self/cgroup", false) }

// BaseMemory returns the memory of the control group that restricts the base of the node's groups most: the base or a group above it,
// whichever has the lowest limit. It returns OwnMemory if this process may change no base, so that computers are in the process's group.
func BaseMemory() Memory { return readMemory("/proc/self/mountinfo", "/proc/self/cgroup", true) }

// Available returns the bytes of memory of the machine, or of the control group that restricts computers (BaseMemory) if the group has less; 0
// if they are unknown.
func Available() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	machine := info.Totalram * uint64(info.Unit)
	return min(machine, cmp.Or(BaseMemory().Limit, machine))
}

// readMemory is OwnMemory or, with ofBase, BaseMemory, with the paths of the files that describe the mounts and the process's groups.
func readMemory(mountinfo, own string, ofBase bool) (least Memory) {
	mounts, err := readMounts(mountinfo)
	if err != nil {
		return Memory{}
	}
	groups, err := os.ReadFile(own)
	if err != nil {
		return Memory{}
	}
	for _, m := range mounts {
		controller := ""
		if !m.unified {
			controller = memory
		}
		path, is := ownGroup(string(groups), controller)
		if !is || !m.unified && !strings.Contains(strings.Join(m.controllers, ","), memory) {
			continue
		}
		for _, dir := range m.upward(path, ofBase) {
			if found := m.readMemory(dir); found.Limit > 0 && (least.Limit == 0 || found.Limit < least.Limit) {
				least = found
			}
		}
	}
	return least
}

// upward returns the directories of the process's group own and of all groups above it. With ofBase it begins at the base instead, if
// this process may change a base.
func (m mount) upward(own string, ofBase bool) (dirs []string) {
	at := m.point
	if below, err := filepath.Rel(m.root, own); err == nil && below != ".." && !strings.HasPrefix(below, "../") {
		at = filepath.Join(m.point, below)
	}
	if ofBase {
		for _, base := range m.candidates(own) {
			if unix.Access(base, unix.W_OK) == nil {
				at = base
				break
			}
		}
	}
	for ; len(at) >= len(m.point); at = filepath.Dir(at) {
		dirs = append(dirs, at)
	}
	return dirs
}

// readMemory reads the use and the limit of a group. Version 1 has a very large number for no limit.
func (m mount) readMemory(dir string) Memory {
	h := hierarchies{unified: m.unified, bases: map[string]string{memory: dir}}
	limit, err := readNumber(dir, map[bool]string{false: "memory.limit_in_bytes", true: "memory.max"}[m.unified])
	if err != nil || limit <= 0 || limit > math.MaxInt64/2 {
		return Memory{} // "max" is no number
	}
	used, err := (&Group{root: &Root{hierarchies: h}}).memoryUsage()
	if err != nil {
		return Memory{}
	}
	return Memory{used, uint64(limit)}
}
