package computertest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

func testStreams(t *testing.T, w *workspace) {
	r := w.sh(t, "echo out; echo err >&2; read line; echo got $line; exit 7")
	r.expect(t, "out")
	r.write(t, "a line\n")
	output, exit := r.finish(t)
	if output != "got a line\n" || r.stderr.String() != "err\n" {
		t.Errorf("got %q and %q", output, r.stderr.String())
	}
	checkExit(t, exit, 7)
}

// testSlowReader verifies that a process with unread output does not delay other processes, and that no output is lost.
func testSlowReader(t *testing.T, w *workspace) {
	const size = 4 << 20
	slow := w.sh(t, "head -c 4194304 /dev/zero")
	if got := w.run(t, "echo other"); got != "other\n" {
		t.Errorf("got %q", got)
	}
	total, part := 0, make([]byte, 1000)
	for {
		n, err := slow.lines.Read(part)
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if total != size {
		t.Errorf("got %d bytes, want %d", total, size)
	}
	checkExit(t, slow.wait(t), 0)
}

func testEndOfInput(t *testing.T, w *workspace) {
	r := w.sh(t, "cat; echo end")
	r.write(t, "text ")
	if output, exit := r.finish(t); output != "text end\n" || exit.Status != 0 {
		t.Errorf("got %q, %+v", output, exit)
	}
	// A process that does not read its input does not block the writer forever.
	r = w.sh(t, "exec 0<&-; echo closed")
	r.expect(t, "closed")
	checkExit(t, r.wait(t), 0)
	if _, err := r.Streams().Stdin.Write(make([]byte, 1<<20)); err == nil {
		t.Error("a write to a process that has ended returned no error")
	}
}

func testStatus(t *testing.T, w *workspace) {
	for script, want := range map[string]computer.Exit{
		"true":          {},
		"exit 255":      {Status: 255},
		"kill -KILL $$": {Status: 128 + 9, Signal: syscall.SIGKILL},
		"kill -TERM $$": {Status: 128 + 15, Signal: syscall.SIGTERM},
		"nosuchprogram": {Status: 127},
	} {
		if _, got := w.sh(t, script).finish(t); got.Status != want.Status || got.Signal != want.Signal || got.Reason != "" {
			t.Errorf("%s: got %+v, want %+v", script, got, want)
		}
	}
}

func testSignals(t *testing.T, w *workspace) {
	r := w.sh(t, `trap 'echo caught; exit 9' TERM; echo ready; while :; do read line; done`)
	r.expect(t, "ready")
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "caught")
	checkExit(t, r.wait(t), 9)
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("Signal of a process that has ended: %v", err)
	}
	r = w.sh(t, "echo ready; read line")
	r.expect(t, "ready")
	if err := r.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(t); exit.Signal != syscall.SIGINT || exit.Status != 130 {
		t.Errorf("got %+v after an interrupt", exit)
	}
	for _, invalid := range []syscall.Signal{-1, 65} {
		r := w.sh(t, "echo ready; read line")
		r.expect(t, "ready")
		checkCode(t, r.Signal(invalid), entity.InvalidRequest)
	}
}

