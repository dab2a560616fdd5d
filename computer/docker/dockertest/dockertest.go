// Package dockertest starts a container engine with an image for tests: Podman's, which has the API of Docker's. The image is
// made of Debian's busybox-static, since tests need no network.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
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

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/tests/await"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// Image is the reference of the engine's image.
const Image = "localhost/atelier-test:latest"

// otherEngine is the environment variable with the address of an engine that tests use in place of their own one, such as
// unix:///var/run/docker.sock for Docker's. It must have no containers of others. Tests that kill the engine are skipped.
const otherEngine = "ATELIER_TEST_ENGINE"

// requirements are the programs that the engine consists of, and the image.
var requirements = []string{"podman", "runc", "conmon", "busybox"}

// An Engine is a running container engine.
type Engine struct {
	// Address is the address of the engine's API. Agent is the path of the static program that Start has built.
	Address string
	Agent   string
	dir     string
	command *exec.Cmd
	ended   chan struct{}
	// groups are the paths of the control groups that MemoryGroup has made.
	groups []string
}

// TestAgent is the package of a program that is the agent of containers, and has commands for tests of the driver.
const TestAgent = "github.com/atelier-run/atelier/computer/docker/dockertest/agent"

// Start starts an engine until the end of the test, and builds the package of a program for containers, unless it is empty. It skips the test if a
// requirement is missing, or fails it if the environment variable CI is "true". All of the engine's files are below a temporary
// folder.
func Start(t testing.TB, program string) *Engine {
	t.Helper()
	for _, name := range requirements {
		if _, err := exec.LookPath(name); err != nil {
			testmachine.Lacks(t, name+" is not installed")
		}
	}
	if os.Geteuid() != 0 {
		testmachine.Lacks(t, "the tests of containers need the rights of root")
	}
	// Unix sockets have short names, which the test's own folder may not allow.
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Address: "unix://" + dir + "/api.sock", Agent: filepath.Join(dir, "agent"), dir: dir}
	t.Cleanup(func() { e.remove(t) })
	if program != "" {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", e.Agent, program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	if other := os.Getenv(otherEngine); other != "" {
		e.Address = other
	} else {
		e.configure(t)
		e.Run(t)
	}
	e.Import(t, Image)
	return e
}

func (e *Engine) configure(t testing.TB) {
	t.Helper()
	text := "[engine]\ncgroup_manager=\"cgroupfs\"\nevents_logger=\"file\"\nruntime=\"runc\"\n[network]\nnetwork_config_dir=\"" + e.dir + "/networks\"\n"
	if err := os.WriteFile(filepath.Join(e.dir, "containers.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Podman returns a command of the engine, for operations that its API does not have.
func (e *Engine) Podman(arguments ...string) *exec.Cmd {
	global := []string{
		"--root", e.dir + "/root", "--runroot", e.dir + "/run", "--tmpdir", e.dir + "/tmp", "--storage-driver", "vfs",
		"--log-level", "error",
	}
	command := exec.Command("podman", append(global, arguments...)...)
	command.Dir = e.dir // a container that is out of memory leaves a file there
	command.Env = append(os.Environ(), "CONTAINERS_CONF="+e.dir+"/containers.conf")
	return command
}

// Run starts the engine's service, and waits until it answers. Start has called it; after Kill it may be called again.
func (e *Engine) Run(t testing.TB) {
	t.Helper()
	said := &bytes.Buffer{}
	e.command = e.Podman("system", "service", "--time", "0", e.Address)
	e.command.Stdout, e.command.Stderr = said, said
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	e.ended = ended
	go func() {
		_ = e.command.Wait()
		close(ended)
	}()
	api := e.Client(t)
	await.Seen(t, "the answer of podman", func() (any, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // an engine may take the connection and hang
		defer cancel()
		_, err := api.Ping(ctx, client.PingOptions{})
		select {
		case <-ended:
			t.Fatalf("podman has ended: %s", said)
		default:
		}
		return err, err == nil
	})
}

// Kill ends the engine's service with SIGKILL.
func (e *Engine) Kill(t testing.TB) {
	t.Helper()
	if e.command == nil {
		testmachine.Lacks(t, "the engine is not the test's own")
	}
	if err := e.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-e.ended
	_ = os.Remove(filepath.Join(e.dir, "api.sock"))
}

// MemoryGroup makes a control group with a limit on memory in bytes, and returns its path, which may be the parent of containers. The end of
// the engine removes the group, because the engine's monitors of containers are in it until then.
func (e *Engine) MemoryGroup(t testing.TB, limit int) string {
	t.Helper()
	parent, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(parent); err != nil { // version 2 has one hierarchy
		parent, file = "/sys/fs/cgroup", "memory.max"
	}
	name := "atelier-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(len(e.groups))
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		testmachine.Lacks(t, "control groups cannot be made: "+err.Error())
	}
	e.groups = append(e.groups, "/"+name)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(limit)), 0); err != nil {
		testmachine.Lacks(t, "control groups have no limits on memory: "+err.Error())
	}
	return "/" + name
}

