package docker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/await"
)

func expectLine(t testing.TB, p computer.Process, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	if _, err := io.ReadFull(p.Streams().Stdout, line); err != nil || strings.TrimSpace(string(line)) != want {
		t.Fatalf("got %q, %v, want %q", line, err, want)
	}
}

func (f fixture) containers(t testing.TB) []container.Summary {
	t.Helper()
	list, err := f.engine.Client(t).ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func checkUnavailable(t testing.TB, action string, err error) {
	t.Helper()
	if e, ok := errors.AsType[*entity.Error](err); !ok || e.Code != entity.Unavailable {
		t.Errorf("%s returned %v, want unavailable", action, err)
	}
}

func TestMain(m *testing.M) {
	if text := os.Getenv("ATELIER_DOCKER_SERVER"); text != "" {
		serve(text)
	}
	os.Exit(m.Run())
}

// serve is the server of testServerKilled: it starts a process and never ends by itself.
func serve(text string) {
	o := docker.Options{}
	var dir string
	if err := errors.Join(json.Unmarshal([]byte(text), &struct {
		Engine, Dir *string
		Agent       *[]string
	}{&o.Engine, &dir, &o.Agent})); err != nil {
		panic(err)
	}
	o.Node, o.Image, o.Drives = "node-1", dockertest.Image, drives{dir}
	driver, err := docker.New(o)
	if err != nil {
		panic(err)
	}
	if _, err := driver.Provision(context.Background(), workspace, "vm-1"); err != nil {
		panic(err)
	}
	if _, err := driver.Start(context.Background(), workspace, shell("p1", "exec 3>alive; trap '' TERM HUP; echo ready >&3; while :; do sleep 1000; done")); err != nil {
		panic(err)
	}
	select {}
}

// testServerKilled kills a server with a running process. Nothing of it may be left, without any other server.
func testServerKilled(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	folder := f.options.Drives.(drives)
	fifo := filepath.Join(folder.files(workspace), "alive")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Engine": f.options.Engine, "Dir": folder.dir, "Agent": f.options.Agent})
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), "ATELIER_DOCKER_SERVER="+string(text))
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	// The pipe ends when no process has it open for writing.
	alive, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	lines := bufio.NewReader(alive)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if found := f.containers(t); len(found) != 1 {
		t.Fatalf("there are %d containers", len(found))
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("got %q, %v", rest, err)
	}
	await.True(t, "the removal of the container", func() bool { return len(f.containers(t)) == 0 })
}

// create creates a container as another process of a node.
func (f fixture) create(t testing.TB, node string) string {
	t.Helper()
	api := f.engine.Client(t)
	created, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config: &container.Config{
			Image: dockertest.Image, Cmd: []string{"sleep", "1000"},
			Labels: map[string]string{"run.atelier.node": node, "run.atelier.workspace": "ws_left"},
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", Resources: container.Resources{Ulimits: []*container.Ulimit{
			{Name: "nofile", Soft: 100, Hard: 100}, {Name: "nproc", Soft: 100, Hard: 100},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = api.ContainerRemove(context.Background(), created.ID, client.ContainerRemoveOptions{Force: true})
	})
	return created.ID
}

