package computer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A fakeHost is a computer.Host with processes that obey the test, and a computer.Observer. Drivers are tested with package computertest.
type fakeHost struct {
	world *world

	mu        sync.Mutex
	processes []*fakeProcess
	// order has the events in their order: begin, attribute, start, exit and end.
	order []string
	// startError is the error of Start.
	startError error
	// listen is Listen; nil: no computer can.
	listen func(ctx context.Context, workspaceID string, port int) (net.Listener, error)
	// perProcess is the memory that each process uses.
	perProcess uint64
	// memoryOf is the memory of processes by id. sharedLimit is the limit of all computers together, which use unmeasured besides.
	memoryOf                map[string]uint64
	sharedLimit, unmeasured uint64
	// unused has the memory of computers without processes.
	unused []uint64
	// ownNetworks is OwnNetworks.
	ownNetworks bool
	// isStuck makes Stop end no process, and wait until its context ends.
	isStuck bool
}

func newFakeHost(w *world) *fakeHost { return &fakeHost{world: w} }

func (h *fakeHost) did(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order = append(h.order, what)
}

func (h *fakeHost) Begin(_ context.Context, _ string, author *activityv1.Author) (computer.Watch, error) {
	h.did("begin " + author.GetActor() + " " + author.GetUserId())
	return &fakeWatch{h}, nil
}

func (h *fakeHost) Recover(context.Context, string) error { h.did("recover"); return nil }

type fakeWatch struct{ host *fakeHost }

func (w *fakeWatch) Attribute(int) error       { w.host.did("attribute"); return nil }
func (w *fakeWatch) End(context.Context) error { w.host.did("end"); return nil }

func (h *fakeHost) Start(ctx context.Context, workspaceID string, s computer.Spec) (computer.Process, error) {
	if err := s.Attribute(1); err != nil {
		return nil, err
	}
	p := &fakeProcess{ended: make(chan struct{}), size: s.Terminal, cwd: s.Cwd, group: s.Group, spec: s, workspaceID: workspaceID}
	p.input, p.stdin = io.Pipe()
	if s.Prepare != nil {
		if err := s.Prepare(ctx, p); err != nil {
			return nil, err
		}
	}
	if h.startError != nil {
		return nil, h.startError
	}
	h.did("start")
	p.stdout, p.output = io.Pipe()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processes = append(h.processes, p)
	return p, nil
}

func (h *fakeHost) Dial(context.Context, string, int) (net.Conn, error) {
	return nil, errors.New("no port")
}
func (h *fakeHost) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	h.did("listen")
	if h.listen == nil {
		return nil, errors.New("no port")
	}
	return h.listen(ctx, workspaceID, port)
}

// StopUnused takes the memory of an unused computer from unmeasured.
func (h *fakeHost) StopUnused(context.Context) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unused) == 0 {
		return false, nil
	}
	h.unmeasured -= h.unused[0]
	h.unused = h.unused[1:]
	return true, nil
}

func (h *fakeHost) OwnNetworks() bool { return h.ownNetworks }

// Memory counts perProcess for each running process of a workspace, with the limit 100. For all computers it returns the sum of Usage
// and the limit sharedLimit.
func (h *fakeHost) Memory(ctx context.Context, workspaceID string) (used, limit uint64, err error) {
	if workspaceID == "" {
		all, _ := h.Usage(ctx, "")
		h.mu.Lock()
		defer h.mu.Unlock()
		used = h.unmeasured
		for _, u := range all {
			used += u.MemoryBytes
		}
		return used, h.sharedLimit, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		select {
		case <-p.ended:
		default:
			used += h.perProcess
		}
	}
	return used, 100, nil
}

func (h *fakeHost) Freeze(context.Context, string, bool) error { return nil }

// Usage returns for each group that runs the memory that memoryOf has for its process. "" means all workspaces.
func (h *fakeHost) Usage(_ context.Context, workspaceID string) (all []computer.Usage, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		select {
		case <-p.ended:
			continue
		default:
		}
		if memory := h.memoryOf[p.spec.ID]; memory > 0 && (workspaceID == "" || workspaceID == p.workspaceID) {
			all = append(all, computer.Usage{Group: p.group, MemoryBytes: memory})
		}
	}
	return all, nil
}

func (h *fakeHost) Stop(ctx context.Context, _ string) error {
	h.did("stop")
	if h.isStuck {
		<-ctx.Done()
		return fmt.Errorf("wait for the processes: %w", ctx.Err())
	}
	h.mu.Lock()
	all := slices.Clone(h.processes)
	h.mu.Unlock()
	for _, p := range all {
		p.exit(computer.Exit{Status: 137, Reason: computer.EndedStopped})
	}
	return nil
}

