package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	peopleCount = 200
	// initialWorkspaces is the number of workspaces with a group of people. A person belongs to two groups.
	initialWorkspaces = 5
)

// TestAdministrators lets two hundred people send conflicting changes to a few workspaces while the node is killed
// repeatedly. It then compares the workspaces and their audit logs with the responses that each person has received.
func TestAdministrators(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	scenario := newScenario(t)
	r := rand.New(rand.NewPCG(*seed, peopleCount))
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	for _, p := range scenario.people {
		working.Go(func() { p.work(work) })
	}
	for range *kills {
		scenario.site.waitForOperations(t, 500+r.IntN(1500))
		delay := time.NewTimer(time.Duration(r.IntN(int(200 * time.Millisecond))))
		<-delay.C
		scenario.site.restart(t)
	}
	scenario.site.waitForOperations(t, 500)
	stop()
	working.Wait()
	scenario.site.restart(t)
	scenario.verify(t)
}

// A scenario is a site with all people and their shared knowledge.
type scenario struct {
	site   *site
	people []*person
	byID   map[string]*person
	// spaces has the identities of the initial workspaces.
	spaces    []string
	directory *directory
}

// newScenario creates the people, each with a key, and the initial workspaces. The founders of the workspaces invite their groups.
func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := &site{
		dir: filepath.Join(t.TempDir(), "data"), restarted: make(chan struct{}), acknowledged: make(chan struct{}, 1024),
	}
	s.node = start(t, s.dir, killSettings...)
	w := &scenario{site: s, byID: map[string]*person{}, directory: newDirectory(t)}
	operators := operatorsOf(s.dir)
	defer operators.CloseIdleConnections()
	for i := range peopleCount {
		p := &person{scenario: w, number: i, random: rand.New(rand.NewPCG(*seed, uint64(i))), errorf: t.Errorf}
		p.email = fmt.Sprintf("person-%d@example.org", i)
		w.people = append(w.people, p)
	}
	w.concurrently(w.people, func(p *person) { p.register(t, operators) })
	for _, p := range w.people {
		w.byID[p.id] = p
	}
	founders := w.people[:initialWorkspaces]
	w.concurrently(founders, func(p *person) {
		for tries := 0; len(p.own) == 0 && tries < 100; tries++ { // another founder may take the slug first
			p.createWorkspace()
		}
	})
	for _, p := range founders {
		if len(p.own) == 0 {
			t.Fatalf("%s cannot create a workspace: %+v", p.email, p.requests)
		}
		w.spaces = append(w.spaces, p.own[0])
	}
	w.concurrently(founders, func(p *person) { p.inviteGroup() })
	w.concurrently(w.people, func(p *person) { p.acceptAll() })
	w.concurrently(founders, func(p *person) { p.promoteMembers() })
	return w
}

// concurrently calls do for each person, all at the same time, and waits.
func (s *scenario) concurrently(people []*person, do func(*person)) {
	var working sync.WaitGroup
	for _, p := range people {
		working.Go(func() { do(p) })
	}
	working.Wait()
}

// group returns the people who change an initial workspace.
func (s *scenario) group(space int) (people []*person) {
	for _, p := range s.people {
		if a, b := p.groups(); a == space || b == space {
			people = append(people, p)
		}
	}
	return people
}

// operatorsOf returns a client for the operators' socket. It limits its connections, because the kernel refuses
// connections when the socket's queue is full.
func operatorsOf(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 16,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "atelier.sock"))
		},
	}}
}

// register creates the person through the operators' socket.
func (p *person) register(t *testing.T, operators *http.Client) {
	body, _ := json.Marshal(map[string]string{"email": p.email, "name": fmt.Sprint("Person ", p.number)})
	answer, err := operators.Post("http://atelier/admin/users", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	var made struct{ UserID, Key string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || answer.StatusCode != http.StatusCreated {
		t.Errorf("creating %s: %s %v", p.email, answer.Status, err)
	}
	p.id = made.UserID
	p.client = newClient(p.scenario.site.node.address, made.Key)
}

// inviteGroup invites the founder's group to the founder's workspace.
func (p *person) inviteGroup() {
	for _, other := range p.scenario.group(p.number) {
		if other != p {
			p.invite(p.own[0], other, "editor")
		}
	}
}

// promoteMembers makes owners of a third of the founder's group.
func (p *person) promoteMembers() {
	for i, other := range p.scenario.group(p.number) {
		if other != p && i%3 == 0 {
			p.changeRole(p.own[0], other, "owner")
		}
	}
}
