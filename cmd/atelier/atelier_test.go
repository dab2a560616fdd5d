package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/atelier-run/atelier/tests/await"
	"github.com/atelier-run/atelier/tests/race"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"atelier": main})
}

// TestCommandLine runs the transcripts in testdata.
func TestCommandLine(t *testing.T) {
	race.Skip(t, "the servers and clients are processes")
	setup := func(e *testscript.Env) error {
		e.Values[muteKey{}], e.Values[testKey{}] = new(mute), t
		return nil
	}
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: setup, Condition: condition, Cmds: map[string]func(*testscript.TestScript, bool, []string){
		"waitfile": waitFile, "waittext": waitText, "setpassword": setPassword,
		"modes": checkModes, "waitworkspace": waitWorkspace, "restore": restore,
		"mutebucket": muteBucket, "waittask": waitTask, "verify": verify, "damage": damage, "drivefile": driveFile,
		"serveprocesses": serveProcesses, "seturl": setURL,
	}})
}

// waitFile waits until a file exists.
func waitFile(ts *testscript.TestScript, _ bool, arguments []string) {
	path := ts.MkAbs(arguments[0])
	await.True(ts, arguments[0], func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// waitText waits until a file has a line that matches a regular expression.
func waitText(ts *testscript.TestScript, _ bool, arguments []string) {
	path, wanted := ts.MkAbs(arguments[0]), regexp.MustCompile(arguments[1])
	await.True(ts, arguments[0]+" with "+arguments[1], func() bool {
		text, err := os.ReadFile(path)
		return err == nil && wanted.Match(text)
	})
}

// setPassword opens the link that quickstart has printed into a file, and sets a password there.
func setPassword(ts *testscript.TestScript, _ bool, arguments []string) {
	page, token, _ := strings.Cut(string(regexp.MustCompile(`http\S+token=\S+`).Find([]byte(ts.ReadFile(arguments[0])))), "?token=")
	answer, err := http.PostForm(page, url.Values{"token": {token}, "password": {"correct horse"}, "again": {"correct horse"}})
	ts.Check(err)
	ts.Check(answer.Body.Close())
	if answer.StatusCode != http.StatusOK { // the response is the account's page
		ts.Fatalf("setting the password is answered %s", answer.Status)
	}
}

// setURL sets ATELIER_URL to the address in a file.
func setURL(ts *testscript.TestScript, _ bool, arguments []string) {
	ts.Setenv("ATELIER_URL", strings.TrimSpace(ts.ReadFile(arguments[0])))
}

// waitWorkspace waits until a workspace of a node has a status.
func waitWorkspace(ts *testscript.TestScript, _ bool, arguments []string) {
	dir, slug, status := ts.MkAbs(arguments[0]), arguments[1], arguments[2]
	await.True(ts, slug+" to become "+status, func() bool {
		var w struct{ Status string }
		err := newOperator(dir).call(context.Background(), http.MethodGet, slugFlag{slug}.path(""), nil, &w)
		return err == nil && w.Status == status
	})
}

// restore restores the backup with the id in the output of a command, which is in a file.
func restore(ts *testscript.TestScript, _ bool, arguments []string) {
	var b backupTask
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(arguments[2])), &b))
	ts.Check(ts.Exec("atelier", "admin", "backup", "restore", "--data="+arguments[0], "--slug="+arguments[1], "--backup="+b.BackupID))
}

// verify verifies the backup with the id in the output of a command, which is in a file.
func verify(ts *testscript.TestScript, fails bool, arguments []string) {
	var b backupTask
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(arguments[2])), &b))
	err := ts.Exec("atelier", "admin", "backup", "verify", "--data="+arguments[0], "--slug="+arguments[1], "--backup="+b.BackupID)
	if (err != nil) != fails {
		ts.Fatalf("verification: %v", err)
	}
}

// damage changes a byte of each compressed archive below a folder.
func damage(ts *testscript.TestScript, _ bool, arguments []string) {
	ts.Check(filepath.WalkDir(ts.MkAbs(arguments[0]), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".tar.zst") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		content[len(content)/2] ^= 1
		return os.WriteFile(path, content, 0o600)
	}))
}