// Dial and Listen return errors that name the port.
func (p *fakeProcess) Dial(_ context.Context, port int) (net.Conn, error) {
	return nil, fmt.Errorf("dialed %d", port)
}

func (p *fakeProcess) Listen(_ context.Context, port int) (net.Listener, error) {
	return nil, fmt.Errorf("listened on %d", port)
}

// Occupied and Processes implement the rest of computer.Share.
func (w *world) Occupied(after string, _ int) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.state.GetProcesses()) == 0 || after != "" {
		return nil, nil
	}
	return []string{"ws_1"}, nil
}

func (w *world) Processes(string) ([]*computerv1.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.state.GetProcesses())), nil
}

// expectOrder compares the events with words separated by commas.
func (h *fakeHost) expectOrder(want string) {
	h.world.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.order, ", "); got != want {
		h.world.t.Errorf("happened: %s\nwant: %s", got, want)
	}
	h.order = nil
}

type fakeProcess struct {
	output *io.PipeWriter
	stdout *io.PipeReader
	input  *io.PipeReader
	stdin  *io.PipeWriter
	size   *computer.TerminalSize
	cwd    string
	group  string
	spec   computer.Spec
	// workspaceID is the argument of Start.
	workspaceID string
	once        sync.Once
	ended       chan struct{}
	result      computer.Exit
	// endFails makes the next call of End fail.
	endFails atomic.Bool
}

func (p *fakeProcess) exit(e computer.Exit) {
	p.once.Do(func() {
		p.result = e
		_ = p.output.Close()
		close(p.ended)
	})
}

func (p *fakeProcess) Streams() computer.Streams {
	return computer.Streams{Stdin: p.stdin, Stdout: p.stdout}
}
func (p *fakeProcess) Resize(computer.TerminalSize) error { return nil }
func (p *fakeProcess) OutOfMemory() uint64                { return 0 }
func (p *fakeProcess) Signal(syscall.Signal) error        { return nil }

func (p *fakeProcess) End(context.Context) error {
	if p.endFails.Swap(false) {
		return errors.New("the processes do not end")
	}
	p.exit(computer.Exit{Status: 137})
	return nil
}

func (p *fakeProcess) Wait(context.Context) (computer.Exit, error) {
	<-p.ended
	return p.result, nil
}

var launch = computer.Launch{
	WorkspaceID: "ws_1", Principal: &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"},
	Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC, Argv: []string{"sh"},
}

// provisioned returns a world with an active computer.
func provisioned(t *testing.T) *world {
	w := newWorld(t)
	w.ask(&computerv1.RequestComputer{TaskId: "tsk_1"})
	w.run(1)
	w.host.order = nil
	return w
}

func TestLaunchRecordsTheProcessBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		r, err := w.fleet.Launch(t.Context(), launch)
		if err != nil {
			t.Fatal(err)
		}
		if w.state.GetProcesses()[r.ID].GetProgram() != "sh" {
			t.Errorf("recorded %v", w.state.GetProcesses())
		}
		w.host.expectOrder("begin terminal usr_1, attribute, start")
		w.host.processes[0].exit(computer.Exit{Status: 3})
		exit, err := r.Wait(t.Context())
		if err != nil || exit.Status != 3 {
			t.Errorf("ended %+v, %v", exit, err)
		}
		w.host.expectOrder("end")
		if len(w.state.GetProcesses()) != 0 {
			t.Errorf("after the end: %v", w.state.GetProcesses())
		}
	})
}

func TestLaunchOfTooManyProcessesOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		w.fleet = computer.New(computer.Options{Driver: w, Host: w.host, Observer: w.host, Archive: w, Asker: w, Put: w.put, MaxProcesses: 1})
		r, err := w.fleet.Launch(t.Context(), launch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.fleet.Launch(t.Context(), launch); !isUnavailable(err) || len(w.state.GetProcesses()) != 1 {
			t.Errorf("Launch of a second process: %v; recorded %v", err, w.state.GetProcesses())
		}
		w.host.processes[0].exit(computer.Exit{})
		<-r.Ended()
		if _, err = w.fleet.Launch(t.Context(), launch); err != nil {
			t.Errorf("Launch after the end of the first process: %v", err)
		}
		if err := w.fleet.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLaunchInAFolderOfTheDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		l := launch
		l.Cwd = "a folder/below"
		r, err := w.fleet.Launch(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.host.processes[0].cwd; got != l.Cwd {
			t.Errorf("started in %q", got)
		}
		w.host.processes[0].exit(computer.Exit{})
		<-r.Ended()
	})
}

func TestLaunchThatFailsLeavesNoProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		w.host.startError = entity.Errorf(entity.Forbidden, "no isolation")
		if _, err := w.fleet.Launch(t.Context(), launch); !entity.IsRefusal(err) {
			t.Errorf("Launch returned %v", err)
		}
		synctest.Wait()
		w.host.expectOrder("begin terminal usr_1, attribute, end")
		if len(w.state.GetProcesses()) != 0 {
			t.Errorf("recorded %v", w.state.GetProcesses())
		}
	})
}

func TestLaunchRefusesInvalidArguments(t *testing.T) {
	w := provisioned(t)
	for name, change := range map[string]func(*computer.Launch){
		"no program": func(l *computer.Launch) { l.Argv = nil },
		"empty name": func(l *computer.Launch) { l.Argv = []string{""} },
		"NUL":        func(l *computer.Launch) { l.Argv = []string{"a\x00b"} },
		"too long":   func(l *computer.Launch) { l.Env = []string{"A=" + strings.Repeat("x", 256<<10)} },
		"variable":   func(l *computer.Launch) { l.Env = []string{"NOVALUE"} },
		"name":       func(l *computer.Launch) { l.Env = []string{"2A=x"} },
		"too many":   func(l *computer.Launch) { l.Argv = make([]string, 1025); l.Argv[0] = "sh" },
		"folder":     func(l *computer.Launch) { l.Cwd = "../other" },
		"no columns": func(l *computer.Launch) { l.Terminal = &computer.TerminalSize{Rows: 1} },
		"wide":       func(l *computer.Launch) { l.Terminal = &computer.TerminalSize{Rows: 1, Columns: 1001} },
	} {
		l := launch
		change(&l)
		var refusal *entity.Error
		if _, err := w.fleet.Launch(t.Context(), l); !errors.As(err, &refusal) || refusal.Code != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.host.expectOrder("")
}

// TestEndIsReportedUntilAnswered checks that the end of a process is recorded although the journal fails for a time, and that the
// start with an unknown outcome is reported as lost.
func TestEndIsReportedUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		r, err := w.fleet.Launch(t.Context(), launch)
		if err != nil {
			t.Fatal(err)
		}
		failures := 0
		w.refuse = func(c entity.Command) error {
			if _, is := c.Message.(*computerv1.ReportProcessEnded); is && failures < 5 {
				failures++
				return errors.New("no journal")
			}
			return nil
		}
		w.host.processes[0].exit(computer.Exit{})
		if _, err := r.Wait(t.Context()); err != nil || failures != 5 || len(w.state.GetProcesses()) != 0 {
			t.Errorf("%v after %d failures: %v", err, failures, w.state.GetProcesses())
		}
		w.refuse = func(c entity.Command) error {
			if _, is := c.Message.(*computerv1.StartProcess); is {
				return errors.New("unknown outcome")
			}
			return nil
		}
		if _, err := w.fleet.Launch(t.Context(), launch); err == nil {
			t.Error("Launch succeeded although the outcome is unknown")
		}
	})
}

func isUnavailable(err error) bool {
	refusal, is := errors.AsType[*entity.Error](err)
	return is && refusal.Code == entity.Unavailable
}

// TestLostProcessesAreReported checks that the next fleet reports the processes of one that ended.
func TestLostProcessesAreReported(t *testing.T) {
	w := provisioned(t)
	r, err := w.fleet.Launch(t.Context(), launch)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.ReportLost(t.Context(), w); err != nil || w.state.GetProcesses()[r.ID] == nil {
		t.Errorf("a process that runs was reported as lost: %v", err)
	}
	w.host.order = nil
	next := computer.New(computer.Options{Driver: w, Host: w.host, Observer: w.host, Archive: w, Asker: w, Put: w.put})
	if err := next.ReportLost(t.Context(), w); err != nil || len(w.state.GetProcesses()) != 0 {
		t.Errorf("after a restart: %v, %v", err, w.state.GetProcesses())
	}
	w.host.expectOrder("recover")
}

func TestCloseEndsProcesses(t *testing.T) {
	w := provisioned(t)
	r, err := w.fleet.Launch(t.Context(), launch)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit, err := r.Wait(t.Context()); err != nil || exit.Reason != computer.EndedStopped || len(w.state.GetProcesses()) != 0 {
		t.Errorf("ended %+v, %v; recorded %v", exit, err, w.state.GetProcesses())
	}
	if _, err := w.fleet.Launch(t.Context(), launch); !isUnavailable(err) {
		t.Errorf("Launch after Close: %v", err)
	}
}
