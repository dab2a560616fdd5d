package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/tests/testmachine"
)

// files are the files that the kernel makes in a group of version 2, with values of a group in use.
var files = map[string]string{
	"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": "", "cgroup.procs": "",
	"cgroup.events": "populated 0\nfrozen 0\n", "cgroup.freeze": "0\n", "cgroup.kill": "",
	"memory.max": "max\n", "memory.swap.max": "max\n", "memory.current": "1048576\n", "memory.stat": "anon 4096\ninactive_file 48576\n",
	"memory.events": "low 0\nmax 7\noom 3\noom_kill 2\n", "cpu.max": "max 100000\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
	"pids.max": "max\n", "pids.current": "3\n",
}

// fakeMkdir makes a directory with the files that the kernel would make.
func fakeMkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fakeRmdir removes a directory as the kernel would: not with groups in it.
func fakeRmdir(dir string) error {
	below, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range below {
		if e.IsDir() {
			return unix.EBUSY
		}
	}
	return os.RemoveAll(dir)
}

// A machine is a fake machine: files that stand for the files of /proc, and a folder with the mounted hierarchies.
type machine struct {
	*testing.T
	dir string
}

func newMachine(t *testing.T) machine { return machine{t, t.TempDir()} }

func (m machine) write(name, content string) string {
	m.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
	return path
}

func (m machine) read(parts ...string) string {
	m.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{m.dir}, parts...)...))
	if err != nil {
		m.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// groups makes groups of version 2.
func (m machine) groups(paths ...string) {
	m.Helper()
	for _, path := range paths {
		if err := fakeMkdir(filepath.Join(m.dir, path)); err != nil {
			m.Fatal(err)
		}
	}
}

// open opens the group of the node "node". DIR in mountinfo stands for the machine's folder.
func (m machine) open(mountinfo, own string) (*Root, error) {
	at := m.write("mountinfo", strings.ReplaceAll(mountinfo, "DIR", m.dir))
	return open("node", at, m.write("own", own), fakeMkdir, fakeRmdir)
}

const mountedUnified = "22 1 0:1 / / rw - ext4 /dev/root rw\n30 22 0:26 / DIR/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

func TestFindUnified(t *testing.T) {
	for _, test := range []struct {
		name, mountinfo, own string
		// delegated is the group that systemd has delegated.
		delegated, want string
	}{
		{"root", mountedUnified, "0::/\n", "", "cg"},
		{"service_without_delegation", mountedUnified, "0::/system.slice/a.service\n", "", "cg"},
		{"service_with_delegation", mountedUnified, "0::/system.slice/a.service\n", "cg/system.slice/a.service", "cg/system.slice/a.service"},
		{"subgroup_of_service", mountedUnified, "0::/system.slice/a.service/main\n", "cg/system.slice/a.service", "cg/system.slice/a.service"},
		{"container", strings.ReplaceAll(mountedUnified, "0:26 /", "0:26 /docker/1"), "0::/docker/1\n", "", "cg"},
		{"namespace", strings.ReplaceAll(mountedUnified, "0:26 /", "0:26 /.."), "0::/\n", "", "cg"},
		{"hybrid", "31 22 0:27 / DIR/freezer rw - cgroup cgroup rw,freezer\n" + mountedUnified, "3:freezer:/\n0::/\n", "", "cg"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			m.groups("cg", "cg/system.slice", "cg/system.slice/a.service", "cg/system.slice/a.service/main")
			if test.delegated != "" {
				if err := unix.Setxattr(filepath.Join(m.dir, test.delegated), "user.delegate", []byte("1"), 0); err != nil {
					testmachine.Lacks(t, fmt.Sprint("the file system has no attributes: ", err))
				}
			}
			r, err := m.open(test.mountinfo, test.own)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.dir(memory, ""); !r.unified || got != filepath.Join(m.dir, test.want) {
				t.Errorf("unified %v, base %s, want %s", r.unified, got, test.want)
			}
			for _, dir := range []string{test.want, test.want + "/node"} {
				if got := m.read(dir, "cgroup.subtree_control"); got != "+cpu +memory +pids" {
					t.Errorf("%s passes on the controllers %q", dir, got)
				}
			}
		})
	}
}

