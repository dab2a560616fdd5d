package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/tests/await"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// serverVariable has the data directory of a test binary that is a server. See TestMain.
const serverVariable = "ATELIER_LOCAL_TEST_SERVER"

// TestMain makes the test binary a probe of a computer, a server that is killed, or a hostile process, if it is started as such.
func TestMain(m *testing.M) {
	if probe.IsRequested(os.Args) {
		os.Exit(probe.Run(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	if dir := os.Getenv(serverVariable); dir != "" {
		fmt.Fprintln(os.Stderr, serve(dir))
		os.Exit(1)
	}
	if name := os.Getenv("ATTACK"); name != "" {
		runAttack(name)
	}
	os.Exit(m.Run())
}

// crashNode is the node of servers that are killed.
const crashNode = "test-crash"

// alive is a script with a descendant that outlives it if nothing ends it. The named pipe "alive" ends with its last process.
const alive = `trap "" HUP INT TERM; mkfifo alive; (setsid sh -c "exec 3<>alive; echo up; read x <&3" &) ; exec 3<>alive; echo up; read x <&3`

// serve starts a process with a network of its own, prints "ready" and the id of its init, and waits to be killed.
func serve(dir string) error {
	files := &drives{dir: dir, lost: map[string]bool{}}
	network, err := egress.New(egress.Options{Mode: egress.On})
	if err != nil {
		return err
	}
	driver, err := local.New(local.Options{Drives: files, Node: crashNode, Network: network})
	if err != nil {
		return err
	}
	if _, err := driver.Provision(context.Background(), "ws_1", "vm-1"); err != nil {
		return err
	}
	var init int
	p, err := driver.Start(context.Background(), "ws_1", computer.Spec{
		ID: "p1", Group: "terminal", Argv: []string{"sh", "-c", alive},
		Attribute: func(pid int) (err error) { init, err = initOf(pid); return err }, OwnNetwork: driver.OwnNetworks(),
		Prepare: func(ctx context.Context, n computer.Network) error { _, err := n.Listen(ctx, 0); return err },
	})
	if err != nil {
		return err
	}
	output := bufio.NewReader(p.Streams().Stdout)
	for range 2 {
		if line, err := output.ReadString('\n'); err != nil || line != "up\n" {
			return fmt.Errorf("the process has printed %q, %w", line, err)
		}
	}
	if os.Getenv("FROZEN") != "" {
		if err := driver.Freeze(context.Background(), "ws_1", true); err != nil {
			return err
		}
	}
	fmt.Println("ready", init)
	_, err = p.Wait(context.Background())
	return err
}

// initOf returns the init of the computer that a process belongs to.
func initOf(pid int) (int, error) {
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return 0, err
		}
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.HasPrefix(string(command), "atelier-computer\x00") {
			return pid, err
		}
	}
}

// startServer starts a server, and returns its process and the process of its computer's init.
func startServer(t *testing.T, dir string, variables ...string) (server *exec.Cmd, init *os.File) {
	t.Helper()
	server = exec.Command(os.Args[0])
	server.Env = append(append(os.Environ(), serverVariable+"="+dir), variables...)
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	pid, found := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !found {
		t.Fatalf("the server has printed %q, %v", line, err)
	}
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return server, openProcess(t, number)
}

func openProcess(t *testing.T, pid int) *os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, what string, process *os.File) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 30_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("%s has not ended: %v", what, err)
		}
		return
	}
}

// findKeeper returns the keeper of the server.
func findKeeper(t *testing.T) *os.File {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		text, _ := os.ReadFile(path)
		if strings.HasPrefix(string(text), "atelier-keeper\x00"+crashNode+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return openProcess(t, pid)
		}
	}
	t.Fatal("there is no keeper")
	return nil
}

