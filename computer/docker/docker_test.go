package docker_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/place"
)

// drives are folders of a test.
type drives struct{ dir string }

func (d drives) Provision(_ context.Context, workspaceID string) error {
	return os.MkdirAll(filepath.Join(d.dir, workspaceID, "files"), 0o755)
}

func (d drives) Dir() string { return d.dir }

func (d drives) files(workspaceID string) string { return filepath.Join(d.dir, workspaceID, "files") }

// CheckSpace says that a drive is full if it has a file named "full".
func (d drives) CheckSpace(_ context.Context, workspaceID string, _ func(bool)) error {
	if _, err := os.Stat(filepath.Join(d.files(workspaceID), "full")); err == nil {
		return entity.Errorf(entity.InsufficientStorage, "the drive is full")
	}
	return nil
}

func (d drives) WatchSpace() (<-chan struct{}, func()) { return nil, func() {} }

func (d drives) Usage(workspaceID string) (used, total uint64, err error) {
	_, err = os.Stat(d.files(workspaceID))
	return 1 << 20, 1 << 30, err
}

const workspace = "ws_1"

type fixture struct {
	*docker.Driver
	engine  *dockertest.Engine
	options docker.Options
}

// start returns a driver of an engine, with a provisioned workspace.
func start(t testing.TB, engine *dockertest.Engine, change ...func(*docker.Options)) fixture {
	t.Helper()
	f := fixture{engine: engine, options: docker.Options{
		Engine: engine.Address, Node: "node-1", Image: dockertest.Image, Agent: []string{engine.Agent}, Drives: drives{t.TempDir()},
		Limits: computer.Limits{MemoryBytes: 256 << 20, Processors: 1, Processes: 200},
	}}
	for _, c := range change {
		c(&f.options)
	}
	f.Driver = f.open(t)
	return f
}

// open returns another driver with the same options.
func (f fixture) open(t testing.TB) *docker.Driver {
	t.Helper()
	driver, err := docker.New(f.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Provision(t.Context(), workspace, "vm-1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := driver.Close(ctx); err != nil {
			t.Log(err)
		}
	})
	return driver
}

func shell(id, script string) computer.Spec {
	return computer.Spec{ID: id, Group: "session:" + id, Argv: []string{"sh", "-c", script}}
}

type result struct {
	out, errors string
	exit        computer.Exit
}

// finish closes the input, reads the output and waits.
func finish(t testing.TB, p computer.Process) result {
	t.Helper()
	s := p.Streams()
	_ = s.Stdin.Close()
	var out, errors bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.Stderr != nil {
			_, _ = io.Copy(&errors, s.Stderr)
		}
	}()
	_, _ = io.Copy(&out, s.Stdout)
	<-done
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result{out.String(), errors.String(), exit}
}

func (f fixture) run(t testing.TB, s computer.Spec) result {
	t.Helper()
	p, err := f.Start(t.Context(), workspace, s)
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, p)
}

// TestDriver has all tests of one engine, because the start of an engine takes seconds.
func TestDriver(t *testing.T) {
	place.Take(t)
	engine := dockertest.Start(t, dockertest.TestAgent)
	for _, one := range []struct {
		name string
		test func(*testing.T, *dockertest.Engine)
	}{
		{"conformance", testConformance},
		{"restrictions", testRestrictions},
		{"attributed process", testAttributedProcess},
		{"descendants without environment", testDescendantsWithoutEnvironment},
		{"out of memory", testOutOfMemory},
		{"group of all containers", testGroupOfAll},
		{"stuck container", testStuckContainer},
		{"full drive", testFullDrive},
		{"server that is killed", testServerKilled},
		{"recover", testRecover},
		{"idle", testIdle},
		{"unused containers", testUnusedContainersGiveWay},
		{"close", testClose},
		{"half-closed connection", testHalfClosedConnection},
		{"many connections", testManyConnections},
		{"killed dialer", testKilledDialer},
		{"canceled start", testCanceledStart},
		{"lost container", testLostContainer},
		{"killed listener", testKilledListener},
		{"idle listener", testIdleListener},
		{"images", testImages},
		{"invalid options", testInvalidOptions},
		{"engine that fails", testEngineFails},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, engine) })
	}
}

func testConformance(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	folder := f.options.Drives.(drives)
	path := folder.files
	hidden := func(workspaceID string) string { return path(workspaceID) + ".hidden" }
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	computertest.Test(t, f.Driver,
		func(id string) { rename(path(id), hidden(id)) }, func(id string) { rename(hidden(id), path(id)) })
	computertest.TestHost(t, computertest.Subject{
		Driver: f.Driver, Host: f.Driver, Files: path, Isolated: true, Freezes: true, LimitsMemory: true,
		Exposes: computertest.ExposedInOneNamespace(),
		Serve:   func(port int) []string { return []string{computer.ProgramPath, "serve", strconv.Itoa(port)} },
	})
}
