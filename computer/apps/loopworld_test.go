package apps

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	testWorkspace = "ws_01jd0000000000000000000000"
	testApp       = "app_01jd0000000000000000000000"
	testPort      = 8080
)

// A world has one app with the real rules, the executors of its tasks, and a computer. The processes of the computer are programs of the
// test.
type world struct {
	t   *testing.T
	s   *Supervisor
	log bytes.Buffer // the log of the supervisor

	mu      sync.Mutex
	app     *appv1.App
	changed chan struct{}
	// got has the commands of the supervisor without its queries.
	got []proto.Message
	// intercept may answer a command instead of the app; nil: the app answers all.
	intercept func(proto.Message) error
	// programs are the programs of the computer by their commands.
	programs map[string]program
	launches []*fakeProcess
	// refusal is the error of Launch; nil: there is none.
	refusal error
	// hasNetworks is set if processes have networks of their own. listening has the listeners of the network of the computer.
	hasNetworks bool
	listening   network
	// listeners are the listeners of the platform, in the order in which they were opened.
	listeners []*fakeListener
	settled   int
	// recorded are the processes that the computer's entity has recorded.
	recorded map[string]*computerv1.Process
}

// A network has the functions that accept connections at its ports.
type network map[int]func(net.Conn)

// A program is the behavior of a command.
type program struct {
	output string
	// port is the port on which it listens, after a time; 0: the port in the variable PORT; -1: none.
	port  int
	after time.Duration
	// connects is the time that it takes to connect to it.
	connects time.Duration
	// exit is how it ends after a time, unless life is 0.
	life time.Duration
	exit computer.Exit
	// ignoresTerm is set if it ends at End only, and stuck if it does not even then.
	ignoresTerm, stuck bool
}

// inWorld calls a test with a world in which the executors of the tasks run, and expects that no process is left at its end. It does so
// once with own networks of processes, and once without.
func inWorld(t *testing.T, change func(*Options), test func(w *world)) {
	t.Helper()
	for _, hasNetworks := range []bool{true, false} {
		t.Run(fmt.Sprintf("own networks %v", hasNetworks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					t: t, app: app.Zero(app.Identity(testWorkspace, testApp)), changed: make(chan struct{}), programs: map[string]program{},
					hasNetworks: hasNetworks, listening: network{},
				}
				w.run(change, test)
			})
		})
	}
}

func (w *world) run(change func(*Options), test func(w *world)) {
	o := Options{Asker: w, Computers: w, Dir: w.t.TempDir(), Log: slog.New(slog.NewTextHandler(&w.log, nil))}
	if change != nil {
		change(&o)
	}
	w.s = New(o)
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.execute(ctx)
	}()
	test(w)
	stop()
	<-ended
	synctest.Wait()
	if left := w.alive(); len(left) > 0 {
		w.t.Errorf("%d processes are left: %v", len(left), left[0].l.Argv)
	}
	if len(w.listening) > 0 {
		w.t.Errorf("%d listeners are left", len(w.listening))
	}
}

// execute runs the executors of the open tasks one after the other, as package actors does, until ctx ends.
func (w *world) execute(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		open, changed := app.Tasks(w.app), w.changed
		w.mu.Unlock()
		if len(open) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		w.executeTask(ctx, open[0])
	}
}

func (w *world) executeTask(ctx context.Context, task entity.Task) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		w.await(ctx, func(a *appv1.App) bool {
			return !slices.ContainsFunc(app.Tasks(a), func(o entity.Task) bool { return o.Kind == task.Kind && o.ID == task.ID })
		})
		cancel()
	}()
	identity := app.Identity(testWorkspace, testApp)
	var report proto.Message
	var err error
	if task.Kind == app.StopTask {
		report, err = w.s.Stop(ctx, identity, task.Message.(*appv1.StopTask))
	} else {
		report, err = w.s.Run(ctx, identity, task.Message.(*appv1.RunTask))
	}
	if err == nil && report != nil {
		_, _ = w.Ask(ctx, entity.Command{Principal: entity.Platform(), Message: report})
	}
}