// controlGroups returns the directories of the control groups of a node.
func controlGroups(t *testing.T, node string) (found []string) {
	t.Helper()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "atelier-"+node {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// requireIsolation skips a test on a machine that cannot isolate processes.
func requireIsolation(t *testing.T) {
	t.Helper()
	openHost(t, nil)
}

// TestKilledServerLeavesNothing kills a server. Then the processes of its computer end, and the keeper removes the control groups.
func TestKilledServerLeavesNothing(t *testing.T) {
	requireIsolation(t)
	for _, variable := range []string{"FROZEN=", "FROZEN=yes"} {
		t.Run(variable, func(t *testing.T) {
			dir := t.TempDir()
			server, init := startServer(t, dir, variable)
			keeper := findKeeper(t)
			namespaces := networkNamespaces(t, init)
			held, err := os.OpenFile(filepath.Join(dir, "ws_1", "files", "alive"), os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := server.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, "the keeper", keeper)
			awaitEnd(t, "the init", init)
			if _, err := io.ReadAll(held); err != nil { // until the last process has ended
				t.Error(err)
			}
			awaitUnused(t, namespaces)
			if left := controlGroups(t, crashNode); len(left) > 0 {
				t.Errorf("control groups are left: %q", left)
			}
		})
	}
}

// TestRecover kills a server and its keeper, with a suspended computer, which therefore cannot end by itself.
func TestRecover(t *testing.T) {
	requireIsolation(t)
	dir := t.TempDir()
	server, init := startServer(t, dir, "FROZEN=yes")
	if err := unix.PidfdSendSignal(int(findKeeper(t).Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	driver, err := local.New(local.Options{Drives: &drives{dir: dir, lost: map[string]bool{}}, Node: crashNode})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := driver.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left := controlGroups(t, crashNode); len(left) > 0 {
			t.Errorf("control groups are left: %q", left)
		}
	}()
	found, err := driver.Recover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the init", init)
	if driver.Report().Limits == "" && (len(found) == 0 || found[0].Kind != "cgroup" || found[0].WorkspaceID != "ws_1") {
		t.Errorf("Recover returned %+v", found)
	}
	if found, err := driver.Recover(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("a second Recover returned %+v, %v", found, err)
	}
}

// start starts a process and returns it with its init.
func start(t *testing.T, d *local.Driver, id, script string) (computer.Process, *os.File) {
	t.Helper()
	var init *os.File
	p, err := d.Start(t.Context(), "ws_1", computer.Spec{
		ID: id, Group: "terminal", Argv: []string{"sh", "-c", script},
		Attribute: func(pid int) error {
			parent, err := initOf(pid)
			if err == nil {
				init = openProcess(t, parent)
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, init
}

// TestSampleMeasuresComputer checks that a sample is of the computer and not of the machine.
func TestSampleMeasuresComputer(t *testing.T) {
	d, _ := openHost(t, func(o *local.Options) { o.Limits = computer.Limits{MemoryBytes: 256 << 20, Processors: 1} })
	if reason := d.Report().Limits; reason != "" {
		testmachine.Lacks(t, "without control groups a computer cannot be measured: "+reason)
	}
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Sample(t.Context(), "ws_1"); err != nil || s.GetMemTotalMb() != 256 || s.GetMemUsedMb() != 0 || s.GetCpuPct() != 0 {
		t.Errorf("a computer that does not run: %v, %v", s, err)
	}
	p, _ := start(t, d, "p1", "dd if=/dev/zero of=/tmp/f bs=1M count=64 2>&-; echo ready; while :; do :; done")
	if _, err := io.ReadFull(p.Streams().Stdout, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Sample(t.Context(), "ws_1"); err != nil || s.GetMemUsedMb() < 64 || s.GetMemUsedMb() > 256 {
		t.Errorf("a computer with a file of 64 MiB in memory: %v, %v", s, err)
	}
	for { // until the loop has used processor time, however busy the machine is
		s, err := d.Sample(t.Context(), "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		if s.GetCpuPct() > 0 {
			break
		}
	}
	if err := p.End(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLostComputer kills an init, or the reaper without which nothing can be started any more. The processes are reported as lost, and
// the computer can be used again. The first process is private, so that it does not end with the reaper but with the computer.
func TestLostComputer(t *testing.T) {
	for _, role := range []string{"atelier-computer", "atelier-reaper"} {
		t.Run(role, func(t *testing.T) {
			d, _ := openHost(t, nil)
			if d.Report().Limits != "" && role == "atelier-reaper" {
				if os.Geteuid() == 0 {
					testmachine.Lacks(t, "without control groups a computer has no reaper: "+d.Report().Limits)
				}
				return // nor has one of a server without root
			}
			if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
				t.Fatal(err)
			}
			var killed *os.File
			p, err := d.Start(t.Context(), "ws_1", computer.Spec{
				ID: "p1", Group: "terminal", Argv: []string{"sh", "-c", "read x"}, Private: true,
				Attribute: func(pid int) error {
					init, err := initOf(pid)
					for _, one := range append(descendantsOf(init), init) {
						if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one)); strings.HasPrefix(string(command), role+"\x00") {
							killed = openProcess(t, one)
						}
					}
					return err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.PidfdSendSignal(int(killed.Fd()), unix.SIGKILL, nil, 0); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			exit, err := p.Wait(ctx)
			if err != nil || exit.Reason != computer.EndedLost || exit.Signal != syscall.SIGKILL {
				t.Errorf("got %+v, %v", exit, err)
			}
			p, _ = start(t, d, "p2", "exit 3")
			if exit, err := p.Wait(t.Context()); err != nil || exit.Status != 3 {
				t.Errorf("got %+v, %v", exit, err)
			}
			if _, err := d.Sample(t.Context(), "ws_1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// endIdleTime waits until the computer has no process, and ends its idle time.
func endIdleTime(t *testing.T, d *local.Driver) {
	t.Helper()
	await.True(t, "the idle time of the computer", func() bool {
		ended, err := local.EndIdleTime(d, "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		return ended
	})
}

func TestIdleComputerStops(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p1", "p2"} {
		p, init := start(t, d, id, "exit 3")
		if exit, err := p.Wait(t.Context()); err != nil || exit.Status != 3 {
			t.Errorf("got %+v, %v", exit, err)
		}
		endIdleTime(t, d)
		awaitEnd(t, "the init of a computer without processes", init)
	}
}

// TestSampleOfComputerThatDoesNotStart takes the drive away. The computer is not found until it is there again.
func TestSampleOfComputerThatDoesNotStart(t *testing.T) {
	d, files := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(files.dir, "ws_1", "files")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	spec := computer.Spec{ID: "p1", Group: "terminal", Argv: []string{"true"}}
	for range 3 {
		_, err := d.Start(t.Context(), "ws_1", spec)
		if code(err) != "unavailable" {
			t.Errorf("Start returned %v", err)
		}
		if _, err := d.Sample(t.Context(), "ws_1"); err == nil || code(err) == "unavailable" {
			t.Errorf("Sample returned %v", err)
		}
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for deadline := time.Now().Add(3 * time.Minute); ; <-retry.C {
		_, err := d.Sample(t.Context(), "ws_1")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	p, err := d.Start(t.Context(), "ws_1", spec)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Status != 0 {
		t.Errorf("got %+v, %v", exit, err)
	}
}
