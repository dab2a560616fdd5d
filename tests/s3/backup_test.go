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

	"github.com/atelier-run/atelier/tests/loopback"
)

// buildAtelier builds the program atelier and returns the path of the binary, which is removed when the test ends.
func buildAtelier(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "atelier")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", binary, "../../cmd/atelier").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// node is a running node with the workspace "demo". It stores the backups of the workspace in a bucket.
type node struct {
	t *testing.T
	// binary is the path of the program, and dir the node's data directory.
	binary, dir string
}

// startNode starts a node, which is stopped when the test ends. It returns when the workspace is active. It fails the test if that
// takes longer than startTimeout, or if the log of the node contains the secret.
func startNode(t *testing.T, binary, bucket, key, secret string) *node {
	t.Helper()
	n := &node{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "data")}
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
			t.Errorf("the test failed, or this log of the node contains the secret: %s", log.String())
		}
	})
	timeout := time.After(startTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		out, _ := exec.Command(binary, "admin", "workspace", "list", "--data", n.dir).Output()
		if bytes.Contains(out, []byte(`"status":"active"`)) {
			return n
		}
		select {
		case <-timeout:
			t.Fatalf("the workspace is not active after %s: %s", startTimeout, out)
		case <-time.After(pause):
		}
	}
}

// runBackup runs atelier admin backup for the workspace and returns its standard output, its standard error and its exit code.
func (n *node) runBackup(arguments ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	command := exec.Command(n.binary, append(append([]string{"admin", "backup"}, arguments...), "--data", n.dir, "--slug=demo")...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		n.t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// files returns the path of the folder with the files of the workspace's drive.
func (n *node) files() string {
	n.t.Helper()
	all, err := filepath.Glob(filepath.Join(n.dir, "drives", "*", "files"))
	if err != nil || len(all) != 1 {
		n.t.Fatalf("the folders of drives are %v (%v), want one", all, err)
	}
	return all[0]
}

// TestBackupAndRestore backs up a drive to the S3 server, changes a file and restores the drive.
func TestBackupAndRestore(t *testing.T) {
	server := Start(t)
	n := startNode(t, buildAtelier(t), "s3://backups?region=us-east-1&endpoint=http://"+server.Endpoint, server.Key, server.Secret)
	file := filepath.Join(n.files(), "file")
	content := make([]byte, 20<<20) // three parts of the upload: two of 8 MiB and a smaller one
	rand.Read(content)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := n.runBackup("create")
	var b struct {
		BackupID  string
		SizeBytes int64
	}
	if err := json.Unmarshal([]byte(out), &b); err != nil || code != 0 || b.SizeBytes < int64(len(content)) {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	stored, err := filepath.Glob(filepath.Join(server.Dir, "backups", "ws_*", b.BackupID+".tar.zst"))
	if err != nil || len(stored) != 1 {
		t.Errorf("the server has the objects %v (%v), want one", stored, err)
	}
	if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := n.runBackup("restore", "--backup", b.BackupID); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if got, err := os.ReadFile(filepath.Join(n.files(), "file")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the restored file has %d bytes (%v) or other content than the %d that were backed up", len(got), err, len(content))
	}
}

// TestUnusableBucket checks that a backup to an unusable bucket fails and reports the reason.
func TestUnusableBucket(t *testing.T) {
	server := Start(t)
	binary := buildAtelier(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and no process answers requests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	region := "?region=us-east-1&endpoint=http://"
	for name, test := range map[string]struct{ bucket, key, secret, reason string }{
		"no_answer":      {"s3://backups" + region + mute.Addr().String(), "k", "hidden", "no answer within 30s"},
		"closed_port":    {"s3://backups" + region + loopback.Address(t), "k", "hidden", "connection refused"},
		"wrong_key":      {"s3://backups" + region + server.Endpoint, "wrongkey", "hidden", "No user exists with the provided access key ID"},
		"wrong_secret":   {"s3://backups" + region + server.Endpoint, server.Key, "hidden", "SignatureDoesNotMatch"},
		"missing_bucket": {"s3://absent" + region + server.Endpoint, server.Key, server.Secret, "NoSuchBucket"},
		"unknown_host":   {"s3://backups" + region + "absent.invalid", "k", "hidden", "absent.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, binary, test.bucket, test.key, test.secret)
			out, errs, code := n.runBackup("create")
			reason := regexp.MustCompile(`(?m)^atelier: the backup bkp_\w+ failed: .*` + regexp.QuoteMeta(test.reason))
			if code != 1 || out != "" || !reason.MatchString(errs) {
				t.Errorf("exit code %d, want 1 and the reason %q: %s%s", code, test.reason, out, errs)
			}
			if _, errs, code := n.runBackup("wait", "--wait=1s"); code != 0 {
				t.Errorf("a task is still in progress: %s", errs)
			}
		})
	}
}

// TestBackupContinuesAfterCommand checks that a command with a time limit that passes exits with the code 4, and that the node continues
// the backup.
func TestBackupContinuesAfterCommand(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	n := startNode(t, buildAtelier(t), "s3://backups?region=us-east-1&endpoint=http://"+mute.Addr().String(), "k", "hidden")
	_, errs, code := n.runBackup("create", "--wait=10ms")
	task := regexp.MustCompile(`--task=(tsk_\w+)\n$`).FindStringSubmatch(errs)
	if code != 4 || task == nil || !strings.Contains(errs, "continues on the node") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	mute.Close()
	if _, errs, code := n.runBackup("wait", "--task", task[1]); code != 1 || !strings.Contains(errs, " failed: ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestNodeBackup backs a whole node up to the S3 server while it runs, and restores it from there.
func TestNodeBackup(t *testing.T) {
	server := Start(t)
	binary, bucket := buildAtelier(t), "s3://backups?region=us-east-1&endpoint=http://"+server.Endpoint
	n := startNode(t, binary, bucket, server.Key, server.Secret)
	content := make([]byte, 20<<20)
	rand.Read(content)
	if err := os.WriteFile(filepath.Join(n.files(), "file"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) string {
		t.Helper()
		command := exec.Command(binary, arguments...)
		command.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+server.Key, "AWS_SECRET_ACCESS_KEY="+server.Secret)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run("admin", "backup", "node", "--data", n.dir, "--to", bucket); !strings.Contains(out, `"drives":1`) {
		t.Errorf("the backup is %s", out)
	}
	restored := &node{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "restored")}
	if out := run("restore", "--from", bucket, "--data", restored.dir); !strings.Contains(out, `"drives":1`) {
		t.Errorf("the restore is %s", out)
	}
	if got, err := os.ReadFile(filepath.Join(restored.files(), "file")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the restored file has %d bytes (%v) or other content than the %d that were backed up", len(got), err, len(content))
	}
}
