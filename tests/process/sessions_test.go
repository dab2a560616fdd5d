package process

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/tests/place"
)

var (
	sessionKills = flag.Int("session-kills", 4, "number of times that TestKillSessions kills the node")
	sessionCount = flag.Int("sessions", 24, "number of sessions of TestKillSessions")
)

const sessionsPath = workspacePath + "/agent/sessions"

// TestKillSessions kills the node, and between that agents and computers, while clients write to many sessions and repeat
// every request until it is answered. At the end each accepted input is in its timeline once and has exactly one terminal, each
// sleep has ended once, deleted sessions and their children are gone, and no process is left.
func TestKillSessions(t *testing.T) {
	t.Run("local", func(t *testing.T) { testKillSessions(t, *sessionCount, *sessionKills, isComputers) })
	t.Run("docker", func(t *testing.T) {
		place.Take(t)
		engine := dockertest.Start(t, "")
		isInit := func(line []byte) bool { return bytes.HasSuffix(line, []byte("\x00"+agent.Command+"\x00init\x00")) }
		testKillSessions(t, *sessionCount/8, *sessionKills/2, isInit, "--computer-driver=docker", "--computer-image="+dockertest.Image, "--computer-engine="+engine.Address)
		if left := engine.Containers(t); left != 0 {
			t.Errorf("%d containers are left", left)
		}
	})
}

// testKillSessions is TestKillSessions for a driver of computers. isComputers reports whether a command line belongs to a part of a
// computer.
func testKillSessions(t *testing.T, sessions, kills int, isComputers func(line []byte) bool, settings ...string) {
	requireRoot(t)
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 11))
	s := newSite(t, filepath.Join(t.TempDir(), "data"), settings...)
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	var all []*participant
	for i := range sessions {
		p := &participant{t: t, site: s, name: fmt.Sprint("p", i), random: rand.New(rand.NewPCG(*seed, uint64(100+i))), accepted: map[string]string{}}
		all = append(all, p)
		working.Go(func() { p.work(work) })
	}
	killed := map[string]int{}
	for range kills {
		s.waitForOperations(t, 10+r.IntN(60))
		for range r.IntN(3) {
			killed["agent"] += killOne(r, s.dir, isAgent)
		}
		if r.IntN(2) == 0 {
			killed["computer"] += killOne(r, s.dir, isComputers)
		}
		delay := time.NewTimer(time.Duration(r.IntN(int(500 * time.Millisecond))))
		<-delay.C
		s.node.kill()
		expectNothingLeft(t, s.dir)
		s.restart(t)
	}
	stop()
	working.Wait()
	c := newClient(s.node.address, s.key)
	defer c.close()
	total := 0
	for _, p := range all {
		total += len(p.accepted)
		p.verify(c)
	}
	if total == 0 {
		t.Error("no input was accepted")
	}
	t.Logf("%d inputs were accepted, %d agents and %d processes of computers killed", total, killed["agent"], killed["computer"])
	if code := s.node.terminate(t); code != 0 {
		t.Errorf("the node ended with %d:\n%s", code, s.node.logs)
	}
	expectNoFault(t, s.dir)
	expectNothingLeft(t, s.dir)
}

// killOne kills a random process in a computer of the data directory with a command line that matches, and returns how many it has killed.
// Other tests have such processes, too: processes of this directory have one of its drives mounted.
func killOne(r *rand.Rand, dir string, matches func(line []byte) bool) int {
	drives := []byte(strings.TrimPrefix(dir, os.TempDir()) + "/drives/")
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, file := range all {
		line, err := os.ReadFile(file)
		if err != nil || !matches(line) {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(file), "mountinfo"))
		if pid, failed := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && failed == nil && bytes.Contains(mounts, drives) {
			found = append(found, pid)
		}
	}
	if len(found) == 0 || syscall.Kill(found[r.IntN(len(found))], syscall.SIGKILL) != nil {
		return 0 // it has ended
	}
	return 1
}

// isAgent reports whether a command line belongs to the built-in agent in a computer.
func isAgent(line []byte) bool { return bytes.HasPrefix(line, []byte("/.atelier/atelier\x00agent")) }

