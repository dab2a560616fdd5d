package peers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/bench"
)

// buildNode builds the program and returns the path of its binary.
func buildNode(b *testing.B) string {
	binary := filepath.Join(b.TempDir(), "atelier")
	build := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/atelier")
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, output)
	}
	return binary
}

// startNode starts a node with a new data directory. It runs until the end of the benchmark.
func startNode(b *testing.B, name, binary string) *fileServer {
	dir := bench.Disk(b)
	command := exec.Command(binary, "serve", "--quickstart", "--data="+dir, "--listen=127.0.0.1:0", "--rate=0", "--log-level=warn")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	run(b, command)
	s := &fileServer{name: name, prefix: "/v1/ws/demo/drive", processorTime: processorTimeOf(command.Process.Pid)}
	lines := bufio.NewScanner(output)
	for s.credential == "" && lines.Scan() {
		switch label, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "  "); label {
		case "Address":
			s.address = strings.TrimPrefix(value, "http://")
		case "Key":
			s.credential = "Authorization: Bearer " + strings.TrimSpace(value) + "\r\n"
		}
	}
	if s.credential == "" {
		b.Fatal("the node did not start: ", lines.Err())
	}
	return s
}

// run starts a command and terminates it at the end of the benchmark.
func run(b *testing.B, command *exec.Cmd) {
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // the process may have ended already
		_ = command.Wait()
	})
}

// modules is where Debian installs the modules of Apache.
const modules = "/usr/lib/apache2/modules"

// apacheConfig has the directives that mod_dav needs. Each of two processes has a thread for every client, and spare processes are
// not ended: Apache closes connections otherwise. The arguments are the folder of the server, its port, and the directives for the
// user that it becomes if it starts as root.
const apacheConfig = `
ServerRoot %[1]s
ServerName 127.0.0.1
Listen 127.0.0.1:%[2]d
PidFile %[1]s/pid
ErrorLog /dev/stderr
LogLevel notice
%[3]s
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 120
StartServers 2
MinSpareThreads 64
MaxSpareThreads 128
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 128
DavLockDB %[1]s/locks/db
DocumentRoot %[1]s/files
<Directory %[1]s/files>
	Dav On
	Require all granted
</Directory>
`

// startApache starts Apache with mod_dav over a new folder. It runs until the end of the benchmark. startApache returns nil and
// logs why if apache2 is not installed.
func startApache(b *testing.B) *fileServer {
	binary, err := exec.LookPath("apache2")
	if err != nil {
		binary = "/usr/sbin/apache2"
	}
	if _, err := os.Stat(binary); err != nil {
		b.Log("skipped: the comparison with Apache's mod_dav (no apache2)")
		return nil
	}
	dir := bench.Disk(b)
	// Started as root, the server becomes another user, which must be able to reach and write its folders.
	for folder := filepath.Dir(dir); os.Geteuid() == 0 && folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, folder := range []string{"files", "locks"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o777); err != nil {
			b.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, folder), 0o777); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	port := freePort(b)
	identity := ""
	if os.Geteuid() == 0 {
		identity = "User www-data\nGroup www-data"
	}
	config := apacheModules() + fmt.Sprintf(apacheConfig, dir, port, identity)
	file := filepath.Join(dir, "apache2.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		b.Fatal(err)
	}
	command := exec.Command(binary, "-f", file, "-D", "FOREGROUND")
	log, err := command.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	run(b, command)
	awaitApache(b, log)
	return &fileServer{name: "apache", address: fmt.Sprintf("127.0.0.1:%d", port), processorTime: processorTimeOf(command.Process.Pid)}
}

// apacheModules returns the directives that load the modules.
func apacheModules() string {
	var directives strings.Builder
	for _, module := range []string{"mpm_event", "authz_core", "dav", "dav_fs"} {
		fmt.Fprintf(&directives, "LoadModule %s_module %s/mod_%s.so\n", module, modules, module)
	}
	return directives.String()
}

// freePort returns a port that no process listens on now.
func freePort(b *testing.B) int {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// awaitApache reads Apache's log until it says that the server is ready, and discards the rest. It fails the benchmark with the
// log if Apache ends first.
func awaitApache(b *testing.B, log io.Reader) {
	var seen strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "resuming normal operations") {
			go func() { _, _ = io.Copy(io.Discard, log) }() // ends with the server
			return
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	b.Fatalf("apache2 did not start:\n%s", &seen)
}

// ticksPerSecond is the unit of processor times in /proc, which Linux fixes for user space.
const ticksPerSecond = 100

// processorTimeOf returns a function that returns the user and system time of a process and its children, ended children included.
func processorTimeOf(pid int) func(testing.TB) time.Duration {
	return func(b testing.TB) time.Duration {
		ticks, _ := statOf(b, pid)
		stats, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			b.Fatal(err)
		}
		for _, path := range stats {
			child, err := strconv.Atoi(filepath.Base(path))
			if err != nil {
				continue
			}
			if used, parent := statOf(nil, child); parent == pid {
				ticks += used
			}
		}
		return time.Duration(ticks) * time.Second / ticksPerSecond
	}
}

// statOf returns the ticks that a process and its ended children have used, and its parent (proc(5), /proc/pid/stat). Without
// b, a process that has ended has used none.
func statOf(b testing.TB, pid int) (ticks, parent int) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if b != nil {
			b.Fatal(err)
		}
		return 0, 0
	}
	// The name of the program, in parentheses, may have spaces.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	number := func(i int) int {
		n, err := strconv.Atoi(string(fields[i-3])) // the first two fields of the manual's list are cut off
		if err != nil && b != nil {
			b.Fatal(err)
		}
		return n
	}
	for field := 14; field <= 17; field++ {
		ticks += number(field)
	}
	return ticks, number(4)
}
