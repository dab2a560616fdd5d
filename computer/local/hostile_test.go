package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// patience limits each wait of the tests.
const patience = 3 * time.Minute

// An enemy is a computer in which hostile processes run.
type enemy struct {
	driver *local.Driver
	id     string
	// files is the folder of the drive on this machine.
	files   string
	started int
	// ownNetworks gives each process a network of its own.
	ownNetworks bool
	planned     []refusal
}

// provision provisions a computer, with the test program on its drive.
func provision(t *testing.T, d *local.Driver, files local.Drives, id string) *enemy {
	t.Helper()
	if _, err := d.Provision(t.Context(), id, "vm-1"); err != nil {
		t.Fatal(err)
	}
	e := &enemy{driver: d, id: id, files: filepath.Join(files.Dir(), id, "files")}
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.files, "attack"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	return e
}

// spec returns the spec of a process that runs a shell script.
func (e *enemy) spec(script string) computer.Spec {
	e.started++
	return computer.Spec{
		ID: fmt.Sprintf("p%d", e.started), Group: "session:s1", Argv: []string{"sh", "-c", script}, OwnNetwork: e.ownNetworks,
	}
}

// An attack is a hostile process.
type attack struct {
	computer.Process
	out *bufio.Reader
}

func (e *enemy) begin(t *testing.T, s computer.Spec) *attack {
	t.Helper()
	p, err := e.driver.Start(t.Context(), e.id, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.End(ctx); err != nil {
			t.Error(err)
		}
	})
	if p.Streams().Stderr != nil {
		go func() { _, _ = io.Copy(io.Discard, p.Streams().Stderr) }()
	}
	return &attack{Process: p, out: bufio.NewReader(p.Streams().Stdout)}
}

func (e *enemy) start(t *testing.T, script string) *attack {
	t.Helper()
	return e.begin(t, e.spec(script))
}

