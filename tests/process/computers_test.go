package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/testmachine"
)

var computerKills = flag.Int("computer-kills", 4, "number of times that TestKillComputers kills the node")

// TestKillComputers kills the node repeatedly while processes run in a workspace's computer. After each kill nothing that the
// node has started is left on the machine. At the end every acknowledged change of a process is on the drive and is one row
// of the sequence, no process is recorded that does not run, and the computer is sampled.
func TestKillComputers(t *testing.T) {
	requireRoot(t)
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 7))
	s := newSite(t, filepath.Join(t.TempDir(), "data"))
	requireControlGroups(t, s.dir)
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	var executors []*executor
	for i := range 3 {
		e := &executor{site: s, name: fmt.Sprintf("worker%d", i), acknowledged: map[string]bool{}}
		executors = append(executors, e)
		working.Go(func() { e.work(work) })
	}
	for range *computerKills {
		s.waitForOperations(t, 1+r.IntN(12))
		delay := time.NewTimer(time.Duration(r.IntN(int(300 * time.Millisecond))))
		<-delay.C
		s.node.kill()
		expectNothingLeft(t, s.dir)
		s.restart(t)
	}
	stop()
	working.Wait()
	s.restart(t)
	c := newClient(s.node.address, s.key)
	defer c.close()
	// The last kill may have interrupted commands. The node starts the next one after it has recorded their changes.
	last := &executor{site: s, name: "last", client: c, acknowledged: map[string]bool{}}
	eventually(t, "a command runs after the last restart", func() bool { return last.step(t.Context()) && len(last.acknowledged) > 0 })
	verifyChanges(t, c, append(executors, last))
	expectSampled(t, c, time.Now().UnixMilli())
	if code := s.node.terminate(t); code != 0 {
		t.Errorf("the node ended with %d:\n%s", code, s.node.logs)
	}
	expectNoFault(t, s.dir)
	expectNothingLeft(t, s.dir)
}

// requireRoot skips a test that isolates processes, and fails it in CI.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	testmachine.Lacks(t, "only root can isolate processes completely")
}

// An executor runs commands in the computer of the workspace. Each command creates a file and leaves processes behind.
type executor struct {
	site   *site
	name   string
	client *client
	next   int
	// acknowledged has the paths of the files of commands that were answered to their end.
	acknowledged map[string]bool
}

// marker is an argument of the processes that commands leave behind.
const marker = "271828.1828"

func (e *executor) work(ctx context.Context) {
	e.site.runSteps(ctx, func(address string) {
		if e.client != nil {
			e.client.close()
		}
		e.client = newClient(address, e.site.key)
	}, func() bool { return e.step(ctx) })
}

// step runs a command. It returns false if the node has not answered it to its end, or ctx has ended.
func (e *executor) step(ctx context.Context) bool {
	path := fmt.Sprintf("%s/%d.txt", e.name, e.next)
	e.next++
	script := fmt.Sprintf("mkdir -p %s && echo %s >%s && { setsid sleep %s & }", e.name, path, path, marker)
	body, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", script}, "timeoutSeconds": 60})
	if err != nil {
		panic(err)
	}
	_, generation := e.site.current()
	status, answer, err := e.client.do(ctx, http.MethodPost, workspacePath+"/computer/exec", body, "Content-Type", "application/json")
	if err == nil && status == http.StatusServiceUnavailable { // the node still records the changes of lost processes
		return e.site.waitForRetry(ctx, generation)
	}
	if err != nil || status != http.StatusOK || !bytes.HasSuffix(answer, []byte(`{"exit":0}`+"\n")) {
		return false
	}
	e.acknowledged[path] = true
	e.site.acknowledge()
	return true
}

