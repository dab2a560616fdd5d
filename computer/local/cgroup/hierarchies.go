package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The controllers that limit and measure groups. Version 2 has cpuacct in cpu, and suspends without a controller.
const (
	cpu     = "cpu"
	cpuacct = "cpuacct"
	freezer = "freezer"
	memory  = "memory"
	pids    = "pids"
)

var (
	unifiedControllers  = []string{cpu, memory, pids}
	separateControllers = []string{cpu, cpuacct, freezer, memory, pids}
)

// hierarchies are the directories below which a node may create groups.
type hierarchies struct {
	// unified is set for version 2.
	unified bool
	// bases has the base for each controller. Controllers of one hierarchy have the same.
	bases map[string]string
}

// dir returns the directory of a group in the hierarchy of a controller.
func (h hierarchies) dir(controller, path string) string {
	return filepath.Join(h.bases[controller], path)
}

// dirs returns the directories of a group in all hierarchies.
func (h hierarchies) dirs(path string) (dirs []string) {
	for _, base := range slices.Compact(slices.Sorted(maps.Values(h.bases))) {
		dirs = append(dirs, filepath.Join(base, path))
	}
	return dirs
}

// A mount is a line of /proc/self/mountinfo about a hierarchy.
type mount struct {
	// root is the group of the hierarchy that is mounted at point.
	root, point string
	unified     bool
	// controllers are the controllers of a hierarchy of version 1.
	controllers []string
}

// findHierarchies returns the hierarchies below which a node can create groups, the best first. It returns an error if there are
// none. Its arguments are the paths of files with the contents of /proc/self/mountinfo and /proc/self/cgroup.
func findHierarchies(mountinfo, own string) ([]hierarchies, error) {
	mounts, err := readMounts(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("cgroup: cannot find the control groups: %w", err)
	}
	groups, err := os.ReadFile(own)
	if err != nil {
		return nil, fmt.Errorf("cgroup: cannot find the process's control group: %w", err)
	}
	var found []hierarchies
	for _, m := range mounts {
		if m.unified && m.hasControllers() {
			path, _ := ownGroup(string(groups), "")
			for _, base := range m.candidates(path) {
				h := hierarchies{unified: true, bases: map[string]string{}}
				for _, controller := range separateControllers {
					h.bases[controller] = base
				}
				found = append(found, h)
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	bases := map[string]string{}
	for _, m := range mounts {
		for _, controller := range m.controllers {
			if path, is := ownGroup(string(groups), controller); is && bases[controller] == "" {
				bases[controller] = m.candidates(path)[0]
			}
		}
	}
	for _, controller := range separateControllers {
		if bases[controller] == "" {
			return nil, fmt.Errorf("cgroup: cannot limit processes: no control groups with the controller %s are mounted; "+
				"mount cgroup2 at /sys/fs/cgroup", controller)
		}
	}
	return []hierarchies{{bases: bases}}, nil
}

// readMounts returns the mounted hierarchies. Section 3.5 of proc(5) has the format of the lines.
func readMounts(mountinfo string) (mounts []mount, err error) {
	file, err := os.Open(mountinfo)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{root: unescape(at[3]), point: unescape(at[4]), unified: kind[0] == "cgroup2"}
		if kind[0] == "cgroup" {
			for option := range strings.SplitSeq(kind[2], ",") {
				if slices.Contains(separateControllers, option) {
					m.controllers = append(m.controllers, option)
				}
			}
		}
		if m.unified || len(m.controllers) > 0 {
			mounts = append(mounts, m)
		}
	}
	return mounts, lines.Err()
}

// unescape replaces the octal escapes of a path in /proc/self/mountinfo.
func unescape(path string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(path, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if code, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8); err == nil {
			b.WriteByte(byte(code))
			after = after[3:]
		} else {
			b.WriteByte('\\')
		}
		path = after
	}
}

// ownGroup returns the path of this process's group in the hierarchy of a controller; "" is version 2.
func ownGroup(groups, controller string) (path string, is bool) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2], true
		}
	}
	return "", false
}

// hasControllers reports whether a hierarchy of version 2 has the controllers that are needed.
func (m mount) hasControllers() bool {
	content, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers"))
	if err != nil {
		return false
	}
	has := strings.Fields(string(content))
	return !slices.ContainsFunc(unifiedControllers, func(needed string) bool { return !slices.Contains(has, needed) })
}

// candidates returns the directories that may be a base: the nearest group at or above the process's group own that was
// delegated, if there is one, and the root of the hierarchy as it is mounted.
func (m mount) candidates(own string) []string {
	below, err := filepath.Rel(m.root, own)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		return []string{m.point}
	}
	for dir := filepath.Join(m.point, below); len(dir) > len(m.point); dir = filepath.Dir(dir) {
		if isDelegated(dir) {
			return []string{dir, m.point}
		}
	}
	return []string{m.point}
}

// isDelegated reports whether systemd has marked a group as delegated (systemd.resource-control(5), Delegate=).
func isDelegated(dir string) bool {
	for _, attribute := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, attribute, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// enableInBase passes the controllers on to the groups below the base of version 2. The kernel does not allow that while the
// base has processes, unless it is the root of the hierarchy: enableInBase then moves them to a leaf.
func (r *Root) enableInBase() error {
	base := r.bases[memory]
	err := r.enable(base)
	for range 100 { // processes may be started in the base while they are moved
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		if err := r.moveToLeaf(base, "_server"); err != nil {
			return err
		}
		err = r.enable(base)
	}
	return err
}

// enable passes the controllers on to the groups below a group of version 2.
func (r *Root) enable(dir string) error {
	return write(dir, "cgroup.subtree_control", "+"+strings.Join(unifiedControllers, " +"))
}

// moveToLeaf moves the processes in a group of version 2 to a leaf of it.
func (r *Root) moveToLeaf(dir, leaf string) error {
	to := filepath.Join(dir, leaf)
	if err := r.mkdir(to); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	processes, err := listProcesses(dir)
	if err != nil {
		return err
	}
	for _, pid := range processes {
		if err := write(to, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// countBelow makes the limits of a group of version 1 include the groups below it. Kernels from 5.11 always do.
func (r *Root) countBelow(dir string) error {
	const file = "memory.use_hierarchy"
	if n, err := readNumber(dir, file); err == nil && n == 0 {
		return write(dir, file, "1")
	}
	return nil
}
