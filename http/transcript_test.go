package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/api/apitest"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/race"
)

// TestTranscripts runs the files of testdata against a whole node. -rewrite writes the responses into them.
//
//	person NAME                creates an account through the operators' API and continues with it
//	as NAME                    continues with another account, or with none
//	http                       METHOD PATH, header lines, and a body after them or an empty line
//	admin                      the same over the operators' socket
//	key NAME                   continues with a key from a response: <secret-N>
//	open NAME [reads] [path=P]   opens a stream, of the workspace acme or at a path, after the cursor in the input; read NAME N
//	                           prints N frames; end NAME waits for its end
//	close NAME                 closes a stream
//	advance DURATION           advances the clock of the rules
//	tell, id, credential, grant, wait, runner, app: see asPlatform
//	supervisor WS DOES         see supervise
//	restart, crash             ends the node, cleanly or with the loss of data that was not synced, and starts another
//
// Ids, keys and cursors have labels, numbered in the order of their first use; in a request a label stands for its value.
func TestTranscripts(t *testing.T) {
	race.Skip(t, "the transcripts are run with it in split mode")
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newStage(t)
		datadriven.RunTest(t, path, s.play)
	})
}

// TestTranscriptsInSplitMode runs the same files while partitions move between two actor systems during requests. The
// responses are the same.
func TestTranscriptsInSplitMode(t *testing.T) {
	if rewriting := flag.Lookup("rewrite"); rewriting != nil && rewriting.Value.String() == "true" {
		return // TestTranscripts writes the files
	}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newSplitStage(t)
		datadriven.RunTest(t, path, s.play)
	})
}

// longest bounds waits that are not measured: a longer one is taken for a hang.
const longest = 5 * time.Minute

// stage is a node and its users.
type stage struct {
	*testing.T
	disk *vfs.MemFS
	// each, where set, is called before each operation on the journal's files.
	each    atomic.Pointer[func(errorfs.Op) error]
	dir     string
	clock   *clock
	ids     atomic.Int64
	node    *node.Node
	live    *httptest.Server
	keys    map[string]string
	as      string
	labels  map[string]string
	meaning map[string]string
	counts  map[string]int
	streams map[string]*follower
	// computers runs the processes of workspaces on this machine.
	computers *apitest.Computers
	// sessions has the times that requests wait for a runner.
	sessions api.SessionOptions
	// apps plays the parts of a node that run and open apps.
	apps *fakeApps
	// workspaces is the limit on workspaces for each person from the next start on; 0: the default.
	workspaces int
	// bodyMemory is the memory for bodies and answers from the next start on, in bytes; 0: the default.
	bodyMemory int
	// members is the number of actor systems in the node; with more than one, partitions move between them until settled is
	// called; see splitting.
	members int
	settled func()
}

func newStage(t *testing.T) *stage { return newStageOf(t, 1) }