func testEnvironment(t *testing.T, w *workspace) {
	t.Setenv("ATELIER_TEST_SECRET", "of the server")
	s := w.spec("env")
	s.Env = []string{"COLOR=dark red", "EMPTY=", "LANG=C"}
	output, exit := w.start(t, s).finish(t)
	checkExit(t, exit, 0)
	got := map[string]string{}
	for line := range strings.Lines(output) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := got[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		got[name] = value
	}
	for name, want := range map[string]string{"COLOR": "dark red", "EMPTY": "", "LANG": "C"} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
	for _, name := range []string{"HOME", "PATH"} {
		if got[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}
	if _, there := got["ATELIER_TEST_SECRET"]; there {
		t.Error("the server's environment was passed")
	}
	w.run(t, `test -d "$HOME" && touch "$HOME/written" && rm "$HOME/written"`)
}

func testCwd(t *testing.T, w *workspace) {
	w.run(t, "mkdir -p a/b && touch a/b/here file && ln -s a/b inside && ln -s ../.. outside && ln -s /etc absolute")
	for cwd, want := range map[string]string{"": "file", ".": "file", "a/b": "here", "a/../a/b": "here", "inside": "here"} {
		s := w.spec("test -e " + want)
		s.Cwd = cwd
		if _, exit := w.start(t, s).finish(t); exit.Status != 0 {
			t.Errorf("cwd %q: ended with %+v", cwd, exit)
		}
	}
	for _, cwd := range []string{"..", "a/../..", "../" + filepath.Base(w.Files(w.id)), "/etc", "outside", "absolute", "file", "none", "a\x00b"} {
		s := w.spec("touch ran")
		s.Cwd = cwd
		_, err := w.Host.Start(limit(t), w.id, s)
		checkCode(t, err, entity.InvalidRequest)
	}
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("a process ran in an invalid working directory")
	}
}

