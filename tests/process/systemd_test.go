package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/tests/testmachine"
)

var underSystemd = flag.Bool("systemd", false, "run TestServiceUnderSystemd, which starts a systemd in a container")

// A systemd is the first process of a container. Its root file system is a tmpfs of the test, which has nothing of the machine but /usr,
// read-only: a systemd that starts removes and mounts files of the system that it is on.
type systemd struct {
	*testing.T
	engine *dockertest.Engine
	root   string
}

const (
	container = "atelier-systemd"
	// service is the name of the unit, serviceConfig the file of settings that it names, serviceData its data directory, and serviceAddress
	// where the node listens.
	service        = "atelier.service"
	serviceConfig  = "etc/atelier.yaml"
	serviceData    = "/var/lib/atelier"
	serviceAddress = "http://127.0.0.1:8080"
)

// first is the first command of the container. It becomes systemd, unless the container shares more than /usr with the machine.
// Its argument is the number of the device of the machine's root. The files that the engine makes for the container are mounted one by one.
const first = `set -eu
for dir in / /etc /var /home /root /run /tmp /dev; do
	[ ! -e $dir ] || [ "$(stat -c %d $dir)" != "$1" ] || { echo "$dir is of the machine"; exit 1; }
done
[ "$(stat -f -c %T /)" = tmpfs ] && [ "$(stat -f -c %T /tmp)" = tmpfs ] || { echo "/ or /tmp is no tmpfs"; exit 1; }
while read -r _ _ _ _ at options _; do
	[ "$(stat -c %d "$at")" != "$1" ] || case $at,$options in
	/etc/hostname,* | /etc/hosts,* | /etc/resolv.conf,* | /run/.containerenv,* | *,ro,* | *,ro) ;;
	*) echo "$at is of the machine, and writable"; exit 1 ;;
	esac
done </proc/self/mountinfo
exec /usr/lib/systemd/systemd systemd.unit=basic.target`

// unneeded are units of systemd that change the kernel or wait for devices.
var unneeded = []string{
	"systemd-sysctl.service", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "systemd-modules-load.service",
	"systemd-udevd.service", "systemd-udev-trigger.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
	"sys-fs-fuse-connections.mount", "dev-hugepages.mount", "systemd-firstboot.service", "kmod-static-nodes.service", "systemd-pstore.service",
}

// startSystemd starts a systemd with the unit of the folder deploy, and waits until it has started.
func startSystemd(t *testing.T) *systemd {
	t.Helper()
	s := &systemd{T: t, engine: dockertest.Start(t, ""), root: testmachine.Volume(t, "mode=755,size=2g")}
	for _, name := range []string{"dev", "etc/systemd/system", "local/bin", "proc", "root", "run", "sys", "tmp", "usr", "var"} {
		if err := os.MkdirAll(filepath.Join(s.root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
	for _, unit := range unneeded {
		links["etc/systemd/system/"+unit] = "/dev/null"
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(s.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"local/bin/atelier": string(program), "etc/systemd/system/" + service: readUnit(t), "first": first,
		// With an id of the machine, systemd enables no units by itself.
		"etc/machine-id": strings.Repeat("0123456789abcdef", 2) + "\n",
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
	} {
		s.write(name, content)
	}
	machine := &syscall.Stat_t{}
	if err := syscall.Stat("/", machine); err != nil {
		t.Fatal(err)
	}
	run := s.engine.Podman("run", "--detach", "--name", container, "--systemd", "always", "--network", "none", "--no-hosts",
		"--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--ulimit", "nofile=8192:8192", "--ulimit", "nproc=4096:4096", "--volume", "/usr:/usr:ro,rprivate",
		"--volume", filepath.Join(s.root, "local")+":/usr/local:ro,rprivate", "--rootfs", s.root,
		"/bin/sh", "/first", strconv.FormatUint(machine.Dev, 10))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("podman run: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.engine.Podman("logs", container).CombinedOutput()
			t.Logf("the container has said:\n%s\nthe log of the service:\n%s", out, s.run("journalctl", "--no-pager", "--unit", service))
		}
	})
	s.until("the start of systemd", func() bool {
		state := s.run("systemctl", "is-system-running")
		return strings.HasPrefix(state, "running") || strings.HasPrefix(state, "degraded")
	})
	return s
}

// write writes a file of the container.
func (s *systemd) write(name, content string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.root, name), []byte(content), 0o755); err != nil {
		s.Fatal(err)
	}
}

