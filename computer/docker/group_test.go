package docker_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
)

// testGroupOfAll ends a process that uses less than its container may, but more than the group of all containers: the kernel enforces the
// limit of that group, and the process has ended because memory was short.
func testGroupOfAll(t *testing.T, engine *dockertest.Engine) {
	group := engine.MemoryGroup(t, 64<<20)
	f := start(t, engine, func(o *docker.Options) { o.CgroupParent = group })
	s, groups := shell("p1", "read line; exec tail -n 1 /dev/zero"), ""
	s.Attribute = func(pid int) error {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		groups = string(text)
		return err
	}
	p, err := f.Start(t.Context(), workspace, s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(groups, ":"+group+"/") {
		t.Errorf("the process is not in %s:\n%s", group, groups)
	}
	if r := finish(t, p); r.exit.Reason != computer.EndedOutOfMemory || r.exit.Status != 137 {
		t.Errorf("got %+v", r.exit)
	}
}
