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

// A Manner is the behaviour of a group of connections.
type Manner int

const (
	// Follow counts the marks of streams, of server-sent events or others.
	Follow Manner = iota
	// Query sends requests one after the other during calls of Connections.Query.
	Query
	// Ignore sends the request and reads only the head of the answer.
	Ignore
	// Wait counts marks as Follow, but the answer may begin late: Open returns when the requests are sent.
	Wait
)

// A Group describes the connections to open.
type Group struct {
	Address     string
	Connections int
	Manner      Manner
	// Requests are sent unchanged. Connection i begins with request i, or with the remainder if there are fewer requests.
	// Connections that query send all in turn, and begin at positions that are evenly distributed.
	Requests [][]byte
	// Mark is in every event to count once; empty: "\ndata: ", which all servers of server-sent events write.
	Mark []byte
	// Greeting is in the answer of a server of another protocol when a connection is ready; empty: status 200 of HTTP.
	Greeting []byte
	// ReceiveBuffer is the size of the sockets' receive buffers, in bytes; 0: the system's default.
	ReceiveBuffer int
}

// An order is a request to the child. The child answers with a report; it also reports levels without an order.
type order struct {
	Open   *Group
	ID     int
	Query  time.Duration
	Stamp  bool
	Stamps bool
	Close  bool
}

// A report is a message of the child about a group.
type report struct {
	ID int
	// Level is the number of events that every connection of the group has received.
	Level uint64
	// Answer is set if the report answers an order.
	Answer    bool
	Answers   uint64
	Took      time.Duration
	Stamps    [][]int64
	Processor time.Duration
	Failed    string
}

// Readers is a child process that reads the connections of clients.
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

// NewReaders starts the child, which ends with the benchmark.
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

// Open opens connections and returns when each has the head of its answer, except for connections that query or wait.
func (r *Readers) Open(g Group) *Connections {
	c := &Connections{readers: r, id: len(r.groups), Group: g}
	c.moved.L = &c.mu
	r.mu.Lock()
	r.groups = append(r.groups, c)
	r.mu.Unlock()
	r.order(order{Open: &g, ID: c.id})
	return c
}

// Processor returns the processor time of the readers so far.
func (r *Readers) Processor() time.Duration { return r.order(order{Stamps: true, ID: -1}).Processor }

func (c *Connections) advance(level uint64, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level, c.lost = max(c.level, level), errors.Join(c.lost, lost)
	c.moved.Broadcast()
}

// Level returns the number of events that every connection has received.
func (c *Connections) Level() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

// Lost returns the reason if connections were lost.
func (c *Connections) Lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Await waits until every connection has received a number of events.
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

// Query makes the group send requests for about d, and returns the number of answers and the time.
func (c *Connections) Query(d time.Duration) (answers float64, took time.Duration) {
	m := c.readers.order(order{ID: c.id, Query: d})
	return float64(m.Answers), m.Took
}

// Stamp starts recording when each connection receives each event or, for connections that query, how long each request takes.
func (c *Connections) Stamp() { c.readers.order(order{ID: c.id, Stamp: true}) }

// Stamps ends the recording and returns it, by connection: times in nanoseconds since the Unix epoch, or durations of requests.
func (c *Connections) Stamps() [][]int64 {
	return c.readers.order(order{ID: c.id, Stamps: true}).Stamps
}

// Close closes the connections.
func (c *Connections) Close() { c.readers.order(order{ID: c.id, Close: true}) }