// run runs a command in the container, and returns its output.
func (s *systemd) run(argv ...string) string {
	s.Helper()
	out, err := s.engine.Podman(append([]string{"exec", container}, argv...)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	return string(out)
}

// until repeats a condition until it holds.
func (s *systemd) until(what string, holds func() bool) {
	s.Helper()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for began := time.Now(); !holds(); <-retry.C {
		if time.Since(began) > patience {
			s.Fatalf("%s does not come", what)
		}
	}
}

// show returns the properties of the service.
func (s *systemd) show() map[string]string {
	s.Helper()
	properties := map[string]string{}
	for line := range strings.Lines(s.run("systemctl", "show", service)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		properties[name] = value
	}
	return properties
}

// expect fails the test unless the service has the properties. Each property is a name, = and a value.
func (s *systemd) expect(properties ...string) {
	s.Helper()
	shown := s.show()
	for _, property := range properties {
		if name, value, _ := strings.Cut(property, "="); shown[name] != value {
			s.Errorf("%s is %s, want %s", name, shown[name], value)
		}
	}
}

// awaitReady waits until the node is ready.
func (s *systemd) awaitReady() {
	s.Helper()
	s.until("the readiness of the node", func() bool { return s.curl("GET", "/readyz", "") == "200" })
}

// curl sends a request to the node with a key, and returns the status.
func (s *systemd) curl(method, path, key string, further ...string) string {
	s.Helper()
	argv := append([]string{"curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--request", method, "--header",
		"Authorization: Bearer " + key}, further...)
	return s.run(append(argv, serviceAddress+path)...)
}

// TestServiceUnderSystemd runs the unit of deploy/atelier.service. It is a long run, because not every machine that runs tests has the control
// groups that systemd needs; TestServiceRestarts and TestServiceIsConfined are its sample.
func TestServiceUnderSystemd(t *testing.T) {
	if !*underSystemd {
		return
	}
	s := startSystemd(t)

	// The node is not started again with wrong settings.
	s.write(serviceConfig, "rate: many\n")
	s.run("systemctl", "start", service)
	s.until("the end of the node", func() bool { return s.show()["ActiveState"] == "failed" })
	s.expect("Result=exit-code", "ExecMainStatus=78", "NRestarts=0")

	// With the right settings, the node works within the confinement.
	s.write(serviceConfig, "min-free-space: 1MiB\n")
	s.run("systemctl", "start", service)
	s.awaitReady()
	process := s.show()["MainPID"]
	status := s.run("cat", "/proc/"+process+"/status")
	for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n"} {
		if !strings.Contains(status, line) {
			t.Errorf("the status of the process lacks %q:\n%s", line, status)
		}
	}
	if strings.Contains(status, "Uid:\t0\t") {
		t.Errorf("the node runs as root:\n%s", status)
	}
	out := s.run("atelier", "admin", "user", "create", "--data="+serviceData, "--email=ada@example.org", "--name=Ada")
	var person struct{ Key string }
	if err := json.Unmarshal([]byte(out), &person); err != nil {
		t.Fatalf("admin user create: %s", out)
	}
	if status := s.curl("POST", "/v1/workspaces", person.Key, "--json", `{"slug":"acme","name":"Acme"}`); status != "201" {
		t.Errorf("POST of a workspace: %s", status)
	}
	if status := s.curl("PUT", "/v1/ws/acme/drive/a.txt", person.Key, "--data", "x"); status != "201" {
		t.Errorf("PUT of a file: %s", status)
	}

	// The node is started again after a kill, and after the end by the Go runtime.
	for i, signal := range []string{"KILL", "QUIT"} {
		s.run("systemctl", "kill", "--kill-whom=main", "--signal="+signal, service)
		s.until("the restart after SIG"+signal, func() bool { return s.show()["NRestarts"] == strconv.Itoa(i+1) })
		s.awaitReady()
		if status := s.curl("GET", "/v1/ws/acme/drive/a.txt", person.Key); status != "200" {
			t.Errorf("GET of the file after SIG%s: %s", signal, status)
		}
	}

	// SIGTERM drains: a stream gets its end, and the node exits with 0 by itself.
	stream := s.engine.Podman("exec", container, "curl", "--silent", "--no-buffer", "--header", "Authorization: Bearer "+person.Key,
		serviceAddress+"/v1/ws/acme/file-activity/events")
	events, err := stream.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(events); lines.Scan() && !strings.Contains(lines.Text(), "a.txt"); {
	}
	s.run("systemctl", "stop", service)
	_, _ = io.Copy(io.Discard, events)
	if err := stream.Wait(); err != nil {
		t.Errorf("the stream has ended with %v", err)
	}
	s.expect("ActiveState=inactive", "Result=success", "ExecMainStatus=0")
}
