package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// agentsTimeout is longer than any step of a test with agents takes on a slow machine.
const agentsTimeout = 5 * time.Minute

// An agentSite is a node with agents in its computers, behind a real HTTP server, with a person and that person's workspace.
type agentSite struct {
	*home
	front       *nodetest.Front
	serving     atomic.Pointer[Node]
	url, key    string
	userID      string
	workspaceID string
}

// newAgentSite starts a node. Its computers are of the local driver unless the changes select another driver. It skips the test on a
// machine that cannot isolate processes.
func newAgentSite(t *testing.T, changes ...func(*Options)) *agentSite {
	t.Helper()
	s := openAgentSite(t, t.TempDir(), changes...)
	t.Cleanup(s.stop)
	s.userID, s.key = s.person("ada")
	var made struct{ WorkspaceID string }
	s.must(http.StatusCreated, s.request("POST", "/v1/workspaces", map[string]any{"slug": "acme", "name": "Acme"}), &made)
	s.workspaceID = made.WorkspaceID
	nodetest.RequireIsolation(t, s.Computers, s.workspaceID)
	return s
}

// openAgentSite starts a node over a directory. The caller stops it.
func openAgentSite(t *testing.T, dir string, changes ...func(*Options)) *agentSite {
	t.Helper()
	s := &agentSite{home: &home{T: t, dir: dir}, front: nodetest.Listen(t)}
	s.url = s.front.URL
	s.options = Options{
		Dir: s.dir, Wire: true, PendingLimit: testTimeout, Clock: s.clock, Computers: ComputerOptions{Driver: LocalDriver},
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2},
	}
	for _, change := range changes {
		change(&s.options)
	}
	s.boot()
	return s
}

func (s *agentSite) boot() {
	s.Helper()
	var err error
	s.Node, err = Start(context.WithoutCancel(s.Context()), s.options)
	s.check(err)
	s.serving.Store(s.Node)
	s.front.Serve(s.Server)
}

// restart stops the node and starts another node over its directory.
func (s *agentSite) restart() {
	s.Helper()
	s.stop()
	s.boot()
}

// person creates a person and returns its id and key.
func (s *agentSite) person(name string) (id, key string) {
	s.Helper()
	p := nodetest.NewPerson(s, s.Server.Admin(), name+"@example.org", name)
	return p.UserID, p.Key
}

// A response is the answer to a request.
type response struct {
	request string
	status  int
	body    []byte
}

// request sends a request as the person. A path that does not begin with /v1 is that below the workspace.
func (s *agentSite) request(method, path string, body any) response {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), agentsTimeout)
	defer cancel()
	r := s.newRequest(ctx, method, path, body)
	answer, err := http.DefaultClient.Do(r)
	s.check(err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	s.check(err)
	return response{method + " " + path, answer.StatusCode, content}
}

func (s *agentSite) newRequest(ctx context.Context, method, path string, body any) *http.Request {
	s.Helper()
	if !strings.HasPrefix(path, "/v1") {
		path = "/v1/ws/acme" + path
	}
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		s.check(err)
		content = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, content)
	s.check(err)
	r.Header.Set("Authorization", "Bearer "+s.key)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// must fails the test unless the response has the status, and decodes it if into is not nil.
func (s *agentSite) must(status int, r response, into any) {
	s.Helper()
	if r.status != status {
		s.Fatalf("%s: %d %s, want %d", r.request, r.status, r.body, status)
	}
	if into != nil {
		s.check(json.Unmarshal(r.body, into))
	}
}

// refuse fails the test unless the response has the status and the code.
func (s *agentSite) refuse(status int, code string, r response) {
	s.Helper()
	if r.status != status || !strings.Contains(string(r.body), `"`+code+`"`) {
		s.Errorf("%s: %d %s, want %d %s", r.request, r.status, r.body, status, code)
	}
}

type fields = map[string]any

const sessionsPath = "/agent/sessions"

