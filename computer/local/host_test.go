package local_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// openHost returns a driver that runs processes, until the end of the test. It skips the test if this machine cannot isolate
// processes; on a machine that builds changes that is a failure.
func openHost(t testing.TB, change func(*local.Options)) (*local.Driver, *drives) {
	t.Helper()
	files := &drives{dir: t.TempDir(), lost: map[string]bool{}}
	name := fnv.New64a()
	_, _ = name.Write([]byte(files.dir))
	o := local.Options{Drives: files, Node: fmt.Sprintf("test-%x", name.Sum64())}
	if change != nil {
		change(&o)
	}
	driver, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := driver.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := driver.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reason := driver.Report().Isolation; reason != "" && !o.AllowUnisolated {
		testmachine.Lacks(t, "this machine cannot isolate processes: "+reason)
	}
	return driver, files
}

// listen is a Perl program that listens on a port and copies the first connection to its output. Perl is on every Debian.
const listen = `use IO::Socket::INET; $|=1; my $s=IO::Socket::INET->new(LocalAddr=>"127.0.0.1",LocalPort=>%d,Listen=>5,ReuseAddr=>1) or die $!;
print "ready\n"; my $c=$s->accept; while (sysread($c,my $b,4096)) { print $b }`

func subject(d *local.Driver, files *drives) computertest.Subject {
	limited := d.Report().Limits == ""
	var exposes []string
	if d.Report().Unisolated {
		exposes = computertest.ExposedInOneNamespace()
	}
	return computertest.Subject{
		Exposes: exposes,
		Driver:  d, Host: d, Isolated: d.Report().Isolation == "", LimitsMemory: limited, LimitsProcesses: limited, Freezes: true,
		Files: func(workspaceID string) string { return filepath.Join(files.dir, workspaceID, "files") },
		Serve: func(port int) []string { return []string{"perl", "-e", fmt.Sprintf(listen, port)} },
	}
}

func TestHostConformance(t *testing.T) {
	d, files := openHost(t, nil)
	t.Logf("%v", d.Report().LogValue())
	computertest.TestHost(t, subject(d, files))
}

// TestHostConformanceWithoutControlGroups tests that descendants end with their process although there is no control group.
// TestHostConformanceUnprivileged runs the other tests without control groups.
func TestHostConformanceWithoutControlGroups(t *testing.T) {
	race.Skip(t, "TestHostConformance is run with it")
	d, files := openHost(t, nil)
	local.PretendNoControlGroups(d)
	computertest.TestEnds(t, subject(d, files))
}

// TestHostConformanceUnisolated tests plain processes, with control groups and without.
func TestHostConformanceUnisolated(t *testing.T) {
	race.Skip(t, "TestHostConformance is run with it")
	for name, test := range map[string]struct {
		limited bool
		run     func(*testing.T, computertest.Subject)
	}{"with control groups": {true, computertest.TestEnds}, "without control groups": {false, computertest.TestHost}} {
		t.Run(name, func(t *testing.T) {
			d, files := openHost(t, func(o *local.Options) {
				local.PretendNoIsolation(o)
				o.AllowUnisolated = true
			})
			if !test.limited {
				local.PretendNoControlGroups(d)
			}
			test.run(t, subject(d, files))
		})
	}
}

func TestHostRefusesToRunUnisolated(t *testing.T) {
	files := &drives{dir: t.TempDir(), lost: map[string]bool{}}
	o := local.Options{Drives: files, Node: "test-refuses"}
	local.PretendNoIsolation(&o)
	driver, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	_, err = driver.Start(t.Context(), "ws_1", computer.Spec{ID: "p1", Group: "terminal", Argv: []string{"true"}})
	refused, is := errors.AsType[*entity.Error](err)
	if !is || refused.Code != entity.Forbidden || !strings.Contains(refused.Message, local.ErrCannotIsolate.Error()) {
		t.Errorf("Start returned %v", err)
	}
	if _, err := driver.Sample(t.Context(), "ws_1"); err != nil {
		t.Errorf("Sample returned %v", err)
	}
	if err := driver.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestExamination opens drivers on a machine that can only isolate nested processes. Without control groups nothing else is needed; with
// them code is refused, and the group that was made for the examination is gone.
func TestExamination(t *testing.T) {
	for node, isIsolated := range map[string]bool{"a name that no control group may have": true, "test-examination": false} {
		o := local.Options{Drives: &drives{dir: t.TempDir(), lost: map[string]bool{}}, Node: node}
		local.PretendNoSharedNamespace(&o)
		driver, err := local.New(o)
		if err != nil {
			t.Fatal(err)
		}
		report := driver.Report()
		if err := driver.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !isIsolated && report.Limits != "" {
			t.Log("this machine has no control groups: " + report.Limits)
			continue
		}
		if (report.Isolation == "") != isIsolated {
			t.Errorf("%s: got %+v", node, report)
		}
		if groups := controlGroups(t, node); len(groups) > 0 {
			t.Errorf("%s: the groups %q are left", node, groups)
		}
	}
}

// code returns the code of an error, or "" if it has none.
func code(err error) entity.Code {
	if e, is := errors.AsType[*entity.Error](err); is {
		return e.Code
	}
	return ""
}

// TestHostConformanceUnprivileged runs the suite in a process of another user than root.
func TestHostConformanceUnprivileged(t *testing.T) {
	race.Skip(t, "TestHostConformance is run with it")
	if os.Geteuid() != 0 {
		return // the other tests run without privileges already
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "atelier-unprivileged-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// The user may not enter the folder of the test binary, and computers have the program by its path.
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "local.test")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "-test.run=^(TestHostConformance|TestLostComputer)$", "-test.v")
	command.Env = []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), "CI=" + os.Getenv("CI")}
	command.Dir = dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	if strings.Contains(string(output), "this machine cannot isolate") {
		testmachine.Lacks(t, "a process of another user than root cannot isolate processes on this machine")
	}
	if !strings.Contains(string(output), "unprivileged=true") {
		t.Errorf("the test was not run without privileges:\n%s", output)
	}
}

// TestProcessesAreLimitedWithoutControlGroups forks more than the limit of the computer. The kernel counts the processes of a user of
// the machine: the user of this computer is one that the computers of other tests, which may run at the same time, do not have.
func TestProcessesAreLimitedWithoutControlGroups(t *testing.T) {
	d, _ := openHost(t, func(o *local.Options) { o.Limits.Processes, o.FirstUID = 20, 1<<30 })
	local.PretendNoControlGroups(d)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	script := "mkfifo f; i=0; while [ $i -lt 100 ]; do cat < f & i=$((i+1)); done; echo all"
	p, err := d.Start(t.Context(), "ws_1", computer.Spec{ID: "p1", Group: "terminal", Argv: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	output, err := io.ReadAll(p.Streams().Stdout)
	if err != nil || strings.Contains(string(output), "all") {
		t.Errorf("got %q, %v", output, err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Status == 0 {
		t.Errorf("got %+v, %v", exit, err)
	}
}
