package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// openJournal opens a journal with the options of a node.
func openJournal(b testing.TB) (*persistence.Store, []uint64) {
	store, err := persistence.Open(persistence.Options{Dir: Disk(b) + "/journal", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	epochs := make([]uint64, store.Partitions())
	ctx, cancel := context.WithCancel(context.Background())
	store.Watch(ctx, func(n persistence.Notice) { epochs[n.Partition] = n.Epoch })
	cancel()
	return store, epochs
}

const rawWorkspace = "ws_01jd0000000000000000000000"

// A proposer decides by the product's rules and appends to a journal without actors: rows and indexes are the same.
type proposer struct {
	store *persistence.Store
	epoch uint64

	mu         sync.Mutex
	state      *activity.State
	totals     map[string]*activityv1.Totals
	operations *Operations
}

func newProposer(b testing.TB) *proposer {
	store, epochs := openJournal(b)
	return &proposer{
		store: store, epoch: epochs[0], state: activity.Zero(rawWorkspace), totals: map[string]*activityv1.Totals{},
		operations: NewOperations(1, 10_000, false),
	}
}

// publish appends one event; committed is called in the order of the journal.
func (p *proposer) publish(committed func(activity.Row)) error {
	done := make(chan error, 1)
	if err := p.propose(func(row activity.Row, err error) {
		if err == nil {
			committed(row)
		}
		done <- err
	}); err != nil {
		return err
	}
	return <-done
}

func (p *proposer) propose(done func(activity.Row, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	d, err := activity.Decide(entity.Call{Now: now, Identity: rawWorkspace, Principal: entity.Platform()}, p.state,
		&activityv1.Record{Operations: []*activityv1.Operation{p.operations.Next()}},
		func(seen string) *activityv1.Totals { return p.totals[seen] })
	if err != nil {
		return err
	}
	expected := p.state.Seq
	activity.Evolve(p.state, d)
	if d.Index != nil {
		maps.Copy(p.totals, d.Index.Totals)
	}
	proposal := persistence.Proposal{Stream: "activity/" + rawWorkspace, Expected: expected, Epoch: p.epoch}
	row := d.Rows[0]
	proposal.Events = []persistence.Event{{
		Name: activity.RowName, Payload: activity.Encode(row), At: now, Actor: row.Operation.GetAuthor().GetActor(),
	}}
	for _, e := range d.Entries {
		proposal.Entries = append(proposal.Entries, persistence.Change{
			Entry: persistence.Entry{Index: e.Index, Value: e.Value, Order: e.Order, Data: e.Data}, Remove: e.Remove,
		})
	}
	activity.Acknowledge(p.state, d) // state is not read back, and a failure ends the benchmark
	p.store.Append(proposal, func(r persistence.Result) { done(row, r.Err) })
	return nil
}

// serveRaw serves a handler on the loopback interface until the end of the benchmark.
func serveRaw(b testing.TB, h http.Handler) (address string) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	b.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

var rawRequest = []byte("GET / HTTP/1.1\r\nHost: bench\r\n\r\n")

// shared is the minimal fan-out: one contiguous run of frames. Each hijacked connection writes the frames that it has not sent.
type shared struct {
	mu     sync.Mutex
	grown  sync.Cond
	frames []byte
	ended  bool
	cursor activity.Cursor
}

func rawShared(b testing.TB, readers *Readers, n int) *Broadcast {
	s := &shared{cursor: activity.NewCursor(make([]byte, 32), rawWorkspace)}
	s.grown.L = &s.mu
	p := newProposer(b)
	b.Cleanup(s.end)
	return &Broadcast{
		Name:        "hijacked",
		Connections: readers.Open(Group{Address: serveRaw(b, s), Connections: n, Requests: [][]byte{rawRequest}}),
		Publish:     func() error { return p.publish(s.add) },
	}
}

func (s *shared) add(row activity.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = activity.AppendFrame(s.frames, s.cursor, row.Seq, activity.Encode(row))
	s.grown.Broadcast()
}

func (s *shared) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.grown.Broadcast()
}

func (s *shared) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	go s.follow(connection)
}

func (s *shared) follow(connection net.Conn) {
	defer connection.Close()
	connection.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"))
	for sent := 0; ; {
		fresh := s.after(sent)
		if fresh == nil {
			return
		}
		if _, err := connection.Write(fresh); err != nil {
			return
		}
		sent += len(fresh)
	}
}

// after waits for frames after the sent frames; nil ends the stream.
func (s *shared) after(sent int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.frames) == sent && !s.ended {
		s.grown.Wait()
	}
	if s.ended {
		return nil
	}
	return s.frames[sent:]
}

// each is the fan-out of most servers: a queue for each connection, and for every event its encoding, one write and one flush.
type each struct {
	mu     sync.Mutex
	queues map[chan activity.Row]bool
}

func rawEach(b testing.TB, readers *Readers, n int) *Broadcast {
	e := &each{queues: map[chan activity.Row]bool{}}
	p := newProposer(b)
	return &Broadcast{
		Name:        "each",
		Connections: readers.Open(Group{Address: serveRaw(b, e), Connections: n, Requests: [][]byte{rawRequest}}),
		Publish:     func() error { return p.publish(e.add) },
	}
}

func (e *each) add(row activity.Row) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for queue := range e.queues {
		queue <- row
	}
}

func (e *each) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	queue := make(chan activity.Row, 512)
	e.mu.Lock()
	e.queues[queue] = true
	e.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case row := <-queue:
			data, err := json.Marshal(row)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", row.Seq, row.Operation.GetKind(), data)
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}
