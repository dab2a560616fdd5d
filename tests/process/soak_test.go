package process

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/testmachine"
)

var (
	soakTime = flag.Duration("soak", 0, "how long TestSoak works without the attacks, and as long beside the attacks; 0: a sample of "+
		"few rounds beside a tenth of the attacks")
	soakAttacks = flag.String("soak-attacks", "", "a regular expression of the names of the attacks of TestSoak; empty: all")
)

const (
	// soakMemory is the memory limit of the Go runtime of the node of TestSoak.
	soakMemory = 512 << 20
	// sampleRounds is the number of rounds of each tenant beside the attacks if there is no time.
	sampleRounds = 3
)

// TestSoak has a hostile tenant, a hostile app and a stranger attack a small node with default limits in every way at once, while three
// other tenants work. No request of these tenants fails, the node does not exit, and the resources that the attacks took are free after
// them.
func TestSoak(t *testing.T) {
	requireRoot(t)
	place.Take(t)
	s := newSoak(t)
	s.follow()
	alone := s.work("alone")
	m := s.newMallory()
	divisor := 1
	if *soakTime == 0 {
		divisor = 10
	}
	end := m.attack(soakAttacksOf(*soakAttacks, *soakTime == 0), divisor)
	beside := s.work("beside the attacks")
	end()
	s.report(alone, beside)
	m.report()
	s.expectRows()
	s.expectMemory()
	m.leave()
	s.expectFree()
	if code := s.node.terminate(t); code != 0 {
		t.Errorf("exit %d\n%s", code, s.node.logs)
	}
	expectNothingLeft(t, s.node.dir)
}