func TestFindSeparate(t *testing.T) {
	m := newMachine(t)
	var mounts strings.Builder
	for _, name := range []string{"cpu,cpuacct", "memory", `pid\040s`, "freezer", "systemd"} {
		if err := os.Mkdir(filepath.Join(m.dir, strings.ReplaceAll(name, `\040`, " ")), 0o755); err != nil {
			t.Fatal(err)
		}
		options := strings.ReplaceAll(strings.ReplaceAll(name, `\040`, ""), "systemd", "name=systemd")
		fmt.Fprintf(&mounts, "30 22 0:26 / DIR/%s rw - cgroup cgroup rw,%s\n", name, options)
	}
	const own = "5:name=systemd:/\n4:freezer:/\n3:pids:/user\n2:memory:/user\n1:cpu,cpuacct:/\n0::/\n"
	r, err := open("node", m.write("mountinfo", strings.ReplaceAll(mounts.String(), "DIR", m.dir)), m.write("own", own), mkdir, os.Remove)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cpu,cpuacct", "memory", "pid s", "freezer"} {
		if _, err := os.Stat(filepath.Join(m.dir, name, "node")); err != nil {
			t.Error(err)
		}
	}
	if dirs := r.dirs("node"); r.unified || len(dirs) != 4 {
		t.Errorf("unified %v, directories %q", r.unified, dirs)
	}
}

func TestOpenWithoutControllers(t *testing.T) {
	m := newMachine(t)
	m.groups("cg")
	m.write("cg/cgroup.controllers", "memory pids\n")
	for name, mountinfo := range map[string]string{
		"no hierarchy": "22 1 0:1 / / rw - ext4 /dev/root rw\n", "no cpu": mountedUnified, "damaged": "22 1\n - \nx - cgroup2\n",
	} {
		if _, err := m.open(mountinfo, "0::/\n"); err == nil || !strings.Contains(err.Error(), "mount cgroup2 at /sys/fs/cgroup") {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.write("cg/cgroup.controllers", "cpu memory pids\n")
	refuse := func(dir string) error { return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.EACCES} }
	_, err := open("node", m.write("mountinfo", strings.ReplaceAll(mountedUnified, "DIR", m.dir)), m.write("own", "0::/\n"), refuse, fakeRmdir)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "Delegate=yes") {
		t.Errorf("without permission: %v", err)
	}
}