// await waits until the app is as expected; it returns false if ctx ends first.
func (w *world) await(ctx context.Context, expected func(*appv1.App) bool) bool {
	for {
		w.mu.Lock()
		a, changed := w.app, w.changed
		w.mu.Unlock()
		if expected(a) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Ask implements Asker with the rules of apps.
func (w *world) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if c.Kind == entity.KindComputer {
		w.mu.Lock()
		defer w.mu.Unlock()
		return &computerv1.Computer{Processes: maps.Clone(w.recorded)}, nil
	}
	command, ok := c.Message.(appv1.Command)
	if !ok {
		return nil, entity.UnknownCommand(entity.KindApp, c.Message)
	}
	w.mu.Lock()
	intercept := w.intercept
	w.mu.Unlock()
	if intercept != nil {
		if err := intercept(c.Message); err != nil {
			return nil, err
		}
	}
	call := entity.Call{Now: time.Now(), Identity: app.Identity(testWorkspace, testApp), Principal: c.Principal, Role: workspacev1.Role_ROLE_OWNER}
	if !w.await(ctx, func(a *appv1.App) bool { return !app.Waits(call, a, command) }) {
		return nil, &entity.Error{Code: entity.Unavailable, Message: "the query took too long"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	call.Now = time.Now()
	events, err := app.Decide(call, w.app, command)
	if err != nil {
		return nil, err
	}
	if _, isQuery := c.Message.(*appv1.AwaitRuntime); !isQuery {
		w.got = append(w.got, c.Message)
	}
	for _, e := range events {
		w.app = app.Evolve(w.app, e)
	}
	if len(events) > 0 {
		close(w.changed)
		w.changed = make(chan struct{})
	}
	return app.Reply(call, w.app, command, events), nil
}

// Settle implements Asker.
func (w *world) Settle(context.Context, string, string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled++
	return nil
}

// try sends a command of an owner to the app, or one of the platform.
func (w *world) try(m proto.Message) error {
	as := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CredentialId: "key_1"}
	switch m.(type) {
	case *appv1.RegisterApp, *appv1.WakeApp, *appv1.OfferPort:
		as = entity.Platform()
	}
	_, err := w.Ask(w.t.Context(), entity.Command{Principal: as, Message: m})
	return err
}

// do is try with a command that must succeed.
func (w *world) do(m proto.Message) {
	w.t.Helper()
	if err := w.try(m); err != nil {
		w.t.Fatal(err)
	}
}

// register registers the app with a command, and waits until it was reconciled or has failed.
func (w *world) register(runtime *appv1.Runtime) *appv1.App {
	w.t.Helper()
	runtime.Port = testPort
	w.do(&appv1.RegisterApp{Registration: &appv1.Registration{
		AppId: testApp, AnchorId: "anc_1", Path: "site", Slug: "site", Runtime: runtime, CreatedByUserId: "usr_1",
	}})
	return w.reconciled()
}

// offer offers a port to the app, as the workspace does when it has reserved the port for an update.
func (w *world) offer(port uint32) {
	w.t.Helper()
	w.do(&appv1.OfferPort{Port: port, Reservation: w.state().GetPortReservation() + 1})
}

// reconciled waits until no configuration is being reconciled.
func (w *world) reconciled() *appv1.App {
	w.t.Helper()
	if !w.await(w.t.Context(), func(a *appv1.App) bool {
		return a.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING
	}) {
		w.t.Fatal("the app was not reconciled")
	}
	return w.state()
}

func (w *world) state() *appv1.App {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.app
}

func (w *world) expectStatus(a *appv1.App, status appv1.RuntimeStatus) {
	w.t.Helper()
	if a.GetRuntimeStatus() != status {
		w.t.Fatalf("the status is %v (%s), want %v", a.GetRuntimeStatus(), a.GetReconciliationError(), status)
	}
}

// commands returns the launches so far as "time since start of the world: command".
func (w *world) started() []*fakeProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.launches)
}

func (w *world) alive() []*fakeProcess {
	var found []*fakeProcess
	for _, p := range w.started() {
		select {
		case <-p.ended:
		default:
			found = append(found, p)
		}
	}
	return found
}

// Launch implements Computers.
func (w *world) Launch(ctx context.Context, l Launch) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != nil {
		return nil, w.refusal
	}
	if l.OwnNetwork != w.hasNetworks && len(l.Env) > 0 && !strings.Contains(l.Argv[2], "install") {
		w.t.Errorf("the process %q has an own network: %v", l.Argv[2], l.OwnNetwork)
	}
	command := l.Argv[len(l.Argv)-1]
	runs, known := w.programs[command]
	if !known {
		return nil, entity.Errorf(entity.InvalidRequest, "there is no program %q", command)
	}
	p := &fakeProcess{
		w: w, l: l, command: command, at: time.Now(), program: runs, term: make(chan struct{}), kill: make(chan struct{}),
		ended: make(chan struct{}), fail: make(chan computer.Exit, 1), network: w.listening,
	}
	if l.OwnNetwork {
		p.network = network{}
		w.mu.Unlock()
		err := l.Prepare(ctx, fakeNetwork{w, p.network})
		w.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	p.stdout, p.out = io.Pipe()
	p.stderr, p.errs = io.Pipe()
	w.launches = append(w.launches, p)
	go p.run()
	return p, nil
}

// Dial implements Computers.
func (w *world) Dial(ctx context.Context, _ string, port int) (net.Conn, error) {
	return fakeNetwork{w, w.listening}.Dial(ctx, port)
}

// Listen implements Computers.
func (w *world) Listen(ctx context.Context, _ string, port int) (net.Listener, error) {
	return fakeNetwork{w, w.listening}.Listen(ctx, port)
}

// OwnNetworks implements Computers.
func (w *world) OwnNetworks() bool { return w.hasNetworks }

// Usage implements Computers: a second of a processor and 1 KiB for each process.
func (w *world) Usage(context.Context, string) ([]computer.Usage, error) {
	n := len(w.alive())
	return []computer.Usage{
		{Group: "session:ses_1", Processes: 5}, {Group: "app:" + testApp, Processes: n, Processor: time.Duration(n) * time.Second, MemoryBytes: uint64(n) << 10},
	}, nil
}