func newStageOf(t *testing.T, members int) *stage {
	s := &stage{
		members: members, settled: func() {}, computers: apitest.NewComputers(t),
		sessions: api.SessionOptions{DeliveryTime: time.Millisecond, WaitTime: 20 * time.Millisecond},
		apps:     newFakeApps(),
		T:        t, disk: vfs.NewCrashableMem(), dir: t.TempDir(), clock: newClock(), keys: map[string]string{},
		labels: map[string]string{}, meaning: map[string]string{}, counts: map[string]int{}, streams: map[string]*follower{},
	}
	for at := s.dir; ; at = s.disk.PathDir(at) { // a machine's folders were there long before
		s.sync(s.disk.MkdirAll(s.dir, 0o750), at)
		if at == "/" {
			break
		}
	}
	s.apps.router = func() *cluster.Router { return s.node.Router }
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *stage) sync(made error, dir string) {
	folder, err := s.disk.OpenDir(dir)
	if err := errors.Join(made, err); err != nil {
		s.Fatal(err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) start() {
	s.Helper()
	var err error
	s.node, err = node.Start(s.Context(), node.Options{
		HoldTurns: true, HoldApps: true,
		Dir: s.dir, Clock: s.clock.Now, Wire: true, Members: s.members, SampleEvery: time.Hour, PendingLimit: longest,
		Journal: persistence.Options{FS: errorfs.Wrap(s.disk, errorfs.InjectorFunc(s.operated)), CacheBytes: 4 << 20, Partitions: 4},
		HTTP:    http.Options{Computers: s.computers, Sessions: s.sessions, Apps: s.apps.options(), Options: server.Options{NewID: s.newID, Hosts: hosts, Limits: server.Limits{Rate: -1, AddressRate: -1, RequestTime: longest, Workspaces: s.workspaces, BodyMemory: s.bodyMemory}}},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.live = httptest.NewServer(s.node.Server)
	if s.members > 1 {
		s.settled = splitting(s.T, s.node)
	}
}

func (s *stage) operated(op errorfs.Op) error {
	if each := s.each.Load(); each != nil {
		return (*each)(op)
	}
	return nil
}

// watch has each called before operations on the journal's files; nil: nothing.
func (s *stage) watch(each func(errorfs.Op) error) {
	if each == nil {
		s.each.Store(nil)
		return
	}
	s.each.Store(&each)
}

func (s *stage) stop() {
	for _, f := range s.streams {
		f.body.Close()
	}
	clear(s.streams)
	s.settled()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := s.node.Stop(ctx); err != nil {
		s.Error(err)
	}
	s.live.Close()
}

// newID returns ids with increasing numbers, so that they sort in the order of their creation.
func (s *stage) newID(prefix string) string { return fmt.Sprintf("%s01j%023d", prefix, s.ids.Add(1)) }

func (s *stage) play(t *testing.T, d *datadriven.TestData) string {
	argument := func(i int) string {
		if i < len(d.CmdArgs) {
			return d.CmdArgs[i].Key
		}
		d.Fatalf(t, "%s lacks an argument", d.Cmd)
		return ""
	}
	switch d.Cmd {
	case "person":
		s.as = argument(0)
		return s.person(s.as)
	case "as":
		s.as = argument(0)
	case "key":
		s.as = argument(0)
		s.keys[s.as] = s.unlabel(strings.TrimSpace(d.Input))
	case "http":
		return s.supervised(func() string { return s.exchange(s.node.Server, d.Input) })
	case "admin":
		return s.exchange(s.node.Server.Admin(), d.Input)
	case "advance":
		pause, err := time.ParseDuration(argument(0))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.clock.advance(pause)
	case "restart":
		s.stop()
		s.start()
	case "crash":
		survivor := s.disk.CrashClone(vfs.CrashCloneCfg{})
		s.stop()
		s.disk = survivor
		s.start()
	case "supervisor":
		s.supervise(s.resolveLabel(argument(0)), argument(1), d.Input)
	case "tell", "id", "credential", "grant", "wait", "runner", "app":
		var arguments []string
		for _, argument := range d.CmdArgs {
			arguments = append(arguments, argument.Key)
		}
		return s.asPlatform(d.Cmd, d.Input, arguments...)
	case "open", "read", "end", "close":
		return s.stream(d.Cmd, argument(0), d)
	default:
		d.Fatalf(t, "no such command: %s", d.Cmd)
	}
	return ""
}

func (s *stage) person(name string) string {
	body := fmt.Sprintf(`{"email":"%s@example.com","name":"%s"}`, name, name)
	answer := request(s, s.node.Server.Admin(), "POST", "/admin/users", "", body)
	var created struct{ Key string }
	if err := json.Unmarshal(answer.Body.Bytes(), &created); err != nil {
		s.Fatal(err)
	}
	s.keys[name] = created.Key
	return s.render(answer.Result())
}

// exchange sends the request in the input and prints the response.
func (s *stage) exchange(h nethttp.Handler, input string) string {
	input = s.unlabel(input)
	line, rest, _ := strings.Cut(input, "\n")
	method, target, ok := strings.Cut(line, " ")
	if !ok {
		s.Fatalf("no request: %q", line)
	}
	headers := map[string]string{}
	for rest != "" && !strings.HasPrefix(rest, "{") {
		line, rest, _ = strings.Cut(rest, "\n")
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			break
		}
		headers[name] = value
	}
	if rest != "" && headers["Content-Type"] == "" {
		headers["Content-Type"] = "application/json"
	}
	rest = expand(rest)
	r := httptest.NewRequest(method, expand(target), strings.NewReader(rest))
	r.Host = "localhost:8080" // of the public URL
	if key := s.keys[s.as]; key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	s.node.Server.Flush()
	conforms(s, r, []byte(rest), w.Result())
	return s.render(w.Result())
}

var repetition = regexp.MustCompile(`\[([^\]]+)\]\*(\d+)`)

// expand writes [text]*3 as texttexttext.
func expand(text string) string {
	return repetition.ReplaceAllStringFunc(text, func(m string) string {
		parts := repetition.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
}

// shown are the headers that a transcript holds.
var shown = []string{"Allow", "Location", "Www-Authenticate", "Retry-After", "Link"}

func (s *stage) render(r *nethttp.Response) string {
	var out strings.Builder
	fmt.Fprintln(&out, r.StatusCode)
	for _, name := range shown {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.Fatal(err)
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") == nil {
		body = pretty.Bytes()
	}
	if len(body) > 0 {
		fmt.Fprintf(&out, "%s\n", bytes.TrimRight(body, "\n"))
	}
	return s.label(out.String())
}

var labelled = []struct {
	name string
	text *regexp.Regexp
}{
	{"secret", regexp.MustCompile(`\batl(?:app|lim)?_[0-9a-z]{26}_[a-z2-7]{40}\b`)},
	{"prefix", regexp.MustCompile(`\batl(?:lim)?_[0-9a-z]{8}\b`)},
	{"link", regexp.MustCompile(`/invitations/[0-9a-z]{26}\.[0-9a-z]{26}\.[a-z2-7]{40}\b`)},
	{"upload", regexp.MustCompile(`/v1/uploads/[A-Za-z0-9_-]{64,}`)},
	{"stored", regexp.MustCompile(`\buploads/\d{4}-\d\d-\d\d/[^"]+`)},
	{"", regexp.MustCompile(`\b(usr|ws|key|req|inv|anc|agt|app|dom|mch|ogr|aud|bkp|ses)_[0-9a-z]{26}\b`)},
	{"vm", regexp.MustCompile(`\bvm-[0-9a-z-]+`)},
	{"cursor", regexp.MustCompile(`("nextCursor": "|\nid: )([A-Za-z0-9_-]+)`)},
	{"resume", regexp.MustCompile(`(\?cursor=|&cursor=)([A-Za-z0-9_-]+)`)},
}

func (s *stage) label(text string) string {
	for _, l := range labelled {
		text = l.text.ReplaceAllStringFunc(text, func(m string) string {
			groups := l.text.FindStringSubmatch(m)
			switch {
			case l.name == "cursor", l.name == "resume":
				return groups[1] + s.labelOf(l.name, groups[2])
			case l.name == "":
				return s.labelOf(groups[1], m)
			}
			return s.labelOf(l.name, m)
		})
	}
	return text
}

func (s *stage) labelOf(name, text string) string {
	label := s.labels[text]
	if label == "" {
		s.counts[name]++
		label = fmt.Sprintf("<%s-%d>", name, s.counts[name])
		s.labels[text], s.meaning[label] = label, text
	}
	return label
}

var labels = regexp.MustCompile(`<[a-z]+-\d+>`)

func (s *stage) unlabel(text string) string {
	return labels.ReplaceAllStringFunc(text, func(label string) string {
		if s.meaning[label] == "" {
			s.Fatalf("nothing was labelled %s", label)
		}
		return s.meaning[label]
	})
}

var barePathLabels = regexp.MustCompile(`\b[a-z]+-\d+\b`)

// unlabelPath replaces labels without brackets in a path, as arguments of directives have them.
func (s *stage) unlabelPath(path string) string {
	return barePathLabels.ReplaceAllStringFunc(path, s.resolveLabel)
}
