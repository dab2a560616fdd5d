package server

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/atelier-run/atelier/limit"
)

// gatherings is how often the metrics are gathered: once a second under load. Some gatherings may be saved up, so that ordinary requests do
// not wait.
var gatherings = limit.Allowance{Burst: 20, Interval: time.Second}

// maxGatheringWaits is the number of requests that wait for a gathering, which leaves slots of probes to others.
const maxGatheringWaits = 16

// An exposition answers requests for the metrics. Gathering and encoding them takes several milliseconds of a processor, so that requests
// that arrive before a gathering begins share it, and under load there is one a second. Each request that waits for its gathering
// therefore gets metrics from after its arrival. When many wait, further requests get the metrics of the last gathering, which are
// about a second old.
type exposition struct {
	encode http.Handler
	budget limit.Bucket
	// turn is full during a gathering, and while the next one waits for its time.
	turn chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// next is the gathering that has not begun; nil: no request waits for one. waiting is the number of requests that wait, and last the
	// last gathering that succeeded.
	next, last *gathering
	waiting    int
}

// A gathering is the metrics at one time, in the text format of Prometheus. The fields are set when done is closed.
type gathering struct {
	done    chan struct{}
	status  int
	header  http.Header
	content bytes.Buffer
}

func newExposition(g prometheus.Gatherer) *exposition {
	return &exposition{turn: make(chan struct{}, 1), encode: promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, DisableCompression: true, // which costs more than it saves on the way to a neighbour
	})}
}

func (e *exposition) serve(c *Call) error {
	if _, err := Nothing(c); err != nil {
		return err
	}
	g, err := e.await(c)
	if err != nil {
		return err
	}
	if g.status != http.StatusOK {
		return fmt.Errorf("gathering the metrics: %s", g.content.String())
	}
	c.Response.Header().Set("Content-Type", g.header.Get("Content-Type"))
	_, err = c.Response.Write(g.content.Bytes())
	return err
}

// await returns the gathering for a request. Errors: the errors of the request's context.
func (e *exposition) await(c *Call) (*gathering, error) {
	e.mu.Lock()
	if e.waiting >= maxGatheringWaits && e.last != nil {
		defer e.mu.Unlock()
		return e.last, nil
	}
	g := e.next
	isFirst := g == nil
	if isFirst {
		g = &gathering{done: make(chan struct{}), header: http.Header{}}
		e.next = g
	}
	e.waiting++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.waiting--
		e.mu.Unlock()
	}()
	if isFirst {
		e.gather(g)
	}
	select {
	case <-g.done:
		return g, nil
	case <-c.Context.Done():
		return nil, c.Context.Err()
	}
}

// gather gathers the metrics when it is time to. The first request of a gathering does so for all, whatever becomes of its client.
func (e *exposition) gather(g *gathering) {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	for {
		wait := e.budget.Take(time.Now(), gatherings)
		if wait == 0 {
			break
		}
		time.Sleep(wait)
	}
	e.mu.Lock()
	e.next = nil // requests from now on need a later gathering
	e.mu.Unlock()
	defer close(g.done) // also after a panic of a collector
	plain := &http.Request{Method: http.MethodGet, Header: http.Header{}}
	e.encode.ServeHTTP(g, plain)
	if g.status == 0 {
		g.status = http.StatusOK
	}
	if g.status == http.StatusOK {
		e.mu.Lock()
		e.last = g
		e.mu.Unlock()
	}
}

// Header implements http.ResponseWriter, as do WriteHeader and Write.
func (g *gathering) Header() http.Header { return g.header }

// WriteHeader keeps the status.
func (g *gathering) WriteHeader(status int) { g.status = status }

func (g *gathering) Write(p []byte) (int, error) { return g.content.Write(p) }