func (a *attack) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := a.out.ReadString('\n'); strings.TrimSpace(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func (a *attack) wait(t *testing.T) computer.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { _, _ = io.Copy(io.Discard, a.out) }()
	exit, err := a.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// run runs a script to its end and returns its output.
func (e *enemy) run(t *testing.T, script string) string {
	t.Helper()
	a := e.start(t, script)
	_ = a.Streams().Stdin.Close()
	out, err := io.ReadAll(a.out)
	if err != nil {
		t.Fatal(err)
	}
	a.wait(t)
	return string(out)
}

// attackSpec returns the spec of an attack.
func (e *enemy) attackSpec(name string, arguments ...string) computer.Spec {
	s := e.spec("")
	s.Argv, s.Env = append([]string{"/drive/attack"}, arguments...), []string{"ATTACK=" + name}
	return s
}

// attack runs an attack and returns "succeeded" or the name of its error.
func (e *enemy) attack(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	a := e.begin(t, e.attackSpec(name, arguments...))
	out, err := io.ReadAll(a.out)
	if err != nil {
		t.Fatal(err)
	}
	a.wait(t)
	return strings.TrimSpace(string(out))
}

// A refusal is an attack and the errors that it may fail with, separated by "|".
type refusal struct {
	want string
	call []string
}

// refuses plans an attack, which must fail with one of some errors, separated by "|".
func (e *enemy) refuses(want, name string, arguments ...string) {
	e.planned = append(e.planned, refusal{want, append([]string{name}, arguments...)})
}

// settle runs the planned attacks, in one process, and verifies their errors.
func (e *enemy) settle(t *testing.T) {
	t.Helper()
	var arguments []string
	for _, one := range e.planned {
		arguments = append(arguments, strings.Join(one.call, separator))
	}
	lines := strings.Split(e.attack(t, "batch", arguments...), "\n")
	if len(lines) != len(e.planned) {
		t.Fatalf("%d attacks have %d results: %q", len(e.planned), len(lines), lines)
	}
	for i, one := range e.planned {
		if !slices.Contains(strings.Split(one.want, "|"), lines[i]) {
			t.Errorf("%q: %q, want %s", one.call, lines[i], one.want)
		}
	}
	e.planned = nil
}

// works verifies that an attack would succeed outside of a computer, with the rights of this process, if this process is root.
func works(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if got := attackOutside(t, nil, os.Args[0], name, arguments...); got != "succeeded" {
		t.Errorf("the attack %s %q does not work outside of a computer: %q", name, arguments, got)
	}
}

func TestHostileMounts(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	e := provision(t, d, files, "ws_1")
	for _, name := range []string{"mount", "remount", "open_tree", "chroot", "mount_namespace"} {
		works(t, name)
	}
	for _, one := range [][]string{
		{"mount"}, {"remount"}, {"open_tree"}, {"chroot"}, {"mount_namespace"}, {"user_namespace"}, {"clone_namespace"},
		{"unmount", "/proc/sys"}, {"unmount", "/proc/keys"}, {"unmount", "/drive"},
		{"enter_namespace", "/proc/self/ns/net"}, {"handle"}, {"filter_files"},
	} {
		e.refuses("EPERM", one[0], one[1:]...)
	}
	e.refuses("EACCES", "enter_namespace", "/proc/1/ns/mnt")
	e.settle(t)
}

func TestHostileDevices(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	e := provision(t, d, files, "ws_1")
	works(t, "make_device", "/dev/null", filepath.Join(t.TempDir(), "null"))
	for _, dir := range []string{"/drive", "/tmp", "/dev/shm"} {
		e.refuses("EPERM", "make_device", "/dev/null", dir+"/null")
		e.refuses("EPERM", "make_disk", dir+"/disk")
	}
	for _, path := range []string{"/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/console", "/dev/loop0", "/dev/vda", "/dev/sda", "/dev/net/tun", "/dev/vsock"} {
		e.refuses("ENOENT", "read", path)
	}
	e.refuses("EACCES|EROFS", "fill", "/dev")
	e.settle(t)
	// A device that has been on the drive before cannot be opened.
	if os.Geteuid() == 0 {
		if err := unix.Mknod(filepath.Join(e.files, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
		works(t, "write", filepath.Join(e.files, "null"))
		e.refuses("EACCES", "write", "/drive/null")
		e.settle(t)
	}
}

func TestHostileProc(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	e := provision(t, d, files, "ws_1")
	for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/cmdline", "/proc/modules", "/proc/timer_list"} {
		e.refuses("empty|ENOENT|EACCES", "read", path)
	}
	works(t, "write", "/proc/sys/kernel/core_pattern")
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/proc/irq/0/smp_affinity"} {
		e.refuses("EROFS|EACCES|ENOENT", "write", path)
	}
	e.refuses("empty|ENOENT", "list", "/sys")
	e.refuses("ENOENT", "list", "/sys/fs/cgroup")
	for _, path := range []string{"/proc/1/mem", "/proc/1/environ", "/proc/1/maps"} {
		e.refuses("EACCES|EPERM", "read", path)
	}
	e.refuses("EACCES", "write", "/proc/1/exe")
	for _, path := range []string{"/proc/1/root", "/proc/1/fd", "/proc/1/cwd/"} {
		e.refuses("EACCES", "list", path)
	}
	e.refuses("EACCES", "write", "/proc/self/oom_score_adj")
	if got := e.run(t, "cat /proc/self/oom_score_adj"); got != "500\n" {
		t.Errorf("oom_score_adj is %q", got)
	}
	// Only processes of the computer are there.
	if got := e.run(t, "echo /proc/[0-9]*"); len(strings.Fields(got)) != 2 { // the init and the shell
		t.Errorf("processes in the computer: %q", got)
	}
	e.refuses("ENOENT", "read", fmt.Sprintf("/proc/%d/status", os.Getpid()))
	e.settle(t)
}

func TestHostileTracing(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	e := provision(t, d, files, "ws_1")
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	}()
	pid := strconv.Itoa(victim.Process.Pid)
	for _, name := range []string{"trace", "kill", "limit_process"} {
		works(t, name, pid)
		e.refuses("ESRCH", name, pid)
		e.refuses("EPERM", name, "init")
	}
	e.refuses("EPERM", "read_memory", "init")
	e.refuses("ESRCH", "read_memory", strconv.Itoa(os.Getpid()))
	e.settle(t)
}