func sessionPath(id string) string { return sessionsPath + "/" + id }

// start starts a session and returns its id.
func (s *agentSite) startSession(prompt string, more fields) string {
	s.Helper()
	body := fields{"prompt": prompt}
	for name, value := range more {
		body[name] = value
	}
	var made struct{ SessionID string }
	s.must(http.StatusCreated, s.request("POST", sessionsPath, body), &made)
	return made.SessionID
}

// send sends a message, a note or an answer, and returns its delivery.
func (s *agentSite) send(id, kind string, body fields) string {
	s.Helper()
	var sent struct{ Delivery string }
	s.must(http.StatusOK, s.request("POST", sessionPath(id)+"/"+kind, body), &sent)
	return sent.Delivery
}

// A detail has the fields of a session that the tests read.
type detail struct {
	ID, TurnStatus, Bucket, Title, Cwd, CreatedBySessionID string
	Tier                                                   *string
	Ask                                                    *struct {
		Text    string
		Options []option
	}
	PendingInputs []struct{ Seq uint64 }
	Usage         struct{ InputTokens, OutputTokens uint64 }
	Machine       *struct {
		Activity, Step string
		Progress       struct{ Completed, Total uint64 }
		NextWakeAt     int64
	}
}

type option struct{ ID, Label string }

func (s *agentSite) describe(id string) detail {
	s.Helper()
	var d detail
	s.must(http.StatusOK, s.request("GET", sessionPath(id), nil), &d)
	return d
}

// A row has the fields of a history row that the tests read.
type row struct {
	Seq, InputSeq                                                  uint64
	Kind, Input, Text, Title, Status, Output, TurnStatus, Behavior string
	Sender                                                         struct{ Kind, UserID, SessionID string }
	Options                                                        []option
	Error                                                          struct{ Code, Message string }
}

// String returns the kind of a row and the fields that matter for the kind.
func (r row) String() string {
	switch r.Kind {
	case "tool":
		return strings.TrimSpace("tool " + r.Title + " " + r.Status + " " + strings.TrimSpace(r.Output))
	case "terminal":
		return strings.TrimSpace("terminal " + r.TurnStatus + " " + r.Error.Code)
	case "input":
		return "input " + r.Sender.Kind + " " + r.Text
	default:
		return r.Kind + " " + r.Text
	}
}

// A timeline is a live stream of the events of a session.
type timeline struct {
	s     *agentSite
	lines *bufio.Scanner
	// rows are the rows that have arrived, and deltas the texts before their rows. order has all as lines.
	rows   []row
	deltas []string
	order  []string
}

// follow opens the live stream of a session, from its first row.
func (s *agentSite) follow(id string) *timeline {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), agentsTimeout)
	s.Cleanup(cancel)
	answer, err := http.DefaultClient.Do(s.newRequest(ctx, "GET", sessionPath(id)+"/events", nil))
	s.check(err)
	s.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(answer.Body)
		s.Fatalf("events: %d %s", answer.StatusCode, content)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 4<<20)
	return &timeline{s: s, lines: lines}
}

// next reads the next event and returns its name.
func (l *timeline) next() string {
	l.s.Helper()
	name := ""
	for l.lines.Scan() {
		field, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			if name == "delta" {
				var delta struct{ Text string }
				l.s.check(json.Unmarshal([]byte(value), &delta))
				l.deltas, l.order = append(l.deltas, delta.Text), append(l.order, "delta "+delta.Text)
				return name
			}
			var r row
			l.s.check(json.Unmarshal([]byte(value), &r))
			l.rows, l.order = append(l.rows, r), append(l.order, r.String())
			return name
		}
	}
	l.s.Fatalf("the stream has ended (%v) after %s", l.lines.Err(), strings.Join(l.order, "\n"))
	return ""
}

// await reads until a row that was not read before satisfies a condition, and returns it.
func (l *timeline) await(is func(row) bool) row {
	l.s.Helper()
	for {
		if name := l.next(); name == "delta" {
			continue
		}
		if last := l.rows[len(l.rows)-1]; is(last) {
			return last
		}
	}
}

