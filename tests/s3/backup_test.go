package s3

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program builds the command, once for a test.
func program(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "atelier")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/atelier").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// node is a node whose backups go to a bucket, with the workspace "demo".
type node struct {
	t           *testing.T
	binary, dir string
}

// start runs a node until the test ends.
func start(t *testing.T, binary, bucket, key, secret string) *node {
	t.Helper()
	n := &node{t, binary, filepath.Join(t.TempDir(), "data")}
	var log bytes.Buffer
	command := exec.Command(binary, "serve", "--quickstart", "--data", n.dir, "--listen=127.0.0.1:0", "--backup-url", bucket)
	command.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secret)
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() || strings.Contains(log.String(), secret) {
			t.Errorf("the node's log: %s", log.String())
		}
	})
	given := time.After(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		out, _ := exec.Command(binary, "admin", "workspace", "list", "--data", n.dir).Output()
		if bytes.Contains(out, []byte(`"status":"active"`)) {
			return n
		}
		select {
		case <-given:
			t.Fatalf("the workspace does not become active: %s", out)
		case <-time.After(pause):
		}
	}
}

// backup runs a command on the workspace's backups and returns its output, its errors and its exit code.
func (n *node) backup(arguments ...string) (out, errs string, code int) {
	n.t.Helper()
	command := exec.Command(n.binary, append(append([]string{"admin", "backup"}, arguments...), "--data", n.dir, "--slug=demo")...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		n.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

func (n *node) files() string {
	n.t.Helper()
	all, err := filepath.Glob(filepath.Join(n.dir, "drives", "*", "files"))
	if err != nil || len(all) != 1 {
		n.t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

// A drive goes to the server and comes back.
func TestBackupAndRestore(t *testing.T) {
	server := Start(t)
	n := start(t, program(t), "s3://backups?region=us-east-1&endpoint=http://"+server.Endpoint, server.Key, server.Secret)
	file := filepath.Join(n.files(), "file")
	content := make([]byte, 20<<20) // parts: two of 8 MiB, and a rest
	rand.Read(content)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := n.backup("create")
	var b struct {
		BackupID  string
		SizeBytes int64
	}
	if err := json.Unmarshal([]byte(out), &b); err != nil || code != 0 || b.SizeBytes < int64(len(content)) {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	stored, err := filepath.Glob(filepath.Join(server.Dir, "backups", "ws_*", b.BackupID+".tar.zst"))
	if err != nil || len(stored) != 1 {
		t.Errorf("stored: %v, %v", stored, err)
	}
	if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := n.backup("restore", "--backup", b.BackupID); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if got, err := os.ReadFile(filepath.Join(n.files(), "file")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// A backup to a bucket that cannot be used fails within a minute, with the reason.
func TestUnusableBuckets(t *testing.T) {
	server := Start(t)
	binary := program(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts connections, and nothing ever answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	region := "?region=us-east-1&endpoint=http://"
	for name, test := range map[string]struct{ bucket, key, secret, reason string }{
		"mute":    {"s3://backups" + region + mute.Addr().String(), "k", "hidden", "no answer within 30s"},
		"closed":  {"s3://backups" + region + freeAddress(t), "k", "hidden", "connection refused"},
		"key":     {"s3://backups" + region + server.Endpoint, "wrongkey", "hidden", "No user exists with the provided access key ID"},
		"secret":  {"s3://backups" + region + server.Endpoint, server.Key, "hidden", "SignatureDoesNotMatch"},
		"absent":  {"s3://absent" + region + server.Endpoint, server.Key, server.Secret, "NoSuchBucket"},
		"unknown": {"s3://backups" + region + "absent.invalid", "k", "hidden", "absent.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, binary, test.bucket, test.key, test.secret)
			began := time.Now()
			out, errs, code := n.backup("create")
			took := time.Since(began)
			reason := regexp.MustCompile(`(?m)^atelier: the backup bkp_\w+ has failed: .*` + regexp.QuoteMeta(test.reason))
			if code != 1 || out != "" || !reason.MatchString(errs) || took > time.Minute {
				t.Errorf("exit code %d after %s: %s%s", code, took, out, errs)
			}
			if _, errs, code := n.backup("wait", "--wait=1s"); code != 0 {
				t.Errorf("something is under way: %s", errs)
			}
		})
	}
}

// A command that does not wait for the end has an exit code of its own, and the node ends what was begun.
func TestUnfinishedBackup(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	n := start(t, program(t), "s3://backups?region=us-east-1&endpoint=http://"+mute.Addr().String(), "k", "hidden")
	_, errs, code := n.backup("create", "--wait=10ms")
	task := regexp.MustCompile(`--task=(tsk_\w+)\n$`).FindStringSubmatch(errs)
	if code != 4 || task == nil || !strings.Contains(errs, "continues on the node") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	mute.Close()
	if _, errs, code := n.backup("wait", "--task", task[1]); code != 1 || !strings.Contains(errs, "has failed") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
