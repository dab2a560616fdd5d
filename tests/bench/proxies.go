package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Server is a process that serves on the loopback interface until the benchmark ends.
type Server struct {
	Address string
	pid     int
}

// App starts the process of an app.
func App(b testing.TB) Server { return startServer(b, "app") }

// Edge starts the process of an edge in front of one process, which stands for count apps: appN--acme.apps.test is the app N, and
// hN.custom.test one with that domain.
func Edge(b testing.TB, process Server, count int) Server {
	return startServer(b, fmt.Sprint("edge ", process.Address, " ", count))
}

// Bare starts the process of a httputil.ReverseProxy in front of a process.
func Bare(b testing.TB, process Server) Server { return startServer(b, "bare "+process.Address) }

func startServer(b testing.TB, part string) Server {
	in, out, wait := startChild(b, part)
	b.Cleanup(func() {
		in.Close()
		if err := wait(); err != nil {
			b.Error(err)
		}
	})
	var s Server
	if _, err := fmt.Fscanln(bufio.NewReader(out), &s.Address, &s.pid); err != nil {
		b.Fatalf("the server %q did not start: %v", part, err)
	}
	return s
}

// serveChild serves a part in a child process until in ends. It writes the address and the id of the process. BENCH_PROFILES may name a
// directory for its profile.
func serveChild(part string, arguments []string, in io.Reader, out io.Writer) (err error) {
	var h http.Handler
	switch part {
	case "app":
		h = newApp()
	case "bare":
		h = newBare(arguments[0])
	case "edge":
		count, err := strconv.Atoi(arguments[1])
		if err != nil {
			return err
		}
		e, err := newEdge(arguments[0], count)
		if err != nil {
			return err
		}
		defer e.Close()
		h = e
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if dir := os.Getenv("BENCH_PROFILES"); dir != "" {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.prof", part, os.Getpid())))
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	server := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, l.Addr(), os.Getpid()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	err = errors.Join(err, server.Close())
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// Processor returns the processor time that the process has used so far, or 0 if it has ended.
func (s Server) Processor() time.Duration {
	// The clock of a process (clock_getcpuclockid(3)): the inverted id, then two bits for the clock of the scheduler.
	var used unix.Timespec
	if unix.ClockGettime(int32(^s.pid<<3|2), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// Requesting returns a variant with clients that send requests to an address in turn over some connections, after each request was sent at
// least twice. Its connections stay open.
func (r *Readers) Requesting(name, address string, connections int, requests [][]byte) (Variant, *Connections) {
	c := r.Open(Group{Address: address, Connections: connections, Manner: Query, Requests: requests})
	for sent := 0.0; sent < 2*float64(len(requests)); {
		n, _ := c.Query(100 * time.Millisecond)
		sent += n
	}
	c.Stamp()
	return Variant{name, c.Query}, c
}

// Latencies returns the times below which half and 99 % of the requests were answered, of connections that query.
func (c *Connections) Latencies() (half, most time.Duration) {
	all := slices.Concat(c.Stamps()...)
	return time.Duration(Quantile(all, 0.5)), time.Duration(Quantile(all, 0.99))
}

// following returns a variant with clients that follow streams of events at a path of an app.
func (r *Readers) following(name, path string, through Server, connections int) Variant {
	return Variant{name, func(d time.Duration) (float64, time.Duration) {
		c := r.Open(Group{Address: through.Address, Connections: connections, Requests: [][]byte{AppRequest("app0--acme.apps.test", path)}})
		defer c.Close()
		first, began := c.Level(), time.Now()
		<-time.After(d)
		n, took := c.Level()-first, time.Since(began)
		if err := c.Lost(); err != nil {
			r.b.Fatal(err)
		}
		return float64(n) * float64(connections), took
	}}
}
