package tools_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/runner/builtin/tools"
)

// open returns a drive with the session's folder "work".
func open(t *testing.T) *tools.Drive {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := tools.Open(dir, filepath.Join(dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func write(t *testing.T, d *tools.Drive, name, text string) {
	t.Helper()
	if _, _, err := d.Write(name, text); err != nil {
		t.Fatal(err)
	}
}

// wants expects a result that equals a text, without an error.
func wants(t *testing.T, want string) func(got string, err error) {
	t.Helper()
	return func(got string, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestOpenRefusesFoldersOutsideOfTheDrive(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, cwd := range []string{other, filepath.Join(dir, "missing"), filepath.Join(dir, "link"), filepath.Join(dir, "..")} {
		if _, err := tools.Open(dir, cwd); err == nil {
			t.Errorf("%s was opened", cwd)
		}
	}
}

func TestFilesStayInTheDrive(t *testing.T) {
	d := open(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"absolute": secret, "relative": "../../secret", "folder": filepath.Dir(secret)} {
		if err := os.Symlink(target, filepath.Join(d.Cwd(), name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "../../x", secret, "absolute", "relative", "folder/secret", "a\x00b"} {
		if text, err := d.Read(name, 0, 0); err == nil {
			t.Errorf("read %q: %q", name, text)
		}
		if _, _, err := d.Write(name, "changed"); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	if content, _ := os.ReadFile(secret); string(content) != "secret" {
		t.Errorf("the file outside is now %q", content)
	}
	wants(t, "[no line matches]")(d.Search(t.Context(), "secret", ".", ""))
}

func TestReadAndWrite(t *testing.T) {
	d := open(t)
	write(t, d, "a/b.txt", "one\ntwo\nthree\n")
	write(t, d, filepath.Join(d.Dir, "top.txt"), "top")
	wants(t, "one\ntwo\nthree\n")(d.Read("a/b.txt", 0, 0))
	wants(t, "two\n[the file goes on at line 3]")(d.Read("a/b.txt", 2, 1))
	wants(t, "top")(d.Read("../top.txt", 1, 10))
	if before, existed, err := d.Write("a/b.txt", "new"); err != nil || !existed || before != "one\ntwo\nthree\n" {
		t.Errorf("%q, %t, %v", before, existed, err)
	}
	write(t, d, "empty", "")
	wants(t, "")(d.Read("empty", 0, 0))
	for name, part := range map[string]string{"a": "is a folder", "none": "no such file"} {
		if _, err := d.Read(name, 0, 0); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Read("a/b.txt", 9, 0); err == nil {
		t.Error("a line after the end was read")
	}
}

func TestReadIsBounded(t *testing.T) {
	d := open(t)
	write(t, d, "lines", strings.Repeat(strings.Repeat("x", 99)+"\n", 1000))
	if text, err := d.Read("lines", 0, 0); err != nil || len(text) > tools.MaxOutput+50 || !strings.Contains(text, "goes on at line 655") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	write(t, d, "line", strings.Repeat("ö", 100_000))
	if text, err := d.Read("line", 0, 0); err != nil || len(text) > tools.MaxOutput+50 || !strings.HasSuffix(text, "is cut]") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	write(t, d, "binary", "a\x00b")
	if _, err := d.Read("binary", 0, 0); err == nil || !strings.Contains(err.Error(), "binary file of 3 bytes") {
		t.Error(err)
	}
	if err := syscall.Mkfifo(filepath.Join(d.Cwd(), "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read("pipe", 0, 0); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
	if _, _, err := d.Write("pipe", "x"); err == nil {
		t.Error("a pipe was written")
	}
}

// TestCutResultsSaySo expects that a result has room for how it goes on: the agent cuts results that are longer than MaxOutput.
func TestCutResultsSaySo(t *testing.T) {
	d := open(t)
	for _, length := range []int{63, 79, 127} { // lines that leave less room than the mark, if they fill the result
		write(t, d, "lines", strings.Repeat(strings.Repeat("x", length)+"\n", 2000))
		text, err := d.Read("lines", 0, 0)
		if want := fmt.Sprintf("[the file goes on at line %d]", strings.Count(text, "\n")+1); err != nil || len(text) > tools.MaxOutput ||
			!strings.HasSuffix(text, want) {
			t.Errorf("%d bytes, %v, want %s", len(text), err, want)
		}
	}
	wants(t, strings.Repeat("x", 127)+"\n[the file goes on at line 4]")(d.Read("lines", 3, 1))
	if text, err := d.Read("lines", 1999, math.MaxInt); err != nil || strings.Count(text, "\n") != 2 || strings.Contains(text, "[") {
		t.Errorf("%q, %v", text, err)
	}
	for i := range 400 {
		write(t, d, fmt.Sprintf("long/%03d%s", i, strings.Repeat("x", 200)), "")
	}
	text, err := d.List(t.Context(), "long", 1)
	if err != nil || len(text) > tools.MaxOutput || !strings.HasSuffix(text, "x\n[there are more entries; list fewer levels, or search]\n") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestEdit(t *testing.T) {
	d := open(t)
	write(t, d, "f", "a b a")
	for _, test := range []struct {
		before, after string
		all           bool
		part          string
	}{
		{"x", "y", false, "does not have"}, {"a", "c", false, "2 times"}, {"", "c", true, "empty"}, {"a", "a", true, "same"},
	} {
		if _, err := d.Edit("f", test.before, test.after, test.all); err == nil || !strings.Contains(err.Error(), test.part) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if n, err := d.Edit("f", "a", "c", true); n != 2 || err != nil {
		t.Error(n, err)
	}
	if n, err := d.Edit("f", "b", "$1", false); n != 1 || err != nil {
		t.Error(n, err)
	}
	wants(t, "c $1 c")(d.Read("f", 0, 0))
}

// TestFullDiskKeepsTheContent changes a file in another process. Its files may not grow as far as the change requires.
func TestFullDiskKeepsTheContent(t *testing.T) {
	const variable = "TEST_OF_A_FULL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		d, err := tools.Open(dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 2000, Max: 2000}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Edit("f", "a", strings.Repeat("b", 3000), false); !errors.Is(err, syscall.EFBIG) {
			t.Error(err)
		}
		return
	}
	d := open(t)
	before := "a" + strings.Repeat("x", 1000)
	write(t, d, "f", before)
	test := exec.Command(os.Args[0], "-test.run=^TestFullDiskKeepsTheContent$")
	test.Env = append(os.Environ(), variable+"="+d.Cwd())
	if output, err := test.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	wants(t, before)(d.Read("f", 0, 0))
	write(t, d, "f", "short")
	wants(t, "short")(d.Read("f", 0, 0))
	write(t, d, "f", "longer than before")
	wants(t, "longer than before")(d.Read("f", 0, 0))
}

func TestListAndSearch(t *testing.T) {
	d := open(t)
	write(t, d, "a.go", "package a\nfunc Find() {}\n")
	write(t, d, "sub/b.go", "// Find\n")
	write(t, d, "sub/c.txt", "Find\n")
	write(t, d, "node_modules/x.go", "Find\n")
	write(t, d, "binary.go", "Find\x00\n")
	write(t, d, "../other.go", "Find\n")
	wants(t, "a.go\nbinary.go\nnode_modules/\nsub/\n")(d.List(t.Context(), ".", 1))
	wants(t, "a.go\nbinary.go\nnode_modules/\nsub/\nsub/b.go\nsub/c.txt\n")(d.List(t.Context(), ".", 2))
	wants(t, "b.go\nc.txt\n")(d.List(t.Context(), "sub", 1))
	wants(t, "a.go:2: func Find() {}\nsub/b.go:1: // Find\n")(d.Search(t.Context(), `\bFi.d\b`, ".", "*.go"))
	wants(t, "sub/c.txt:1: Find\n")(d.Search(t.Context(), "^Find", "sub", ""))
	wants(t, "node_modules/x.go:1: Find\n")(d.Search(t.Context(), "Find", "node_modules", ""))
	wants(t, d.Absolute("other.go")+":1: Find\n")(d.Search(t.Context(), "Find", "../other.go", ""))
	for _, pattern := range []string{"(", strings.Repeat("x", 2000)} {
		if _, err := d.Search(t.Context(), pattern, ".", ""); err == nil {
			t.Errorf("%.5s was accepted", pattern)
		}
	}
	write(t, d, "many", strings.Repeat("match\n", 1000))
	if text, err := d.Search(t.Context(), "match", ".", ""); err != nil || strings.Count(text, "\n") != 301 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := d.List(t.Context(), "a.go", 1); err == nil {
		t.Error("a file was listed")
	}
}

func shell(t *testing.T, d *tools.Drive, text string) tools.Result {
	t.Helper()
	result, err := d.Shell(t.Context(), tools.Command{Text: text, Env: os.Environ(), Timeout: time.Minute}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestShell(t *testing.T) {
	d := open(t)
	for text, want := range map[string]tools.Result{
		"pwd; echo wrong >&2; exit 3": {Status: 3, Output: d.Cwd() + "\nwrong\n"},
		"kill -9 $$":                  {Status: 137},
		`printf 'a\377\000b'`:         {Output: "a\uFFFD\uFFFDb"},
		"cat":                         {},
		"sleep 60 & echo started":     {Output: "started\n"},
	} {
		if got := shell(t, d, text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	got := shell(t, d, "seq 1 100000; echo end")
	if len(got.Output) > tools.MaxOutput || !strings.HasPrefix(got.Output, "1\n2\n") || !strings.HasSuffix(got.Output, "\n100000\nend\n") ||
		!strings.Contains(got.Output, "bytes of output are left out") {
		t.Errorf("%d bytes", len(got.Output))
	}
}

// TestShellEndsItsGroup starts a process that ignores SIGTERM; its parent ignores SIGTERM, too.
func TestShellEndsItsGroup(t *testing.T) {
	for name, isCancelled := range map[string]bool{"at cancellation": true, "at its timeout": false} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			timeout := time.Minute
			if !isCancelled {
				timeout = 3 * time.Second
			}
			command := tools.Command{Env: os.Environ(), Timeout: timeout,
				Text: "trap '' TERM; sh -c \"trap '' TERM; while :; do sleep 1; done\" & echo $!; while :; do sleep 1; done"}
			hasEnded := func() bool { return false }
			result, err := d.Shell(ctx, command, func(output string) {
				pid, err := strconv.Atoi(strings.TrimSpace(output))
				if err != nil {
					t.Error(err)
				}
				hasEnded = watch(t, pid)
				if isCancelled {
					cancel()
				}
			})
			if isCancelled != errors.Is(err, context.Canceled) || isCancelled == result.IsTimedOut {
				t.Errorf("%+v, %v", result, err)
			}
			if !hasEnded() {
				t.Error("a process of the group still runs")
			}
		})
	}
}

// watch returns a function that reports whether a process ends within some seconds.
func watch(t *testing.T, pid int) func() bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() bool {
		defer unix.Close(fd)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		return n == 1 && err == nil
	}
}