// A soak is a node on a small volume with tenants who work.
type soak struct {
	*testing.T
	node    *node
	tenants []*soakTenant
	probe   *http.Client
	clients []*http.Client     // of the tenants and of the attacker
	free    map[string]float64 // by the names of budgets, before the attacks
	// sessions counts the turns of the tenants.
	sessions atomic.Int64
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	disk := testmachine.Volume(t, "size=1g")
	script := fmt.Sprintf(`ulimit -n 1024 && GOMEMLIMIT=%d exec "$@"`, soakMemory)
	n, err := launchBy([]string{"sh", "-c", script, "sh"}, filepath.Join(disk, "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	s := &soak{T: t, node: n, probe: clientFrom("127.0.0.10")}
	for i := range 3 {
		s.tenants = append(s.tenants, s.newTenant(fmt.Sprint("tenant-", i), fmt.Sprint("127.0.0.", 11+i)))
	}
	s.free = s.budgets()
	return s
}

// clientFrom returns an HTTP client with connections that come from an address.
func clientFrom(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
}

// client returns an HTTP client with connections that come from an address, until expectFree.
func (s *soak) client(address string) *http.Client {
	c := clientFrom(address)
	s.clients = append(s.clients, c)
	return c
}

// person creates a person and returns a client with the person's key. Its connections come from an address.
func (s *soak) person(name, address string, options ...api.Option) *api.Client {
	s.Helper()
	_, key := newPerson(s.T, s.node, name+"@example.org")
	c, err := api.New(s.node.address, key, append(options, api.WithHTTPClient(s.client(address)))...)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// workspace creates a workspace and waits until it is active.
func (s *soak) workspace(c *api.Client, slug string) {
	s.Helper()
	if _, err := c.CreateWorkspace(s.Context(), api.NewWorkspace{Slug: slug, Name: slug}); err != nil {
		s.Fatal(err)
	}
	eventually(s.T, "the workspace "+slug+" is active", func() bool {
		self, err := c.Whoami(s.Context())
		return err == nil && len(self.Workspaces) == 1 && self.Workspaces[0].Status == "active"
	})
}

// work has each tenant repeat the work for soakTime, or sampleRounds times.
func (s *soak) work(name string) map[string]*soakTimes {
	s.Helper()
	times := map[string]*soakTimes{}
	for _, kind := range soakSteps {
		times[kind.name] = &soakTimes{}
	}
	end := time.Now().Add(*soakTime)
	var working sync.WaitGroup
	for _, tenant := range s.tenants {
		working.Go(func() {
			for round := 0; time.Now().Before(end) || *soakTime == 0 && round < sampleRounds; round++ {
				for _, step := range soakSteps {
					began := time.Now()
					if err := step.run(tenant, s.Context()); err != nil {
						s.Errorf("%s, %s, %s of round %d: %v", tenant.slug, name, step.name, round, err)
						return
					}
					times[step.name].add(time.Since(began))
				}
			}
		})
	}
	working.Wait()
	return times
}

// follow has each tenant read the stream of the workspace until the end of the test.
func (s *soak) follow() {
	for _, tenant := range s.tenants {
		tenant.followed = make(chan struct{})
		go tenant.follow(s.Context())
	}
}

// expectRows expects that each tenant's stream delivers one row for each change, in order.
func (s *soak) expectRows() {
	s.Helper()
	for _, tenant := range s.tenants {
		if err := tenant.put(s.Context(), lastFile); err != nil {
			s.Errorf("%s: %v", tenant.slug, err)
			continue
		}
		wait(s.T, tenant.followed, "the stream of "+tenant.slug+" delivers the last row")
		if tenant.streamErr != nil {
			s.Errorf("the stream of %s: %v", tenant.slug, tenant.streamErr)
		}
	}
}

// report logs how long the requests took.
func (s *soak) report(alone, beside map[string]*soakTimes) {
	for _, step := range soakSteps {
		a, b := alone[step.name], beside[step.name]
		s.Logf("%-8s alone: %s; beside the attacks: %s; p99 × %.1f", step.name, a, b, b.quantile(0.99).Seconds()/a.quantile(0.99).Seconds())
	}
}

// expectMemory expects that the peak of the node's memory is below twice the limit of the Go runtime.
func (s *soak) expectMemory() {
	s.Helper()
	peak, err := peakMemory(s.node.command.Process.Pid)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("the peak of the node's memory is %d MiB, with GOMEMLIMIT=%dMiB", peak>>10, soakMemory>>20)
	if peak<<10 > 2*soakMemory {
		s.Errorf("the peak of the node's memory is %d MiB", peak>>10)
	}
}

// soakBudgets are the metrics of the use by requests, processes and connections, and of the files that the journal keeps.
var soakBudgets = regexp.MustCompile(`(?m)^(atelier_limit_used_slots\{[^}]*\}|atelier_computer_processes\{[^}]*\}|atelier_journal_reserve_files|atelier_journal_disk_full) (\S+)$`)

// budgets returns the used budgets by name.
func (s *soak) budgets() map[string]float64 {
	response, err := s.probe.Get(s.node.address + "/metrics")
	if err != nil {
		s.Log(err)
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Log(err)
		return nil
	}
	used := map[string]float64{}
	for _, match := range soakBudgets.FindAllStringSubmatch(string(text), -1) {
		used[match[1]], _ = strconv.ParseFloat(match[2], 64) // the format of metrics has numbers
	}
	return used
}

// expectFree expects that each budget returns to its start.
func (s *soak) expectFree() {
	s.Helper()
	var taken []string
	defer func() {
		if len(taken) > 0 {
			s.Error(strings.Join(taken, "\n"))
		}
	}()
	for _, c := range s.clients {
		c.CloseIdleConnections() // the node keeps them for minutes
	}
	// The agents of the tenants' last turns are idle for minutes.
	s.free[`atelier_computer_processes{kind="session"}`] += float64(s.sessions.Load())
	eventually(s.T, "what the attacks took is free", func() bool {
		now := s.budgets()
		taken = nil
		for name, before := range s.free {
			if got, is := now[name]; !is || got > before && name != "atelier_journal_reserve_files" || got < before && name == "atelier_journal_reserve_files" {
				taken = append(taken, fmt.Sprintf("%s is %v, and was %v before the attacks", name, got, before))
			}
		}
		return len(taken) == 0
	})
}