// A participant writes to one session after the other.
type participant struct {
	t      *testing.T
	site   *site
	name   string
	random *rand.Rand
	client *client
	made   int
	// session is the session that it writes to; "": it starts one next.
	session string
	// accepted has the session of each accepted input by its request id. deleted has the deleted sessions.
	accepted map[string]string
	deleted  []string
	// next is the request that was sent and not answered; it is repeated until it is.
	next *sessionRequest
}

type sessionRequest struct {
	path, id string
	body     []byte
	// deletes marks a deletion, which has no id.
	deletes bool
}

func (p *participant) work(ctx context.Context) {
	p.site.runSteps(ctx, func(address string) {
		if p.client != nil {
			p.client.close()
		}
		p.client = newClient(address, p.site.key)
	}, func() bool { return p.step(ctx) })
}

// step sends the next request, or repeats it. It returns false if the node has not answered, or ctx has ended.
func (p *participant) step(ctx context.Context) bool {
	if p.next == nil {
		p.next = p.choose()
	}
	_, generation := p.site.current()
	method := http.MethodPost
	if p.next.deletes {
		method = http.MethodDelete
	}
	status, answer, err := p.client.do(ctx, method, p.next.path, p.next.body, "Content-Type", "application/json")
	switch {
	case err != nil:
		return false
	case status >= 500 || status == http.StatusTooManyRequests:
		return p.site.waitForRetry(ctx, generation)
	case p.next.deletes && status == http.StatusNoContent:
		p.deleted, p.session = append(p.deleted, p.session), ""
	case status == http.StatusConflict && strings.HasSuffix(p.next.path, "/answer"):
		// The session asks nothing any more.
	case status >= 300:
		p.t.Errorf("POST %s: %d %s", p.next.path, status, answer)
	default:
		p.accept(answer)
	}
	p.next = nil
	p.site.acknowledge()
	return true
}

// accept records an accepted input.
func (p *participant) accept(answer []byte) {
	var created struct{ SessionID string }
	if p.session == "" && json.Unmarshal(answer, &created) == nil {
		p.session = created.SessionID
	}
	p.accepted[p.next.id] = p.session
}

// choose returns the next request.
func (p *participant) choose() *sessionRequest {
	p.made++
	id := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", p.random.Uint32(), p.random.IntN(1<<16), p.random.IntN(1<<12), p.random.IntN(1<<12),
		p.random.Int64N(1<<48))
	post := func(path string, fields map[string]any) *sessionRequest {
		fields["clientRequestId"] = id
		body, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		return &sessionRequest{path: path, id: id, body: body}
	}
	if p.session == "" {
		return post(sessionsPath, map[string]any{"prompt": p.runbook()})
	}
	own := sessionsPath + "/" + p.session
	switch n := p.random.IntN(20); {
	case n == 0:
		return &sessionRequest{path: own, deletes: true}
	case n < 3:
		p.session = ""
		return p.choose()
	case n < 5:
		return post(own+"/answer", map[string]any{"text": "yes"})
	case n < 7:
		return post(own+"/notes", map[string]any{"text": "note"})
	default:
		behavior := []string{"steer", "follow_up"}[p.random.IntN(2)]
		return post(own+"/messages", map[string]any{"text": p.runbook(), "behavior": behavior})
	}
}

// runbook returns a random runbook of a few lines.
func (p *participant) runbook() string {
	lines := []string{
		"say hello", fmt.Sprintf("$ mkdir -p %s && echo %d >>%s/log", p.name, p.made, p.name), "step 1/2 working", "sleep 300ms",
		"ask Go on? | yes | no", "start child\n    say child", "$ sleep 0.2", fmt.Sprintf("write %s/file\n    text %d", p.name, p.made), "fail enough",
	}
	var text strings.Builder
	for range 1 + p.random.IntN(4) {
		text.WriteString(lines[p.random.IntN(len(lines))] + "\n")
	}
	return text.String()
}

