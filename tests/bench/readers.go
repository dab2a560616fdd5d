package bench

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Manner is what a group of connections does.
type Manner int

const (
	// Follow counts the events of server-sent event streams.
	Follow Manner = iota
	// Query asks for one answer after the other, while told to.
	Query
	// Ignore sends the request and reads nothing but the answer's head.
	Ignore
)

// Group says which connections to open.
type Group struct {
	Address     string
	Connections int
	Manner      Manner
	// Requests are sent as they are: the first of them by connections that follow, all in turn by those that query.
	Requests [][]byte
	// Greeting is in what a server of another protocol answers when a connection is ready; empty: HTTP's 200.
	Greeting []byte
	// ReceiveBuffer of the sockets, in bytes; 0: the system's.
	ReceiveBuffer int
}

// order is sent to the child, and answered by a report but for those of levels, which come unasked.
type order struct {
	Open   *Group
	ID     int
	Query  time.Duration
	Stamp  bool
	Stamps bool
	Close  bool
}

// report is what the child says of a group.
type report struct {
	ID int
	// Level is how many events every connection of the group has received.
	Level uint64
	// Answer tells that the report answers an order.
	Answer    bool
	Answers   uint64
	Took      time.Duration
	Stamps    [][]int64
	Processor time.Duration
	Failed    string
}

// Readers is a child process that reads.
type Readers struct {
	b       testing.TB
	orders  *gob.Encoder
	answers chan report
	groups  []*Connections
	mu      sync.Mutex
}

// Connections is a group of open connections.
type Connections struct {
	readers *Readers
	id      int
	Group

	mu    sync.Mutex
	moved sync.Cond
	level uint64
	lost  error
}

// NewReaders starts the child; it ends with the benchmark.
func NewReaders(b testing.TB) *Readers {
	r := &Readers{b: b, answers: make(chan report, 1)}
	in, out, wait := startChild(b, "readers")
	r.orders = gob.NewEncoder(in)
	read := make(chan struct{})
	go func() { defer close(read); r.receive(out) }()
	b.Cleanup(func() {
		in.Close()
		<-read
		if err := wait(); err != nil {
			b.Error(err)
		}
	})
	return r
}

func startChild(b testing.TB, part string) (io.WriteCloser, io.Reader, func() error) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	child := exec.Command(program)
	child.Env = append(os.Environ(), role+"="+part)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	return in, out, child.Wait
}

func (r *Readers) receive(out io.Reader) {
	defer close(r.answers)
	decoder := gob.NewDecoder(out)
	for {
		var m report
		if err := decoder.Decode(&m); err != nil {
			r.all(func(c *Connections) { c.advance(c.Level(), fmt.Errorf("the readers are gone: %w", err)) })
			return
		}
		if m.Answer {
			r.answers <- m
			continue
		}
		r.mu.Lock()
		c := r.groups[m.ID]
		r.mu.Unlock()
		var lost error
		if m.Failed != "" {
			lost = errors.New(m.Failed)
		}
		c.advance(m.Level, lost)
	}
}

func (r *Readers) all(fn func(*Connections)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.groups {
		fn(c)
	}
}

func (r *Readers) order(o order) report {
	if err := r.orders.Encode(o); err != nil {
		r.b.Fatal(err)
	}
	m, ok := <-r.answers
	if !ok || m.Failed != "" {
		r.b.Fatalf("the readers failed: %s", m.Failed)
	}
	return m
}

// Open opens the connections and returns when each has the head of its answer.
func (r *Readers) Open(g Group) *Connections {
	c := &Connections{readers: r, id: len(r.groups), Group: g}
	c.moved.L = &c.mu
	r.mu.Lock()
	r.groups = append(r.groups, c)
	r.mu.Unlock()
	r.order(order{Open: &g, ID: c.id})
	return c
}

// Processor is the processor time that the readers have used so far.
func (r *Readers) Processor() time.Duration { return r.order(order{Stamps: true, ID: -1}).Processor }

func (c *Connections) advance(level uint64, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level, c.lost = max(c.level, level), errors.Join(c.lost, lost)
	c.moved.Broadcast()
}

// Level is how many events every connection has received.
func (c *Connections) Level() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

// Await waits until every connection has received that many events.
func (c *Connections) Await(level uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.level < level && c.lost == nil {
		c.moved.Wait()
	}
	if c.lost != nil {
		c.readers.b.Error(c.lost)
	}
}

// Query lets the group ask for about d, and returns how many answers came in how long.
func (c *Connections) Query(d time.Duration) (answers float64, took time.Duration) {
	m := c.readers.order(order{ID: c.id, Query: d})
	return float64(m.Answers), m.Took
}

// Stamp begins to note when each connection receives each event.
func (c *Connections) Stamp() { c.readers.order(order{ID: c.id, Stamp: true}) }

// Stamps are those times, by connection, in nanoseconds since the Unix epoch.
func (c *Connections) Stamps() [][]int64 {
	return c.readers.order(order{ID: c.id, Stamps: true}).Stamps
}

// Close closes the connections.
func (c *Connections) Close() { c.readers.order(order{ID: c.id, Close: true}) }
