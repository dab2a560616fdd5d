package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
)

// testRestrictions reads the kernel's restrictions of a process and its container.
func testRestrictions(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	for name, test := range map[string]struct{ script, want string }{
		"capabilities":       {"grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f 2 | sort -u", "0000000000000000"},
		"new privileges":     {"grep NoNewPrivs /proc/self/status | cut -f 2", "1"},
		"filter":             {"grep Seccomp: /proc/self/status | cut -f 2", "2"},
		"root file system":   {"touch /bin/new 2>/dev/null || echo refused", "refused"},
		"program":            {"echo x >" + computer.ProgramPath + " 2>/dev/null || echo refused", "refused"},
		"temporary files":    {"dd if=/dev/zero of=/tmp/big bs=1M count=65 2>/dev/null || du -m /tmp/big | cut -f 1; rm /tmp/big", "64"},
		"temporary program":  {"for d in /tmp /var/tmp /run; do cp /bin/busybox $d/sh && $d/sh -c 'echo runs'; rm $d/sh; done", "runs\nruns\nruns"},
		"loopback only":      {"ls /sys/class/net", "lo"},
		"devices":            {"mknod disk b 254 0 2>/dev/null || echo refused", "refused"},
		"init's memory":      {"cat /proc/1/environ 2>/dev/null || echo refused", "refused"},
		"init's signals":     {"kill -TERM 1; kill -KILL 1; kill -QUIT 1; kill -USR2 1; echo alive", "alive"},
		"set-user-id":        {"touch f; for m in 4755 2755 6755; do chmod $m f 2>/dev/null || echo refused; done", "refused\nrefused\nrefused"},
		"ordinary modes":     {"touch g; chmod 750 g; stat -c %a g; mkdir -m 1777 d; stat -c %a d", "750\n1777"},
		"score":              {"cat /proc/self/oom_score_adj", "500"},
		"server's variables": {"env | grep -c ATELIER_TEST", "0"},
	} {
		t.Setenv("ATELIER_TEST", "secret")
		if got := strings.TrimSpace(f.run(t, shell("p", test.script)).out); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	list, err := f.engine.Client(t).ContainerList(t.Context(), client.ContainerListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	inspected, err := f.engine.Client(t).ContainerInspect(t.Context(), list.Items[0].ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := inspected.Container
	if c.Config.Labels["run.atelier.node"] != "node-1" || c.Config.Labels["run.atelier.workspace"] != workspace {
		t.Errorf("the labels are %v", c.Config.Labels)
	}
	if c.HostConfig.Memory != 256<<20 || c.HostConfig.PidsLimit == nil || *c.HostConfig.PidsLimit != 200 || c.HostConfig.Privileged ||
		c.HostConfig.OomScoreAdj != 400 {
		t.Errorf("the limits are %+v", c.HostConfig.Resources)
	}
}

// testAttributedProcess verifies that Attribute gets the process id of the program.
func testAttributedProcess(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	s, attributed := shell("p1", "echo $$ >inside; read line"), 0
	s.Attribute = func(pid int) error { attributed = pid; return nil }
	p, err := f.Start(t.Context(), workspace, s)
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.Stat(f.options.Drives.(drives).files(workspace))
	if err != nil || attributed == 0 {
		t.Fatalf("process %d, %v", attributed, err)
	}
	if all := f.Processes(workspace); !slices.Contains(all, attributed) || slices.Contains(all, os.Getpid()) {
		t.Errorf("processes of the container: %v", all)
	}
	seen, err := os.Stat(filepath.Join("/proc", strconv.Itoa(attributed), "cwd"))
	if err != nil || !os.SameFile(seen, files) {
		t.Errorf("process %d has another working directory: %v", attributed, err)
	}
	if r := finish(t, p); r.exit.Status == 0 {
		t.Errorf("read at the end of the input ended with %+v", r)
	}
}

// testDescendantsWithoutEnvironment starts descendants that have no variable that the driver gave to the process.
func testDescendantsWithoutEnvironment(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	other, err := f.Start(t.Context(), workspace, shell("other", "(sleep 1000 &); echo ready; read line; pidof sleep | wc -w"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, other, "ready")
	r := f.run(t, shell("p1", "(env -i setsid /bin/sh -c '(/bin/setsid /bin/sleep 1000 &)' &); while [ $(pidof sleep | wc -w) -ne 2 ]; do :; done; echo ended"))
	if r.out != "ended\n" {
		t.Fatalf("got %+v", r)
	}
	if left := f.run(t, shell("p2", "pidof sleep | wc -w")).out; left != "1\n" {
		t.Errorf("%s processes are left, want that of the other process", strings.TrimSpace(left))
	}
	if _, err := other.Streams().Stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, other); r.out != "1\n" || r.exit.Status != 0 {
		t.Errorf("the other process: got %+v", r)
	}
}

func testOutOfMemory(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine, func(o *docker.Options) { o.Limits.MemoryBytes, o.MaxMemory = 64<<20, 1<<30 })
	s := shell("p1", "exec tail -n 1 /dev/zero")
	if r := f.run(t, s); r.exit.Reason != computer.EndedOutOfMemory || r.exit.Status != 137 {
		t.Errorf("got %+v", r.exit)
	}
	if r := f.run(t, shell("p2", "kill -KILL $$")); r.exit.Reason != "" || r.exit.Status != 137 {
		t.Errorf("after a process that was out of memory: got %+v", r.exit)
	}
	p, err := f.Start(t.Context(), workspace, shell("p3", "echo ready; read line"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready") // a process that has just started a program uses no memory that is counted
	if used, limit, err := f.Memory(t.Context(), ""); err != nil || used == 0 || used > 64<<20 || limit != 1<<30 {
		t.Errorf("all containers use %d of %d, %v", used, limit, err)
	}
	finish(t, p)
}

// testStuckContainer measures a container with an init that does not answer: the measurement repeats the last values, and delays
// no other measurement.
func testStuckContainer(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine, func(o *docker.Options) { o.Limits.MemoryBytes, o.MaxMemory, o.Timeout = 64<<20, 1<<30, 10*time.Minute })
	p, err := f.Start(t.Context(), workspace, shell("p1", "echo ready; read line"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	before, _, err := f.Memory(t.Context(), "")
	if err != nil || before == 0 {
		t.Fatalf("all containers use %d, %v", before, err)
	}
	api := engine.Client(t)
	list, err := api.ContainerList(t.Context(), client.ContainerListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	if _, err := api.ContainerPause(t.Context(), list.Items[0].ID, client.ContainerPauseOptions{}); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 2 {
		if used, limit, err := f.Memory(limited, ""); err != nil || used == 0 || limit != 1<<30 {
			t.Errorf("with a stuck container, all use %d of %d, %v", used, limit, err)
		}
	}
	if groups, err := f.Usage(limited, workspace); err != nil || len(groups) != 1 {
		t.Errorf("the stuck container: %v, %v", groups, err)
	}
	if _, err := api.ContainerUnpause(t.Context(), list.Items[0].ID, client.ContainerUnpauseOptions{}); err != nil {
		t.Fatal(err)
	}
	finish(t, p)
}
