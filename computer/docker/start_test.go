package docker_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
	"testing"

	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/tests/await"
)

// endsLate is a context that ends while a process starts: when the process has made a file.
type endsLate struct {
	context.Context
	t *testing.T
	// isHeld is set when the process is about to run. The next look at the context is that before it runs.
	isHeld, isRunning bool
	file              string
}

// Err implements context.Context.
func (e *endsLate) Err() error {
	if !e.isHeld {
		return nil
	}
	if !e.isRunning {
		e.isRunning = true
		return nil
	}
	await.True(e.t, "the start of the process", func() bool {
		_, err := os.Stat(e.file)
		return err == nil
	})
	return context.Canceled
}

// testCanceledStart ends the context of Start when the process runs already, and writes more than anybody reads.
func testCanceledStart(t *testing.T, engine *dockertest.Engine) {
	f := start(t, engine)
	ctx := &endsLate{Context: t.Context(), t: t, file: filepath.Join(f.options.Drives.(drives).files(workspace), "runs")}
	s := shell("p1", "touch runs; exec yes")
	s.Attribute = func(int) error { ctx.isHeld = true; return nil }
	if _, err := f.Start(ctx, workspace, s); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start returned %v", err)
	}
	if r := f.run(t, shell("p2", "pgrep yes; echo none")); r.out != "none\n" {
		t.Errorf("processes are left: %q", r.out)
	}
	await.True(t, "the end of the copy of the output", func() bool {
		var stacks bytes.Buffer
		return pprof.Lookup("goroutine").WriteTo(&stacks, 1) == nil && !bytes.Contains(stacks.Bytes(), []byte("docker.(*session).copy"))
	})
}