// A timelineRow has the fields of a history row that the test reads.
type timelineRow struct {
	Seq                                      uint64
	Kind, Input, ClientRequestID, TurnStatus string
	InputSeq                                 uint64
	Sender                                   struct{ Kind string }
	Text                                     string
}

// verify waits until the participant's sessions rest, and checks their timelines.
func (p *participant) verify(c *client) {
	p.t.Helper()
	accepted := map[string][]string{}
	for id, session := range p.accepted {
		accepted[session] = append(accepted[session], id)
	}
	if p.next != nil && p.next.deletes {
		delete(accepted, p.session) // it is unknown whether the deletion without an answer has begun
	}
	for _, session := range p.deleted {
		delete(accepted, session)
		c.expect(p.t, http.StatusNotFound, http.MethodGet, sessionsPath+"/"+session, "")
		c.expect(p.t, http.StatusNotFound, http.MethodGet, sessionsPath+"/"+session+"/sessions", "")
	}
	for session, ids := range accepted {
		p.waitForRest(c, session)
		p.verifyTimeline(c, session, ids)
	}
}

// waitForRest waits until a session neither runs nor sleeps.
func (p *participant) waitForRest(c *client, session string) {
	p.t.Helper()
	eventually(p.t, "the session "+session+" rests", func() bool {
		var detail struct{ Bucket string }
		status, answer, err := c.do(p.t.Context(), http.MethodGet, sessionsPath+"/"+session, nil)
		if err != nil || status != http.StatusOK || json.Unmarshal(answer, &detail) != nil {
			p.t.Fatalf("reading a session: %d %s %v", status, answer, err)
		}
		return detail.Bucket == "done" || detail.Bucket == "asking"
	})
}

func (p *participant) verifyTimeline(c *client, session string, ids []string) {
	p.t.Helper()
	rows := readTimeline(p.t, c, session)
	requests, inputs, terminals := map[string]int{}, map[uint64]timelineRow{}, map[uint64]int{}
	sleeps, wakes := 0, 0
	var last uint64
	for _, row := range rows {
		if row.Seq <= last {
			p.t.Errorf("%s: the seq %d follows %d", session, row.Seq, last)
		}
		last = row.Seq
		switch row.Kind {
		case "input":
			requests[row.ClientRequestID]++
			inputs[row.Seq] = row
			if row.Sender.Kind == "system" && strings.HasPrefix(row.Text, "The sleep") {
				wakes++
			}
		case "terminal":
			terminals[row.InputSeq]++
			if row.TurnStatus == "sleep" {
				sleeps++
			}
		}
	}
	for _, id := range ids {
		if requests[id] != 1 {
			p.t.Errorf("%s: the accepted input %s is %d times in the timeline", session, id, requests[id])
		}
	}
	asking := p.bucket(c, session) == "asking"
	for seq, row := range inputs {
		want := 1
		if row.Input == "note" || asking && terminals[seq] == 0 { // a follow-up waits for the answer
			want = 0
		}
		if terminals[seq] != want {
			p.t.Errorf("%s: the input %d (%s) has %d terminals, want %d", session, seq, row.Input, terminals[seq], want)
		}
	}
	if wakes > sleeps {
		p.t.Errorf("%s: %d sleeps have ended %d times", session, sleeps, wakes)
	}
}

func (p *participant) bucket(c *client, session string) string {
	var detail struct{ Bucket string }
	answer := c.expect(p.t, http.StatusOK, http.MethodGet, sessionsPath+"/"+session, "")
	if err := json.Unmarshal([]byte(answer), &detail); err != nil {
		p.t.Fatal(err)
	}
	return detail.Bucket
}

// readTimeline returns all rows of a session, the oldest first.
func readTimeline(t *testing.T, c *client, session string) []timelineRow {
	t.Helper()
	var all []timelineRow
	for cursor := ""; ; {
		path := sessionsPath + "/" + session + "/history?order=asc&limit=100"
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		var page struct {
			Items      []timelineRow
			NextCursor *string
		}
		if err := json.Unmarshal([]byte(c.expect(t, http.StatusOK, http.MethodGet, path, "")), &page); err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all
		}
		cursor = *page.NextCursor
	}
}
