package apps

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/computer"
)

const (
	// maxMeasured is the maximum number of apps with an exported use of the machine, with a series for each app. The apps with the most memory
	// are exported.
	maxMeasured = 100
	// usageTimeout is the time in which the computers must return the use. usageQueries is the maximum number of computers that are queried at
	// the same time.
	usageTimeout = 2 * time.Second
	usageQueries = 8
)

// metrics has one series for all apps together, except for the use of the machine, which has series for the largest running apps.
type metrics struct {
	starts  *prometheus.CounterVec
	crashes prometheus.Counter
	ready   prometheus.Histogram
	apps    *prometheus.Desc
	// processor and memory are labeled with the workspace and the id of an app.
	processor, memory *prometheus.Desc
	// omitted counts the apps without exported use in a collection.
	omitted *prometheus.Desc
}

func newMetrics() *metrics {
	const space = "atelier_app_"
	return &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "starts_total", Help: "Starts of processes of apps: ready when they accept connections, or failed."}, []string{"result"}),
		crashes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: space + "crashes_total", Help: "Unexpected ends, and failed starts, of processes of apps that had been accepted."}),
		ready: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: space + "ready_seconds", Help: "Time from the start of a process of an app until it accepts connections.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 13)}),
		apps: prometheus.NewDesc(space+"running", "Apps that are to run, by state: ready, starting or failing.", []string{"state"}, nil),
		processor: prometheus.NewDesc(space+"cpu_seconds_total",
			"Processor time of the processes of an app since the first of them started, for the running apps with the most memory.",
			[]string{"workspace", "app"}, nil),
		memory: prometheus.NewDesc(space+"memory_bytes",
			"Memory of the processes of an app, for the running apps with the most memory.", []string{"workspace", "app"}, nil),
		omitted: prometheus.NewDesc(space+"usage_omitted",
			"Apps that are to run, and whose use of the machine is not exported: they have no process, their computer did not answer in time, or 100 apps use more memory.",
			nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (s *Supervisor) Describe(to chan<- *prometheus.Desc) {
	s.metrics.starts.Describe(to)
	s.metrics.crashes.Describe(to)
	s.metrics.ready.Describe(to)
	to <- s.metrics.apps
	to <- s.metrics.processor
	to <- s.metrics.memory
	to <- s.metrics.omitted
	s.logs.dropped.Describe(to)
}

// Collect implements prometheus.Collector.
func (s *Supervisor) Collect(to chan<- prometheus.Metric) {
	s.metrics.starts.Collect(to)
	s.metrics.crashes.Collect(to)
	s.metrics.ready.Collect(to)
	s.logs.dropped.Collect(to)
	count := map[string]int{"ready": 0, "starting": 0, "failing": 0}
	running := map[string][]string{}
	s.mu.Lock()
	for _, l := range s.running {
		running[l.workspaceID] = append(running[l.workspaceID], l.appID)
		l.mu.Lock()
		count[l.state.condition()]++
		l.mu.Unlock()
	}
	s.mu.Unlock()
	for state, n := range count {
		to <- prometheus.MustNewConstMetric(s.metrics.apps, prometheus.GaugeValue, float64(n), state)
	}
	s.collectUsage(to, running)
}

// A measured is an app with its use of the machine.
type measured struct {
	workspaceID, appID string
	computer.Usage
}

// collectUsage exports the use of the machine by the running apps. running has their ids by workspace.
func (s *Supervisor) collectUsage(to chan<- prometheus.Metric, running map[string][]string) {
	all, total := s.measure(running), 0
	for _, apps := range running {
		total += len(apps)
	}
	slices.SortFunc(all, func(a, b measured) int {
		return cmp.Or(cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(b.Processor, a.Processor), cmp.Compare(a.appID, b.appID))
	})
	all = all[:min(len(all), maxMeasured)]
	for _, app := range all {
		to <- prometheus.MustNewConstMetric(s.metrics.processor, prometheus.CounterValue, app.Processor.Seconds(), app.workspaceID, app.appID)
		to <- prometheus.MustNewConstMetric(s.metrics.memory, prometheus.GaugeValue, float64(app.MemoryBytes), app.workspaceID, app.appID)
	}
	to <- prometheus.MustNewConstMetric(s.metrics.omitted, prometheus.GaugeValue, float64(total-len(all)))
}

// measure queries the computers of workspaces for the use of the machine by apps. It omits apps without processes, and apps of computers that do
// not answer within usageTimeout.
func (s *Supervisor) measure(running map[string][]string) []measured {
	ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []measured
	var asking sync.WaitGroup
	slots := make(chan struct{}, usageQueries)
	for workspaceID, apps := range running {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			found, err := s.o.Computers.Usage(ctx, workspaceID)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, appID := range apps {
				i := slices.IndexFunc(found, func(of computer.Usage) bool { return of.Group == usageGroup(appID) && of.Processes > 0 })
				if i >= 0 {
					all = append(all, measured{workspaceID, appID, found[i]})
				}
			}
		})
	}
	asking.Wait()
	return all
}