// driveFile writes a file on the drive of the only workspace, as a process does. Without content, it prints the file.
func driveFile(ts *testscript.TestScript, fails bool, arguments []string) {
	drives, err := filepath.Glob(filepath.Join(ts.MkAbs(arguments[0]), "drives", "*", "files"))
	ts.Check(err)
	path := filepath.Join(drives[0], arguments[2])
	if len(arguments) > 3 {
		ts.Check(os.WriteFile(path, []byte(arguments[3]), 0o600))
		return
	}
	if err := ts.Exec("cat", path); (err != nil) != fails {
		ts.Fatalf("%s: %v", path, err)
	}
}

// mute is a listener that accepts connections and never answers.
type mute struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

type muteKey struct{}

// muteBucket starts a listener that never answers, and sets BUCKET to the address of a bucket there; with "stop", it closes the
// listener and its connections, so that further ones are refused.
func muteBucket(ts *testscript.TestScript, _ bool, arguments []string) {
	m := ts.Value(muteKey{}).(*mute)
	if len(arguments) == 1 && arguments[0] == "stop" {
		ts.Check(m.stop())
		return
	}
	var err error
	m.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { m.stop() })
	ts.Setenv("BUCKET", "s3://backups?region=us-east-1&endpoint=http://"+m.Addr().String())
	go func() {
		for {
			conn, err := m.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, conn)
			m.mu.Unlock()
		}
	}()
}

func (m *mute) stop() error {
	err := m.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		conn.Close()
	}
	return err
}

// waitTask waits until the computer of a node's workspace has a task, or with an exclamation mark until it has none. It
// sets TASK to the last task that it saw.
func waitTask(ts *testscript.TestScript, none bool, arguments []string) {
	w := taskWaiter{operator: newOperator(ts.MkAbs(arguments[0])), workspace: slugFlag{arguments[1]}}
	await.True(ts, "the task to begin or end", func() bool {
		state, err := w.computer(context.Background())
		if err == nil && state.Task != nil {
			ts.Setenv("TASK", state.Task.ID)
		}
		return err == nil && (state.Task == nil) == none
	})
}

// checkModes fails unless only the owner can read the data directory and its secrets.
func checkModes(ts *testscript.TestScript, _ bool, arguments []string) {
	dir := ts.MkAbs(arguments[0])
	for name, mode := range map[string]fs.FileMode{".": 0o700, socketName: 0o600, quickstartKey: 0o600, "secret": 0o600} {
		at, err := os.Stat(filepath.Join(dir, name))
		ts.Check(err)
		if at.Mode().Perm() != mode {
			ts.Fatalf("%s has mode %o", name, at.Mode().Perm())
		}
	}
}

func TestReferenceIsFresh(t *testing.T) {
	stored, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"reference"}, console{&out, &errs}); code != 0 {
		t.Fatal(errs.String())
	}
	if out.String() != string(stored) {
		t.Error("docs/configuration.md is stale: run make generate")
	}
}

func parse(t *testing.T, arguments ...string) (*serveCommand, error) {
	t.Helper()
	chosen, err := newCommands(io.Discard).Parse(append([]string{"serve"}, arguments...))
	if err != nil {
		return nil, err
	}
	return chosen.Target.(*serveCommand), nil
}

// TestPrecedence verifies that a flag takes precedence over the environment, and the environment over the file.
func TestPrecedence(t *testing.T) {
	path := t.TempDir() + "/atelier.yaml"
	content := "rate: 1\nburst: 1\nmax-streams: 1\ncache-size: 8MiB\ngenerated-trees: [a, b]\nheartbeat: 3s\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ATELIER_CONFIG", path)
	t.Setenv("ATELIER_RATE", "2")
	t.Setenv("ATELIER_BURST", "2")
	got, err := parse(t, "--rate=3")
	if err != nil {
		t.Fatal(err)
	}
	if got.Rate != 3 || got.Burst != 2 || got.MaxStreams != 1 || got.CacheSize != 8<<20 ||
		got.Heartbeat.String() != "3s" || strings.Join(got.GeneratedTrees, " ") != "a b" {
		t.Errorf("%+v", got)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "12": 12, "1KiB": 1 << 10, "3 MiB": 3 << 20, "2GiB": 2 << 30} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1MB", "MiB", "99999999999GiB", "1.5GiB"} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a size of %d", text, got)
		}
	}
}
