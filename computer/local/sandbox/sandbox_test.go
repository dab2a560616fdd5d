package sandbox_test

import (
	"io"
	"os"
	"testing"

	"github.com/atelier-run/atelier/computer/local/sandbox"
	"golang.org/x/sys/unix"
)

func TestX(t *testing.T) {
	dir := t.TempDir()
	c, err := sandbox.Start(t.Context(), sandbox.Config{Node: "n", Name: "ws", Files: dir, Hostname: "ws-1", UID: 0x70000001, ScratchBytes: 64 << 20, ScratchFiles: 10000, Unprivileged: os.Getuid() != 0,
		Nested: os.Getenv("NESTED") != ""}, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"id; ls -la / /drive /dev; cat /proc/mounts; ps aux; touch /drive/x; ls -l /drive; env", "exit 3"} {
		p, err := c.Start(t.Context(), sandbox.Spec{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: ".", Held: func(pid int) error { t.Log(pid); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(p.Stdout)
		errs, _ := io.ReadAll(p.Stderr)
		<-p.Ended()
		t.Logf("%s %s %+v", out, errs, p.Result())
	}
	p, err := c.Start(t.Context(), sandbox.Spec{Argv: []string{"sh", "-c", "tty; stty size; ls -l /dev/pts; exit 4"}, Terminal: &unix.Winsize{Row: 20, Col: 70}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: ".", Held: func(pid int) error { t.Log(pid); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout)
	t.Logf("%s %v", out, err)
	t.Log(c.Kill(t.Context()))
	t.Log(c.Diagnosis())
}