// awaitLine reads until a row begins with a text.
func (l *timeline) awaitLine(prefix string) row {
	l.s.Helper()
	return l.await(func(r row) bool { return strings.HasPrefix(r.String(), prefix) })
}

// awaitTerminal reads until the terminal of an input.
func (l *timeline) awaitTerminal() row {
	l.s.Helper()
	return l.await(func(r row) bool { return r.Kind == "terminal" })
}

// lines returns the rows of some kinds as lines.
func (l *timeline) of(kinds ...string) []string {
	var all []string
	for _, r := range l.rows {
		if slices.Contains(kinds, r.Kind) {
			all = append(all, r.String())
		}
	}
	return all
}

// expect fails the test unless the rows of some kinds are these lines.
func (l *timeline) expect(kinds string, want ...string) {
	l.s.Helper()
	if got := l.of(strings.Fields(kinds)...); !slices.Equal(got, want) {
		l.s.Errorf("the timeline has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// durations counts the results of duration.
var durations atomic.Int64

// duration returns a number of seconds, about a fortnight, that no other test on this machine uses as an argument at this time.
func (*agentSite) duration() string {
	return fmt.Sprintf("%d.%d", 1_000_000+os.Getpid(), durations.Add(1))
}

// running returns the processes that run in the computer of the workspace.
func (s *agentSite) running() []*computerv1.Process {
	s.Helper()
	reply, err := s.Router.Ask(s.Context(), entity.Command{
		Kind: entity.KindComputer, Identity: s.workspaceID, Principal: entity.Platform(), Message: &wirev1.List{Name: "computer.process", Limit: 100},
	})
	s.check(err)
	var all []*computerv1.Process
	for _, encoded := range reply.(*wirev1.Page).GetRows() {
		p := new(computerv1.Process)
		s.check(proto.Unmarshal(encoded, p))
		all = append(all, p)
	}
	return all
}

// processes returns the processes of this machine with an argument in their command line.
func (s *agentSite) processes(argument string) []int {
	s.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	s.check(err)
	var found []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(line), "\x00"), argument) {
			continue // it has ended, or is another process
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// awaitEnd waits until the processes have ended.
func (s *agentSite) awaitEnd(pids []int) {
	s.Helper()
	const most = 30 * time.Second
	deadline := time.Now().Add(most)
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		s.check(err)
		for {
			left := max(time.Until(deadline), 0)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				s.Errorf("the process %d runs after %s (%v)", pid, most, err)
			}
			break
		}
		s.check(unix.Close(fd))
	}
}

// awaitProcess waits until a process with an argument runs, and returns it.
func (s *agentSite) awaitProcess(argument string) []int {
	s.Helper()
	var pids []int
	s.until(func() bool { pids = s.processes(argument); return len(pids) > 0 })
	return pids
}

// loseComputer kills the first process of the workspace's computer, or removes its container.
func (s *agentSite) loseComputer() {
	s.Helper()
	if s.options.Computers.Driver == DockerDriver {
		if n := s.removeContainers(); n != 1 {
			s.Fatalf("the computer has %d containers", n)
		}
		return
	}
	inits := s.processes(s.workspaceID)
	if len(inits) != 1 {
		s.Fatalf("the computer has the first processes %v", inits)
	}
	s.check(unix.Kill(inits[0], unix.SIGKILL))
}

// read returns the content of a file on the drive, or an error.
func (s *agentSite) read(path string) string {
	s.Helper()
	d, release, err := s.Drives.Open(s.Context(), s.workspaceID)
	s.check(err)
	defer release()
	f, _, err := d.Open(path)
	if refused, is := errors.AsType[*entity.Error](err); is {
		return string(refused.Code)
	}
	s.check(err)
	defer f.Close()
	content, err := io.ReadAll(f)
	s.check(err)
	return string(content)
}