// testRecover starts containers as an earlier process and as another node.
func testRecover(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	left, other := f.create(t, "node-1"), f.create(t, "node-2")
	for _, id := range []string{left, other} {
		if _, err := f.engine.Client(t).ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := f.Recover(t.Context())
	if want := (computer.Leftover{Kind: "container", Name: left, WorkspaceID: "ws_left"}); err != nil || len(found) != 1 || found[0] != want {
		t.Errorf("got %+v, %v", found, err)
	}
	if rest := f.containers(t); len(rest) != 1 || rest[0].ID != other {
		t.Errorf("the containers %+v are left, want that of the other node", rest)
	}
	if found, err := f.Recover(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("a second time: got %+v, %v", found, err)
	}
}

// testEngineFails kills the engine's service while a process runs.
func testEngineFails(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	p, err := f.Start(t.Context(), workspace, shell("p1", "echo ready; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	f.engine.Kill(t)
	if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != computer.EndedLost {
		t.Errorf("got %+v, %v", exit, err)
	}
	_, err = f.Sample(t.Context(), workspace)
	checkUnavailable(t, "Sample", err)
	_, err = f.Start(t.Context(), workspace, shell("p2", "true"))
	checkUnavailable(t, "Start", err)
	_, err = f.Recover(t.Context())
	checkUnavailable(t, "Recover", err)
	if _, err := f.Provision(t.Context(), workspace, "vm-1"); err == nil || entity.IsRefusal(err) {
		t.Errorf("Provision returned %v, want an error that is retried", err)
	}
	f.engine.Run(t)
	if r := f.run(t, shell("p3", "echo again")); r.out != "again\n" {
		t.Errorf("got %+v", r)
	}
	if s, err := f.Sample(t.Context(), workspace); err != nil || s.GetMemUsedMb() == 0 || s.GetMemTotalMb() != 256 {
		t.Errorf("got %v, %v", s, err)
	}
}

func testIdle(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine, func(o *docker.Options) { o.IdleAfter = 200 * time.Millisecond })
	p, err := f.Start(t.Context(), workspace, shell("p1", "echo ready; read line"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	first := f.containers(t)
	if r := f.run(t, shell("p2", "true")); r.exit.Status != 0 || len(first) != 1 {
		t.Fatalf("got %+v, %d containers", r, len(first))
	}
	if again := f.containers(t); len(again) != 1 || again[0].ID != first[0].ID {
		t.Errorf("the second process got another container")
	}
	finish(t, p)
	await.True(t, "the removal of the idle container", func() bool { return len(f.containers(t)) == 0 })
	if r := f.run(t, shell("p3", "echo again")); r.out != "again\n" {
		t.Errorf("got %+v", r)
	}
}

// testUnusedContainersGiveWay starts processes in more containers than may run.
func testUnusedContainersGiveWay(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine, func(o *docker.Options) { o.MaxContainers = 1 })
	if _, err := f.Provision(t.Context(), "ws_2", "vm-1"); err != nil {
		t.Fatal(err)
	}
	p, err := f.Start(t.Context(), workspace, shell("p1", "read line"))
	if err != nil {
		t.Fatal(err)
	}
	first := f.containers(t)
	_, err = f.Start(t.Context(), "ws_2", shell("p2", "true"))
	if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.Unavailable {
		t.Errorf("a second container beside one with a process: %v", err)
	}
	if stopped, err := f.StopUnused(t.Context()); stopped || err != nil {
		t.Errorf("StopUnused of a container with a process: %v, %v", stopped, err)
	}
	finish(t, p)
	var second computer.Process
	await.True(t, "the start of the second container", func() bool { // its use ends a moment after its process
		second, err = f.Start(t.Context(), "ws_2", shell("p2", "read line"))
		return err == nil
	})
	if all := f.containers(t); len(all) != 1 || all[0].ID == first[0].ID {
		t.Errorf("%d containers run, want that the second has replaced the first", len(all))
	}
	finish(t, second)
	await.True(t, "the removal of the unused container", func() bool {
		stopped, err := f.StopUnused(t.Context())
		return stopped && err == nil
	})
	if all := f.containers(t); len(all) != 0 {
		t.Errorf("%d containers run after StopUnused", len(all))
	}
}

// testFullDrive lets a process fill its drive.
func testFullDrive(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	if r := f.run(t, shell("p1", "touch full; sleep 1000")); r.exit.Reason != computer.EndedDiskFull || r.exit.Status != 137 {
		t.Errorf("got %+v", r.exit)
	}
	_, err := f.Start(t.Context(), workspace, shell("p2", "true"))
	if e, ok := errors.AsType[*entity.Error](err); !ok || e.Code != entity.LimitReached {
		t.Errorf("Start returned %v, want limit_reached", err)
	}
	if err := os.Remove(filepath.Join(f.options.Drives.(drives).files(workspace), "full")); err != nil {
		t.Fatal(err)
	}
	f.run(t, shell("p3", "true"))
}

// testClose verifies that the driver leaves nothing, and starts nothing more. An earlier process had begun to create a container; the
// container appears after Recover.
func testClose(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	p, err := f.Start(t.Context(), workspace, shell("p1", "echo ready; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	f.create(t, "node-1")
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != computer.EndedStopped {
		t.Errorf("got %+v, %v", exit, err)
	}
	if left := f.containers(t); len(left) != 0 {
		t.Errorf("%d containers are left", len(left))
	}
	_, err = f.Start(t.Context(), workspace, shell("p2", "true"))
	checkUnavailable(t, "Start", err)
}

// testHalfClosedConnection reads an answer after the client has closed its direction.
func testHalfClosedConnection(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	const port = 8000
	s := shell("p1", "")
	s.Argv = []string{computer.ProgramPath, "serve", strconv.Itoa(port)}
	p, err := f.Start(t.Context(), workspace, s)
	if err != nil {
		t.Fatal(err)
	}
	expectLine(t, p, "ready")
	conn, err := f.Dial(t.Context(), workspace, port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	go func() {
		_, _ = io.WriteString(conn, large)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	received := make(chan result)
	go func() { received <- finish(t, p) }()
	if r := <-received; r.out != large || r.exit.Status != 0 {
		t.Errorf("the program has received %d bytes and ended with %+v", len(r.out), r.exit)
	}
	if answer, err := io.ReadAll(conn); string(answer) != "bye" || err != nil {
		t.Errorf("got %q, %v", answer, err)
	}
}

func testImages(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	f.options.Image = "localhost/missing:latest"
	driver, err := docker.New(f.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Provision(t.Context(), workspace, "vm-1"); err == nil || entity.IsRefusal(err) || !strings.Contains(err.Error(), "pull it") {
		t.Errorf("Provision returned %v", err)
	}
	f.options.Image = f.engine.Import(t, "localhost/volume:latest", "VOLUME /data")
	if driver, err = docker.New(f.options); err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Provision(t.Context(), workspace, "vm-1"); err == nil || !strings.Contains(err.Error(), "volumes") {
		t.Errorf("Provision returned %v", err)
	}
}

func testInvalidOptions(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	for name, change := range map[string]func(*docker.Options){
		"no node":           func(o *docker.Options) { o.Node = "" },
		"label":             func(o *docker.Options) { o.Node = "a=b" },
		"no image":          func(o *docker.Options) { o.Image = "" },
		"image":             func(o *docker.Options) { o.Image = "../x y" },
		"user":              func(o *docker.Options) { o.User = "root" },
		"host's network":    func(o *docker.Options) { o.Network = "host" },
		"other's network":   func(o *docker.Options) { o.Network = "container:x" },
		"memory":            func(o *docker.Options) { o.Limits.MemoryBytes = -1 },
		"no agent":          func(o *docker.Options) { o.Agent = nil },
		"agent not static":  func(o *docker.Options) { o.Agent = []string{"/bin/ls"} },
		"relative agent":    func(o *docker.Options) { o.Agent = []string{"agent"} },
		"group":             func(o *docker.Options) { o.CgroupParent = "../other" },
		"no drives":         func(o *docker.Options) { o.Drives = nil },
		"drives' comma":     func(o *docker.Options) { o.Drives = drives{"/srv/a,b"} },
		"engine's protocol": func(o *docker.Options) { o.Engine = "nowhere" },
	} {
		o := f.options
		change(&o)
		if _, err := docker.New(o); err == nil {
			t.Errorf("%s: New returned no error", name)
		}
	}
}
