package bench

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// member is the owner of the workspaces that sessionActors creates.
var member = user("usr_bench")

func user(id string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "key_" + id, UserId: id}
}

// An executor returns a kind of tasks and the executor of these tasks.
type executor func(*cluster.Router) (taskKind string, _ actors.Executor)

// sessionActors has the actors of a node over a journal. Without executors, turns run as the benchmark runs them.
type sessionActors struct {
	b        testing.TB
	router   *cluster.Router
	journal  *capturing
	registry *prometheus.Registry
}

func newSessionActors(b testing.TB, store *persistence.Store, idleAfter time.Duration, executors ...executor) *sessionActors {
	a := &sessionActors{
		b: b, journal: &capturing{Store: store}, router: cluster.NewRouter(store.Partitions(), false), registry: prometheus.NewRegistry(),
	}
	run := map[string]actors.Executor{}
	for _, e := range executors {
		kind, runs := e(a.router)
		run[kind] = runs
	}
	system := actors.New(actors.Options{
		Journal: a.journal, Partitions: store.Partitions(), Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		IdleAfter: idleAfter, Ask: a.router.Ask, Kinds: kinds.All, Secret: make([]byte, 32), Registerer: a.registry,
		Executors: run,
	})
	a.router.Attach(system)
	system.Start()
	b.Cleanup(func() { system.Stop(context.Background()) })
	return a
}

// found creates a workspace of the member.
func (a *sessionActors) found(id string) {
	a.b.Helper()
	a.ask(entity.KindWorkspace, id, entity.Platform(), &workspacev1.CreateWorkspace{
		Slug: id[3:], Name: "Bench", CreatorId: member.GetUserId(), CreatorEmail: "bench@example.com", CreatorName: "Bench",
	})
}

// ask sends a command and ends the benchmark if it is refused.
func (a *sessionActors) ask(kind, identity string, p *wirev1.Principal, m proto.Message) proto.Message {
	a.b.Helper()
	reply, err := a.send(kind, identity, p, m)
	if err != nil {
		a.b.Fatal(err)
	}
	return reply
}

func (a *sessionActors) send(kind, identity string, p *wirev1.Principal, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return a.router.Ask(ctx, entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
}

// sessionID returns the id of the session with a number.
func sessionID(i int) string { return fmt.Sprintf("%s01jd%022d", session.IDPrefix, i) }

// start starts a session with a turn that no run has taken, and returns the seq of its prompt.
func (a *sessionActors) start(identity string) (uint64, error) { return a.startAs(member, identity) }

func (a *sessionActors) startAs(p *wirev1.Principal, identity string) (uint64, error) {
	reply, err := a.send(entity.KindSession, identity, p, &sessionv1.StartSession{
		Mode: sessionv1.Mode_MODE_AUTO, Prompt: &sessionv1.Input{Text: "Summarize the report."},
	})
	if err != nil {
		return 0, err
	}
	return reply.(*sessionv1.Accepted).GetInputSeq(), nil
}

// claim takes a turn for the run "run".
func (a *sessionActors) claim(identity string, turn uint64) error {
	_, err := a.send(entity.KindSession, identity, entity.Platform(), &sessionv1.ClaimTurn{TurnId: turn, RunId: "run"})
	return err
}

// endAs takes the turn of an end, and ends it.
func (a *sessionActors) endAs(identity string, end *sessionv1.EndTurn) error {
	if err := a.claim(identity, end.GetTurnId()); err != nil {
		return err
	}
	end.RunId = "run"
	_, err := a.send(entity.KindSession, identity, entity.Platform(), end)
	return err
}

// gauge returns the value of a gauge for a kind of entity.
func gauge(b testing.TB, registry *prometheus.Registry, name, kind string) int {
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return 0
}

// perSession is the number of messages of a conversation in one session. The conversation then goes on in another
// session, so that fewer than session.MaxPending wait in one.
const perSession = 500

// A conversation sends messages to one session at a time, while its turn runs.
type conversation struct {
	a  *sessionActors
	mu sync.Mutex
	// current is the session, and sent the number of its messages; next has the session after it.
	current string
	sent    int
	next    chan string
}

// converse starts a conversation in a workspace. number distinguishes its sessions from the sessions of other conversations.
func (a *sessionActors) converse(workspaceID string, number int) *conversation {
	c := &conversation{a: a, next: make(chan string), sent: perSession}
	go func() {
		for i := 0; ; i++ {
			identity := session.Identity(workspaceID, sessionID(number*million+i))
			if _, err := a.start(identity); err != nil {
				a.b.Error(err)
			}
			select {
			case c.next <- identity:
			case <-a.b.Context().Done():
				return
			}
		}
	}()
	return c
}

// message returns when a message is durable.
func (c *conversation) message() error {
	c.mu.Lock()
	if c.sent++; c.sent > perSession {
		c.current, c.sent = <-c.next, 1
	}
	identity := c.current
	c.mu.Unlock()
	_, err := c.a.send(entity.KindSession, identity, member, &sessionv1.SendInput{Input: &sessionv1.Input{
		Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: "Please also compare the figures of the last quarter with those of the year before.",
	}})
	return err
}

// BenchmarkSessionMessages sends messages of a member to sessions of one workspace while their turns run, 256 at a time. The variant
// raw appends the proposals of such messages to a separate journal, with their list rows, as many at a time.
func BenchmarkSessionMessages(b *testing.B) {
	for _, sessions := range []int{1, inFlight} {
		b.Run(fmt.Sprint("sessions=", sessions), func(b *testing.B) {
			message, captured := messages(b, sessions)
			raw := newSessionAppender(b, sessions, captured)
			variants := []Variant{
				{"session", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, inFlight, message) }},
				{"raw", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, inFlight, raw.append) }},
			}
			Rounds(b, time.Second, variants...).Report(b, "message", variants...)
		})
	}
}