func TestHostileKernel(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	e := provision(t, d, files, "ws_1")
	works(t, "add_key")
	works(t, "kernel_log")
	for _, name := range []string{
		"add_key", "user_keyring", "bpf", "perf", "userfaultfd", "kernel_log", "load_module", "reboot", "set_clock", "personality",
	} {
		e.refuses("EPERM", name)
	}
	for _, name := range []string{"io_uring", "clone3", "future_call"} {
		e.refuses("ENOSYS", name)
	}
	for _, one := range []struct {
		family, kind, protocol int
		want                   string
	}{
		{unix.AF_VSOCK, unix.SOCK_STREAM, 0, "EAFNOSUPPORT"}, {unix.AF_PACKET, unix.SOCK_RAW, 0, "EAFNOSUPPORT"},
		{unix.AF_ALG, unix.SOCK_SEQPACKET, 0, "EAFNOSUPPORT"}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT, "EAFNOSUPPORT"},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, "EPROTONOSUPPORT"}, {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP, "EPERM"},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, "EPROTONOSUPPORT"},
	} {
		e.refuses(one.want, "socket", strconv.Itoa(one.family), strconv.Itoa(one.kind), strconv.Itoa(one.protocol))
	}
	id, err := unix.SysvShmGet(0x0a7e11e4, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
			t.Error(err)
		}
	}()
	works(t, "shared_memory", strconv.Itoa(0x0a7e11e4))
	e.refuses("ENOENT", "shared_memory", strconv.Itoa(0x0a7e11e4))
	e.settle(t)
	// A process must not put a command into the terminal of the person who looks at it.
	s := e.attackSpec("push_input")
	s.Terminal = &computer.TerminalSize{Columns: 80, Rows: 24}
	a := e.begin(t, s)
	a.expect(t, "EPERM")
	a.wait(t)
}

func TestHostilePrograms(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, nil)
	if os.Geteuid() != 0 {
		testmachine.Lacks(t, "a server without root has no files of root on its drives")
	}
	e := provision(t, d, files, "ws_1")
	// A program of root on the drive that runs as its owner. The filter prevents processes from making such a program.
	program := filepath.Join(e.files, "attack")
	if err := unix.Chmod(program, 0o4755); err != nil {
		t.Fatal(err)
	}
	outside, err := os.MkdirTemp("", "atelier-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(outside)
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	reachable := filepath.Join(outside, "attack")
	if err := errors.Join(os.Chmod(outside, 0o755), os.WriteFile(reachable, content, 0o755), unix.Chmod(reachable, 0o4755)); err != nil {
		t.Fatal(err)
	}
	if got := attackOutside(t, &syscall.Credential{Uid: 65534, Gid: 65534}, reachable, "become_root"); got != "succeeded" {
		t.Errorf("the attack does not work outside of a computer: %q", got)
	}
	e.refuses("EPERM", "become_root")
	e.settle(t)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chmod", "fchmodat", "fchmodat2", "file_capability", "set_project"} {
		e.refuses("EPERM", name, "/drive/attack")
	}
	e.refuses("EPERM|EOVERFLOW", "chown", "/drive/attack")
	e.refuses("EPERM", "create_setuid", "/drive/new")
	e.settle(t)
	if got := e.run(t, "id -u; grep -h -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status"); strings.HasPrefix(got, "0\n") ||
		strings.Count(got, "0000000000000000") != 4 || !strings.Contains(got, "NoNewPrivs:\t1") {
		t.Errorf("privileges: %q", got)
	}
}