// Client returns a client of the engine until the end of the test.
func (e *Engine) Client(t testing.TB) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(e.Address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// Containers returns the number of the engine's containers.
func (e *Engine) Containers(t testing.TB) int {
	t.Helper()
	list, err := e.Client(t).ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// Import gives the engine an image with BusyBox, and returns its reference. The changes are instructions of a Dockerfile.
func (e *Engine) Import(t testing.TB, reference string, changes ...string) string {
	t.Helper()
	return e.importFiles(t, reference, rootFiles(t), changes)
}

// ImportLibraries gives the engine an image with BusyBox and the shared libraries that programs need, and returns its reference.
func (e *Engine) ImportLibraries(t testing.TB, reference string, programs ...string) string {
	t.Helper()
	// A line of ldd is the name of a library, "=>" and its path, or the path of the program that loads them.
	said, err := exec.Command("ldd", programs...).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	var paths []string
	for _, field := range strings.Fields(string(said)) {
		if filepath.IsAbs(field) && !strings.HasSuffix(field, ":") && !slices.Contains(paths, field) {
			paths = append(paths, field)
		}
	}
	return e.importFiles(t, reference, rootFiles(t, paths...), nil)
}

func (e *Engine) importFiles(t testing.TB, reference string, files []byte, changes []string) string {
	t.Helper()
	source := client.ImageImportSource{Source: bytes.NewReader(files), SourceName: "-"}
	result, err := e.Client(t).ImageImport(t.Context(), source, reference, client.ImageImportOptions{Changes: changes})
	if err == nil {
		_, err = io.Copy(io.Discard, result)
		_ = result.Close()
	}
	if err != nil {
		t.Fatalf("import the image: %v", err)
	}
	return reference
}

// rootFiles returns an archive of a root file system with busybox, and with further files of this machine.
func rootFiles(t testing.TB, further ...string) []byte {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(program, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	archive := tar.NewWriter(out)
	add := func(header tar.Header, content []byte) {
		header.Size = int64(len(content))
		if err := archive.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "tmp", "run", "drive", "proc", "sys", "dev"} {
		add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/drive:/bin/sh\n"))
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, content)
	// Debian's BusyBox has no nohup.
	add(tar.Header{Name: "bin/nohup", Typeflag: tar.TypeReg, Mode: 0o755}, []byte("#!/bin/sh\ntrap '' HUP\nexec \"$@\"\n"))
	for applet := range bytes.FieldsSeq(list) {
		if name := string(applet); name != "busybox" && name != "nohup" {
			add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	made := map[string]bool{".": true}
	for _, path := range further {
		for dir := filepath.Dir(path[1:]); !made[dir]; dir = filepath.Dir(dir) { // Docker makes others for root only
			add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
			made[dir] = true
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(tar.Header{Name: path[1:], Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// remove ends the engine, its containers and its mounts.
func (e *Engine) remove(t testing.TB) {
	if e.command != nil {
		if out, err := e.Podman("rm", "--all", "--force", "--time", "0").CombinedOutput(); err != nil {
			t.Logf("podman rm: %v\n%s", err, out)
		}
		_ = e.command.Process.Signal(syscall.SIGTERM)
		select {
		case <-e.ended:
		case <-time.After(10 * time.Second):
			_ = e.command.Process.Kill()
			<-e.ended
		}
	}
	e.endProcesses(t)
	for _, mount := range []string{"root/vfs", "run"} {
		_ = syscall.Unmount(filepath.Join(e.dir, mount), syscall.MNT_DETACH)
	}
	// Podman leaves the control groups of containers in the second hierarchy of a machine that has both versions. Only groups
	// without processes can be removed.
	groups, _ := filepath.Glob("/sys/fs/cgroup/unified/libpod_parent/libpod-*")
	for _, name := range e.groups {
		for _, pattern := range []string{"/sys/fs/cgroup/*" + name + "/*", "/sys/fs/cgroup" + name + "/*", "/sys/fs/cgroup/*" + name, "/sys/fs/cgroup" + name} {
			found, _ := filepath.Glob(pattern)
			groups = append(groups, found...)
		}
	}
	for _, group := range groups {
		_ = syscall.Rmdir(group)
	}
	if err := os.RemoveAll(e.dir); err != nil {
		t.Errorf("the engine has left files: %v", err)
	}
}

// endProcesses ends the processes that Podman leaves: monitors for five minutes after the end of each process in a container, in case that
// a client asks for its exit status, and the commands that monitors run to remove containers. When it returns, none of them writes to the
// folder of the engine.
func (e *Engine) endProcesses(t testing.TB) {
	await.Seen(t, "the end of the processes of the engine", func() (any, bool) {
		left := e.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return left, len(left) == 0
	})
}

// processes returns the running processes of Podman with the folder of the engine in their command lines.
func (e *Engine) processes() (found []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		command, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(command, []byte(e.dir+"/")) {
			continue
		}
		program, _, _ := bytes.Cut(command, []byte{0})
		if base := filepath.Base(string(program)); base != "conmon" && base != "podman" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