// BenchmarkSessionMessagesAlone runs one variant of BenchmarkSessionMessages for ten seconds, after one second to warm up. Run each
// in a process of its own, so that flushes and compactions count for the variant that caused them.
func BenchmarkSessionMessagesAlone(b *testing.B) {
	for _, sessions := range []int{1, inFlight} {
		for _, name := range []string{"session", "raw"} {
			b.Run(fmt.Sprintf("sessions=%d/variant=%s", sessions, name), func(b *testing.B) {
				call, captured := messages(b, sessions)
				if name == "raw" {
					call = newSessionAppender(b, sessions, captured).append
				}
				inParallel(b, time.Second, inFlight, call)
				for b.Loop() {
					used := processorTime()
					n, took := inParallel(b, 10*time.Second, inFlight, call)
					b.ReportMetric(float64((processorTime()-used).Nanoseconds())/n, "cpu-ns/message")
					b.ReportMetric(n/took.Seconds(), "messages/s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// newSessionAppender returns an appender with one stream for each session, in the partition of the captured proposals.
func newSessionAppender(b *testing.B, sessions int, captured []persistence.Proposal) *appender {
	raw := newAppender(b, sessions, captured, true)
	for i, s := range raw.streams {
		s.partition, s.epoch = captured[0].Partition, raw.epochs[captured[0].Partition]
		s.name = persistence.Stream(entity.KindSession + "/" + session.Identity(rawWorkspace, sessionID(i)))
	}
	return raw
}

// messages returns a function that sends a message of a worker, and the proposals of some messages.
func messages(b *testing.B, sessions int) (send func(worker int) error, captured []persistence.Proposal) {
	store, _ := openJournal(b)
	a := newSessionActors(b, store, time.Minute)
	a.found(rawWorkspace)
	var all []*conversation
	for i := range sessions {
		all = append(all, a.converse(rawWorkspace, i))
	}
	send = func(worker int) error { return all[worker%sessions].message() }
	a.journal.capture(4096, func() { inParallel(b, 100*time.Millisecond, inFlight, send) })
	return send, a.journal.proposals
}

// capture records proposals with one event while it repeats work, until it has n.
func (c *capturing) capture(n int, work func()) {
	c.wanted = n
	for enough := false; !enough; {
		work()
		c.mu.Lock()
		enough = len(c.proposals) == n
		c.mu.Unlock()
	}
	c.wanted = 0
}

const (
	waits          = 10_000
	waitedSessions = 1_000
)

// BenchmarkSessionWaits makes 10,000 requests wait for the turns of 1,000 sessions, and then ends the turns. It reports the memory of a
// wait in the process of the actors, beside the memory of a goroutine that waits for a channel with a deadline, and the time from the
// command that ends a turn to the answers of its waits and to its own answer.
func BenchmarkSessionWaits(b *testing.B) {
	store, _ := openJournal(b)
	a := newSessionActors(b, store, time.Minute)
	a.found(rawWorkspace)
	for i := 0; b.Loop(); i++ {
		bare := bareWaits()
		sessions := make([]*waited, waitedSessions)
		if !parallel(b, len(sessions), 64, func(k int) (err error) {
			s := &waited{identity: session.Identity(rawWorkspace, sessionID(i*waitedSessions+k))}
			s.turn, err = a.start(s.identity)
			sessions[k] = s
			return err
		}) {
			return
		}
		before := settledMemory()
		var answered sync.WaitGroup
		for k := range waits {
			s := sessions[k%waitedSessions]
			answered.Go(func() { s.await(a) })
		}
		for gauge(b, a.registry, "atelier_actor_held_queries", entity.KindSession) < waits {
			runtime.Gosched()
		}
		held := float64(settledMemory()-before) / waits
		parallel(b, len(sessions), 64, func(k int) error { return sessions[k].end(a) })
		answered.Wait()
		var answers, ends []time.Duration
		for _, s := range sessions {
			answers, ends = append(answers, s.answers...), append(ends, s.ended)
		}
		if len(answers) != waits {
			b.Fatalf("%d of %d waits are answered", len(answers), waits)
		}
		b.ReportMetric(held, "B/wait")
		b.ReportMetric(held/bare, "of-goroutine")
		for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
			b.ReportMetric(float64(Quantile(answers, q).Microseconds())/1000, "answer-"+name+"-ms")
			b.ReportMetric(float64(Quantile(ends, q).Microseconds())/1000, "end-"+name+"-ms")
		}
		b.ReportMetric(float64(Quantile(answers, 0.99))/float64(Quantile(ends, 0.99)), "p99-of-end")
	}
	b.ReportMetric(0, "ns/op")
}

// A waited is a session with an awaited turn.
type waited struct {
	identity string
	turn     uint64

	mu sync.Mutex
	// began is the time of the command that ends the turn. ended is the time until the answer of the command. answers are the
	// times until the answers of the waits.
	began   time.Time
	ended   time.Duration
	answers []time.Duration
}

func (s *waited) await(a *sessionActors) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	_, err := a.router.Ask(ctx, entity.Command{
		Kind: entity.KindSession, Identity: s.identity, Principal: member, Message: &sessionv1.AwaitInput{Seq: s.turn},
	})
	now := time.Now()
	if err != nil {
		a.b.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, now.Sub(s.began))
}

func (s *waited) end(a *sessionActors) error {
	if err := a.claim(s.identity, s.turn); err != nil {
		return err
	}
	s.mu.Lock()
	s.began = time.Now()
	s.mu.Unlock()
	_, err := a.send(entity.KindSession, s.identity, entity.Platform(), &sessionv1.EndTurn{
		TurnId: s.turn, RunId: "run", Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE,
	})
	s.ended = time.Since(s.began)
	return err
}

// parallel calls work with 0 to n-1 in concurrent workers until a call fails, and reports whether all calls succeeded.
func parallel(b testing.TB, n, workers int, work func(int) error) bool {
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				if b.Failed() {
					continue
				}
				if err := work(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	return !b.Failed()
}

// settledMemory returns the bytes of the heap and of the stacks of this process after garbage collections.
func settledMemory() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves memory that finalizers and pools refer to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// bareWaits returns the memory of a goroutine that waits for a channel or the end of a context with a deadline.
func bareWaits() float64 {
	before := settledMemory()
	answer := make(chan struct{})
	var started, ended sync.WaitGroup
	started.Add(waits)
	for range waits {
		ended.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			started.Done()
			select {
			case <-answer:
			case <-ctx.Done():
			}
		})
	}
	started.Wait()
	each := float64(settledMemory()-before) / waits
	close(answer)
	ended.Wait()
	return each
}