func testInvalidSpecs(t *testing.T, w *workspace) {
	for name, change := range map[string]func(*computer.Spec){
		"no program":         func(s *computer.Spec) { s.Argv = nil },
		"empty program":      func(s *computer.Spec) { s.Argv = []string{""} },
		"zero byte":          func(s *computer.Spec) { s.Argv = []string{"sh", "a\x00b"} },
		"long arguments":     func(s *computer.Spec) { s.Argv = []string{"echo", strings.Repeat("x", 4<<20)} },
		"no id":              func(s *computer.Spec) { s.ID = "" },
		"id of a path":       func(s *computer.Spec) { s.ID = "../x" },
		"no group":           func(s *computer.Spec) { s.Group = "" },
		"group of a path":    func(s *computer.Spec) { s.Group = "session:../x" },
		"variable":           func(s *computer.Spec) { s.Env = []string{"NOVALUE"} },
		"unnamed variable":   func(s *computer.Spec) { s.Env = []string{"=x"} },
		"variable with zero": func(s *computer.Spec) { s.Env = []string{"A=\x00"} },
		"no columns":         func(s *computer.Spec) { s.Terminal = &computer.TerminalSize{Rows: 1} },
		"too many rows":      func(s *computer.Spec) { s.Terminal = &computer.TerminalSize{Columns: 1, Rows: 1001} },
		"negative memory":    func(s *computer.Spec) { s.Limits.MemoryBytes = -1 },
		"negative processor": func(s *computer.Spec) { s.Limits.Processors = -1 },
		"negative processes": func(s *computer.Spec) { s.Limits.Processes = -1 },
	} {
		s := w.spec("touch ran")
		change(&s)
		if _, err := w.Host.Start(limit(t), w.id, s); code(err) != entity.InvalidRequest {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("a process with an invalid spec ran")
	}
	running := w.spec("echo ready; read line")
	w.start(t, running).expect(t, "ready")
	_, err := w.Host.Start(limit(t), w.id, running) // the id of a running process
	checkCode(t, err, entity.InvalidRequest)
	_, err = w.Host.Start(limit(t), "ws_unknown", w.spec("true"))
	checkCode(t, err, entity.NotFound)
}

func testUnknownProgram(t *testing.T, w *workspace) {
	w.run(t, "echo text > text")
	for _, program := range []string{"nosuchprogram", "/bin/nosuchprogram", "./none", "./text", "."} {
		s := w.spec("")
		s.Argv = []string{program}
		_, err := w.Host.Start(limit(t), w.id, s)
		checkCode(t, err, entity.InvalidRequest)
	}
}

func testTerminal(t *testing.T, w *workspace) {
	s := w.spec("stty -echo; test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; echo $TERM; read x; stty size; tty >/dev/null; echo $?; exit 3")
	s.Terminal = &computer.TerminalSize{Columns: 81, Rows: 25}
	r := w.start(t, s)
	if r.Streams().Stderr != nil {
		t.Error("a process with a terminal has a stream for standard error")
	}
	r.expect(t, "terminal")
	r.expect(t, "25 81")
	term, err := r.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(term) == "" {
		t.Errorf("TERM is %q, %v", term, err)
	}
	checkCode(t, r.Resize(computer.TerminalSize{Columns: 0, Rows: 10}), entity.InvalidRequest)
	if err := r.Resize(computer.TerminalSize{Columns: 101, Rows: 33}); err != nil {
		t.Fatal(err)
	}
	r.write(t, "go\n")
	r.expect(t, "33 101")
	r.expect(t, "0")
	output, exit := r.finish(t)
	checkExit(t, exit, 3)
	if output != "" {
		t.Errorf("got the rest %q", output)
	}
	if err := r.Resize(computer.TerminalSize{Columns: 80, Rows: 25}); err != nil {
		t.Errorf("Resize after the end: %v", err)
	}
	pipes := w.sh(t, "test -t 1 || echo none; read x")
	pipes.expect(t, "none")
	if err := pipes.Resize(computer.TerminalSize{Columns: 80, Rows: 25}); err != nil {
		t.Errorf("Resize of a process with pipes: %v", err)
	}
}

// testTerminalInterrupt verifies that a terminal controls the process, and that Signal reaches the foreground process group.
func testTerminalInterrupt(t *testing.T, w *workspace) {
	for name, interrupt := range map[string]func(*running) error{
		"control character": func(r *running) error {
			_, err := r.Streams().Stdin.Write([]byte{3})
			return err
		},
		"signal": func(r *running) error { return r.Signal(syscall.SIGINT) },
	} {
		s := w.spec(`stty -echo; trap 'echo interrupted' INT; (trap - INT; echo ready; exec cat); echo $?; read x; exit 5`)
		s.Terminal = &computer.TerminalSize{Columns: 80, Rows: 24}
		r := w.start(t, s)
		r.expect(t, "ready")
		if err := interrupt(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The process ends after its output has been read, because the kernel may discard the rest when a terminal's leader ends.
		r.expect(t, "interrupted")
		r.expect(t, "130")
		r.write(t, "go\n")
		if output, exit := r.finish(t); exit.Status != 5 {
			t.Errorf("%s: got %q, %+v", name, output, exit)
		}
	}
}

// testFiles verifies that both the server and processes can read, change and delete each other's files.
func testFiles(t *testing.T, w *workspace) {
	w.run(t, "umask 077; mkdir -p made/deep && echo process > made/deep/file && chmod 700 made && chmod 600 made/deep/file")
	content, err := os.ReadFile(w.path("made/deep/file"))
	if err != nil || string(content) != "process\n" {
		t.Fatalf("got %q, %v", content, err)
	}
	if err := os.WriteFile(w.path("made/deep/file"), []byte("server\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("folder/new"), []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run(t, "cat made/deep/file folder/new; echo more >> folder/new; chmod 640 folder/new; rm -r made; mkdir folder/a"); got != "server\nnew\n" {
		t.Errorf("got %q", got)
	}
	if content, err := os.ReadFile(w.path("folder/new")); err != nil || string(content) != "new\nmore\n" {
		t.Errorf("got %q, %v", content, err)
	}
	if _, err := os.Stat(w.path("made")); err == nil {
		t.Error("made is still there")
	}
	if err := os.RemoveAll(w.path("folder")); err != nil {
		t.Error(err)
	}
	if w.Isolated {
		w.run(t, "echo x > set; chmod 4755 set || true")
		if at, err := os.Stat(w.path("set")); err != nil || at.Mode()&os.ModeSetuid != 0 {
			t.Errorf("a process made a setuid file: %v, %v", at, err)
		}
	}
}