// verifyChanges compares the acknowledged changes with the drive and with the rows.
func verifyChanges(t *testing.T, c *client, executors []*executor) {
	t.Helper()
	rows, err := c.feed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	created := map[string]int{}
	for i, row := range rows {
		if row.Seq != uint64(i+1) {
			t.Fatalf("row %d has the seq %d", i+1, row.Seq)
		}
		if row.Event.Kind != "create" || row.Event.EntryKind != "file" {
			continue
		}
		created[row.Event.Path]++
		if !slices.Contains([]string{"terminal", "system"}, row.Event.Actor) {
			t.Errorf("the author of %s is %s", row.Event.Path, row.Event.Actor)
		}
		if isAcknowledged(executors, row.Event.Path) && (row.Event.Actor != "terminal" || row.Event.UserID == "") {
			t.Errorf("the author of %s, which was acknowledged, is %s %q", row.Event.Path, row.Event.Actor, row.Event.UserID)
		}
	}
	total := 0
	for _, e := range executors {
		for path := range e.acknowledged {
			total++
			if created[path] != 1 {
				t.Errorf("%s was created once and has %d rows", path, created[path])
			}
			if got := c.expect(t, http.StatusOK, http.MethodGet, drivePath(path), ""); got != path+"\n" {
				t.Errorf("%s has the content %q", path, got)
			}
		}
		for i := range e.next {
			path := fmt.Sprintf("%s/%d.txt", e.name, i)
			status, _, err := c.do(t.Context(), http.MethodHead, drivePath(path), nil)
			if err != nil || (status == http.StatusOK) != (created[path] == 1) {
				t.Errorf("%s: HEAD answers %d %v, and the sequence has %d rows", path, status, err, created[path])
			}
		}
	}
	if total == 0 {
		t.Error("no command was acknowledged")
	}
	t.Logf("%d commands were acknowledged", total)
}

func isAcknowledged(executors []*executor, path string) bool {
	return slices.ContainsFunc(executors, func(e *executor) bool { return e.acknowledged[path] })
}

// expectSampled waits for a sample of the computer that was taken after a time.
func expectSampled(t *testing.T, c *client, since int64) {
	t.Helper()
	eventually(t, "the computer is sampled", func() bool {
		status, answer, err := c.do(t.Context(), http.MethodGet, fmt.Sprintf("%s/telemetry?sinceAt=%d", workspacePath, since), nil)
		return err == nil && status == http.StatusOK && bytes.Contains(answer, []byte(`"at"`))
	})
}

// expectNothingLeft waits until no process, mount or control group of a node that has ended is left.
func expectNothingLeft(t *testing.T, dir string) {
	t.Helper()
	ended := false
	defer func() {
		if !ended {
			t.Logf("processes %v, mounts %v, control groups %v", leftProcesses(dir), leftMounts(t, dir), controlGroups(t, dir))
		}
	}()
	eventually(t, "nothing of the node is left", func() bool {
		ended = len(leftProcesses(dir)) == 0 && len(leftMounts(t, dir)) == 0 && len(controlGroups(t, dir)) == 0
		return ended
	})
}

// leftProcesses returns the processes that the node or a command has started.
func leftProcesses(dir string) []string {
	var left []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, file := range all {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		program, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe")) // empty if the process has ended
		if bytes.Contains(line, []byte(marker)) || bytes.Contains(line, []byte(dir)) || program == binary && isComputers(line) {
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}

// isComputers reports whether a command line of the program belongs to a part of a computer.
func isComputers(line []byte) bool { return bytes.Contains(line, []byte("computer")) }

func leftMounts(t *testing.T, dir string) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			left = append(left, line)
		}
	}
	return left
}

// controlGroups returns the paths of the control groups of the nodes of a data directory. The names of the groups have a hash of the
// directory's path.
func controlGroups(t *testing.T, dir string) []string {
	t.Helper()
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(resolved))
	name := "atelier-" + hex.EncodeToString(sum[:6])
	var all []string
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, name) {
			all = append(all, path)
		}
		return nil // a group that was removed meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// requireControlGroups verifies that controlGroups finds the group of the running node, which it has on machines that can limit
// processes.
func requireControlGroups(t *testing.T, dir string) {
	t.Helper()
	if len(controlGroups(t, dir)) > 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("the running node has no control group")
	}
	t.Log("the running node has no control group")
}