func TestUnifiedGroup(t *testing.T) {
	m := newMachine(t)
	m.groups("cg")
	r, err := m.open(mountedUnified, "0::/\n")
	if err != nil {
		t.Fatal(err)
	}
	g, err := r.New("c1", Limits{MemoryBytes: 64 << 20, Processors: 0.5, Processes: 100})
	if err != nil {
		t.Fatal(err)
	}
	child, err := g.Child("app:1", Limits{Processors: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Join(42); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"c1/memory.max": "67108864", "c1/memory.swap.max": "0", "c1/cpu.max": "50000 100000", "c1/pids.max": "100",
		"c1/cgroup.subtree_control": "+cpu +memory +pids",
		"c1/app:1/memory.max":       "max", "c1/app:1/cpu.max": "1000 100000", "c1/app:1/pids.max": "max",
		"c1/app:1/cgroup.procs": "", "c1/app:1/_own/cgroup.procs": "42",
	} {
		if got := m.read("cg/node", path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if u, err := g.Usage(); err != nil || u != (Usage{MemoryBytes: 1_000_000, Processor: 1500 * time.Microsecond, Processes: 3}) {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := r.LimitMemory(1 << 30); err != nil || m.read("cg/node/memory.max") != "1073741824" {
		t.Errorf("LimitMemory: %v", err)
	}
	if used, err := r.MemoryUsage(); err != nil || used != 1_000_000 {
		t.Errorf("all groups use %d, %v", used, err)
	}
	if n, err := g.OutOfMemory(); err != nil || n != 2 {
		t.Errorf("%d processes ended, %v", n, err)
	}
	m.write("cg/node/c1/cgroup.events", "populated 1\nfrozen 1\n")
	if err := g.Freeze(true); err != nil || m.read("cg/node/c1/cgroup.freeze") != "1" {
		t.Errorf("Freeze: %v", err)
	}
	if err := g.Freeze(false); err != nil || m.read("cg/node/c1/cgroup.freeze") != "0" {
		t.Errorf("Freeze(false): %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Kill(ended); !errors.Is(err, context.Canceled) || m.read("cg/node/c1/cgroup.kill") != "1" {
		t.Errorf("Kill of a group with processes: %v", err)
	}
	m.write("cg/node/c1/cgroup.events", "populated 0\nfrozen 0\n")
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
	if names, err := r.Leftovers(); err != nil || len(names) > 0 {
		t.Errorf("leftovers %v, %v", names, err)
	}
	if _, err := child.Usage(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("usage of a removed child: %v", err)
	}
}

// TestDelegatedGroup verifies that a base with processes passes on its controllers, which the kernel allows for none of them.
func TestDelegatedGroup(t *testing.T) {
	above := openRoot(t)
	if !above.unified {
		testmachine.Excludes(t, "this machine has version 1")
	}
	g := create(t, above, Limits{})
	delegated, err := g.Child("service", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	dir := delegated.dir(memory)
	if err := errors.Join(write(dir, "cgroup.subtree_control", "-cpu -memory -pids"), unix.Setxattr(dir, "user.delegate", []byte("1"), 0)); err != nil {
		t.Fatal(err)
	}
	m := start(t, delegated, "while read x; do echo $x; done")
	if err := write(dir, "cgroup.procs", strconv.Itoa(m.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	at := newMachine(t)
	base := strings.TrimSuffix(above.dir(memory, ""), "/")
	r, err := open("node", at.write("mountinfo", "30 22 0:26 / "+base+" rw - cgroup2 cgroup2 rw\n"),
		at.write("own", "0::"+strings.TrimPrefix(dir, base)+"\n"), mkdir, os.Remove)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.dir(memory, ""); got != dir {
		t.Errorf("base %s, want %s", got, dir)
	}
	if moved, err := listProcesses(filepath.Join(dir, "_server")); err != nil || fmt.Sprint(moved) != fmt.Sprint([]int{m.Process.Pid}) {
		t.Errorf("processes %v were moved, %v", moved, err)
	}
	computer, err := r.New("c1", Limits{Processes: 10})
	if err != nil {
		t.Fatal(err)
	}
	if start(t, computer, "echo runs").line(t) != "runs" {
		t.Error("a process in a delegated group does not run")
	}
}

// TestReadMemory has a service in a slice with the lowest limit. The base is the service if it was delegated, and otherwise the root.
func TestReadMemory(t *testing.T) {
	const own = "0::/system.slice/a.service\n"
	m := newMachine(t)
	m.groups("cg", "cg/system.slice", "cg/system.slice/a.service")
	at, groups := m.write("mountinfo", strings.ReplaceAll(mountedUnified, "DIR", m.dir)), m.write("own", own)
	expect := func(name string, ofBase bool, want Memory) {
		t.Helper()
		if got := readMemory(at, groups, ofBase); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	expect("no limit", false, Memory{})
	m.write("cg/system.slice/a.service/memory.max", "2000000000\n")
	m.write("cg/system.slice/memory.max", "1500000000\n")
	expect("the service", false, Memory{1_000_000, 1_500_000_000})
	expect("computers beside the service", true, Memory{})
	if err := unix.Setxattr(filepath.Join(m.dir, "cg/system.slice/a.service"), "user.delegate", []byte("1"), 0); err != nil {
		testmachine.Lacks(t, fmt.Sprint("the file system has no attributes: ", err))
	}
	expect("computers in the service", true, Memory{1_000_000, 1_500_000_000})
	if got := readMemory(at, filepath.Join(m.dir, "missing"), true); got != (Memory{}) {
		t.Errorf("without a file: %+v", got)
	}
}
