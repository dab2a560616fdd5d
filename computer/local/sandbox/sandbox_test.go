package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// open starts a computer without control groups until the end of the test, on an empty drive.
func open(t testing.TB, nested bool) *sandbox.Computer {
	t.Helper()
	c, err := sandbox.Start(t.Context(), config(t.TempDir(), nested), func(int) error { return nil })
	if err != nil {
		testmachine.Lacks(t, fmt.Sprintf("this machine cannot isolate processes: %v", err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := c.Kill(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func config(files string, nested bool) sandbox.Config {
	c := sandbox.Config{
		Node: "test", Name: "ws_1", Files: files, Hostname: "ws-1", UID: 0x70000000, Nested: nested, Link: guest.NoLink,
		ScratchBytes: 64 << 20, ScratchFiles: 10_000,
	}
	if os.Geteuid() != 0 {
		c.Unprivileged, c.UID = true, 1000
	}
	return c
}

// shell returns the spec of a process that runs a shell script.
func shell(script string) sandbox.Spec {
	return sandbox.Spec{
		Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: ".", Held: func(int, *sandbox.Network) error { return nil },
	}
}

// run runs a script to its end and returns its output, errors included.
func run(t testing.TB, c *sandbox.Computer, script string) string {
	t.Helper()
	p, err := c.Start(t.Context(), shell("{ "+script+"\n} 2>&1"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	output, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	return string(output)
}

// TestComputerHasNothingOfTheMachine looks for properties of the machine that a computer must not have.
func TestComputerHasNothingOfTheMachine(t *testing.T) {
	c := open(t, false)
	for script, want := range map[string]string{
		"hostname": "ws-1",
		"whoami":   "atelier",
		"cat /proc/1/environ >/dev/null && echo readable": "denied",
		"ls -l /proc/1/exe":                             "denied",
		"kill -9 1; sleep 0; echo here":                 "here",
		"ls -A /sys | wc -l":                            "0",
		"ls -A /dev/pts":                                "ptmx",
		"echo 1 > /proc/sys/kernel/core_uses_pid":       "Read-only",
		"echo x > /bin/x":                               "Read-only",
		"echo x > /x":                                   "Read-only",
		"mount -t tmpfs tmpfs /tmp":                     "",
		"grep -c . /proc/net/route || true":             "1",
		"cat /proc/kcore /proc/keys 2>&1 | head -c 100": "",
		"grep -E 'CapEff|CapBnd|CapAmb' /proc/self/status | grep -vc 0000000000000000": "0",
		"grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t\\n'":          "NoNewPrivs:1Seccomp:2",
		"ulimit -c": "0",
	} {
		if got := run(t, c, script); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
}

// TestFilter tries the system calls that the filter refuses. A program that gets further prints "done".
func TestFilter(t *testing.T) {
	c := open(t, false)
	// space begins a program that opens a file for writing, with a struct space_resv for its first 4096 bytes.
	const space = `perl -e 'open(F, ">", "s") or die; my $s = pack("ssx4qqx24", 0, 0, 0, 4096); $! = 0; `
	for name, script := range map[string]string{
		"setuid":             "touch f; chmod u+s f && echo done",
		"setgid folder":      "mkdir -p d; chmod g+s d && echo done",
		"setuid file":        `perl -e 'use Fcntl; sysopen(F, "g", O_CREAT|O_WRONLY, 04755) and print "done\n"'`,
		"user namespace":     "unshare -U true && echo done",
		"mount namespace":    "unshare -Urm true && echo done",
		"mount":              "mount -t tmpfs none /tmp && echo done",
		"chroot":             "chroot / true && echo done",
		"host name":          "hostname other && echo done",
		"kernel log":         "dmesg && echo done",
		"vsock":              `perl -e 'socket(S, 40, 1, 0) and print "done\n"'`,
		"packet socket":      `perl -e 'socket(S, 17, 3, 0) and print "done\n"'`,
		"audit socket":       `perl -e 'socket(S, 16, 3, 9) and print "done\n"'`,
		"terminal injection": `perl -e 'my $c = "x"; ioctl(STDIN, 0x5412, $c) and print "done\n"'`,
		"file flags":         "touch f; chattr +A f && echo done",
		"keyring":            `perl -e 'syscall(250, 0, -3, 1) >= 0 and print "done\n"'`,
		"io_uring":           `perl -e 'my $p = "\0" x 120; syscall(425, 1, $p) >= 0 and print "done\n"'`,
		"preallocation":      "fallocate -l 4096 f && echo done",
		"new call":           `perl -e 'syscall(468, 0, 0, 0, 0, 0) == -1 && $! != 38 and print "done\n"'`,
	} {
		if got := run(t, c, script); strings.Contains(got, "done") {
			t.Errorf("%s: got %q", name, got)
		}
	}
	for name, script := range map[string]string{
		"thread and fork": `perl -e 'my $p = fork; if (!$p) { exit 0 } waitpid($p, 0); print "done\n"'`,
		"hole":            "dd if=/dev/zero of=holes bs=64k count=2 2>/dev/null && fallocate -p -o 0 -l 65536 holes && echo done",
		"preallocation that is not needed": `perl -e 'open(F, ">", "p"); $! = 0; syscall(285, fileno(F), 0, 0, 4096) == -1 and $! == 95 and print "done
"'`,
		"reservations that are not needed": space +
			`for (0x40305828, 0x4030582a, 0x40305839) { ioctl(F, $_, $s); $! == 95 or die "$_: $!" } print "done\n"'`,
		"UNRESVSP":      space + `ioctl(F, 0x40305829, $s) and ioctl(F, 0x4030582b, $s) and print "done\n"'`,
		"mode":          "touch f; chmod 750 f && echo done",
		"route socket":  `perl -e 'socket(S, 16, 3, 0) and print "done\n"'`,
		"stream socket": `perl -e 'socket(S, 2, 1, 0) and socket(S, 10, 2, 17) and socket(S, 1, 1, 0) and print "done\n"'`,
		"personality":   `perl -e 'syscall(135, 0xffffffff) == 0 and print "done\n"'`,
	} {
		if got := run(t, c, script); got != "done\n" {
			t.Errorf("%s: got %q, want it to be permitted", name, got)
		}
	}
}

// TestNestedProcesses verifies that processes without control groups do not see each other.
func TestNestedProcesses(t *testing.T) {
	c := open(t, true)
	p, err := c.Start(t.Context(), shell("read x"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := strings.Fields(run(t, c, "echo /proc/[0-9]*")); len(got) > 2 { // its own and its monitor's
		t.Errorf("a process sees %q", got)
	}
}

// TestRefusedProcess verifies that a refused process is gone, and that its computer can still be used.
func TestRefusedProcess(t *testing.T) {
	c := open(t, false)
	before := len(strings.Fields(run(t, c, "echo /proc/[0-9]*")))
	s := shell("true")
	refused := errors.New("refused by the test")
	s.Held = func(int, *sandbox.Network) error { return refused }
	if _, err := c.Start(t.Context(), s); !errors.Is(err, refused) {
		t.Errorf("Start returned %v", err)
	}
	s = shell("true")
	s.Argv[0] = "/none"
	var because *sandbox.RefusedError
	if _, err := c.Start(t.Context(), s); !errors.As(err, &because) {
		t.Errorf("Start returned %v", err)
	}
	if after := len(strings.Fields(run(t, c, "echo /proc/[0-9]*"))); after != before {
		t.Errorf("there are %d processes, %d before", after, before)
	}
}

// TestProgramOfTheServerIsNotExecuted tries to execute the file of the server's program, which a process is before its own
// program runs, by a script for it as the interpreter.
func TestProgramOfTheServerIsNotExecuted(t *testing.T) {
	if sandbox.LandlockVersion() == 0 {
		testmachine.Lacks(t, "the kernel has no Landlock")
	}
	c := open(t, false)
	run(t, c, `echo '#!/proc/self/exe' > trick; chmod +x trick`)
	s := shell("")
	s.Argv = []string{"./trick"}
	p, err := c.Start(t.Context(), s)
	var because *sandbox.RefusedError
	if !errors.As(err, &because) {
		p.Close()
		t.Errorf("Start returned %v", err)
	}
}

// TestInitSurvivesSignals sends all signals to the init. Of a server that runs as root that is not permitted.
func TestInitSurvivesSignals(t *testing.T) {
	c := open(t, false)
	run(t, c, "for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 19 20 21 22 23 24 25 26 27 31 34 64; do kill -$s 1; done")
	if got := run(t, c, "echo alive"); got != "alive\n" {
		t.Errorf("got %q", got)
	}
}

// TestStrictUmask starts a computer of a server with a umask that gives no other user access.
func TestStrictUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	c := open(t, false)
	if got := run(t, c, "umask; cd /home/atelier && touch f && rm f && cat /etc/hostname"); got != "0022\nws-1\n" {
		t.Errorf("got %q", got)
	}
}

func TestEndedComputer(t *testing.T) {
	c := open(t, false)
	p, err := c.Start(t.Context(), shell("read x"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if !p.Result().Lost {
		t.Errorf("got %+v", p.Result())
	}
	if _, err := c.Start(t.Context(), shell("true")); err == nil {
		t.Error("a process was started in a computer that has ended")
	}
	if _, err := c.Network().Dial(t.Context(), 80); err == nil {
		t.Error("Dial returned no error for a computer that has ended")
	}
}
