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
	peopleAtWork = 200
	// Each person belongs to the circles of two of the spaces that were there from the start.
	spacesAtStart = 5
)

// TestAdministrators lets two hundred people administer a handful of workspaces against each other while the node is
// killed again and again, and then holds the workspaces and their audit logs against what each of them was told.
func TestAdministrators(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", *seed)
	town := settle(t)
	r := rand.New(rand.NewPCG(*seed, peopleAtWork))
	work, rest := context.WithCancel(t.Context())
	defer rest()
	var working sync.WaitGroup
	for _, p := range town.people {
		working.Go(func() { p.work(work) })
	}
	for range *kills {
		town.site.worked(t, 500+r.IntN(1500))
		instant := time.NewTimer(time.Duration(r.IntN(int(200 * time.Millisecond))))
		<-instant.C
		town.site.restart(t)
	}
	town.site.worked(t, 500)
	rest()
	working.Wait()
	town.site.restart(t)
	town.judge(t)
}

// town is all people and what they know in common.
type town struct {
	site   *site
	people []*person
	byID   map[string]*person
	// spaces are the identities of those that were there from the start.
	spaces []string
	signs  *signs
}

// settle makes the people, each with a key, and has a founder for each space invite its circle.
func settle(t *testing.T) *town {
	t.Helper()
	s := &site{
		dir: filepath.Join(t.TempDir(), "data"), begun: make(chan struct{}), acknowledged: make(chan struct{}, 1024),
	}
	s.node = start(t, s.dir, killSettings...)
	w := &town{site: s, byID: map[string]*person{}, signs: newSigns(t)}
	operators := operatorsOf(s.dir)
	defer operators.CloseIdleConnections()
	for i := range peopleAtWork {
		p := &person{town: w, number: i, random: rand.New(rand.NewPCG(*seed, uint64(i))), errorf: t.Errorf}
		p.email = fmt.Sprintf("person-%d@example.org", i)
		w.people = append(w.people, p)
	}
	w.together(w.people, func(p *person) { p.enrol(t, operators) })
	for _, p := range w.people {
		w.byID[p.id] = p
	}
	founders := w.people[:spacesAtStart]
	w.together(founders, func(p *person) {
		for tries := 0; len(p.own) == 0 && tries < 100; tries++ { // others are faster, at times
			p.found()
		}
	})
	for _, p := range founders {
		if len(p.own) == 0 {
			t.Fatalf("%s cannot found a space: %+v", p.email, p.told)
		}
		w.spaces = append(w.spaces, p.own[0])
	}
	w.together(founders, func(p *person) { p.gather() })
	w.together(w.people, func(p *person) { p.acceptAll() })
	w.together(founders, func(p *person) { p.promote() })
	return w
}

// together lets people do something at the same time.
func (w *town) together(people []*person, do func(*person)) {
	var working sync.WaitGroup
	for _, p := range people {
		working.Go(func() { do(p) })
	}
	working.Wait()
}

// circle are the people who contend for a space of the start.
func (w *town) circle(space int) (people []*person) {
	for _, p := range w.people {
		if a, b := p.circles(); a == space || b == space {
			people = append(people, p)
		}
	}
	return people
}

// operatorsOf speaks to the operators' socket. A system may let few connections wait at a time, and refuses more at once.
func operatorsOf(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 16,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "atelier.sock"))
		},
	}}
}

// enrol has the operators' socket make the person.
func (p *person) enrol(t *testing.T, operators *http.Client) {
	body, _ := json.Marshal(map[string]string{"email": p.email, "name": fmt.Sprint("Person ", p.number)})
	answer, err := operators.Post("http://atelier/admin/users", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	var made struct{ UserID, Key string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || answer.StatusCode != http.StatusCreated {
		t.Errorf("making %s: %s %v", p.email, answer.Status, err)
	}
	p.id = made.UserID
	p.client = newClient(p.town.site.node.address, made.Key)
}

// gather invites the founder's circle; promote makes owners of a third of it.
func (p *person) gather() {
	for _, other := range p.town.circle(p.number) {
		if other != p {
			p.invite(p.own[0], other, "editor")
		}
	}
}

func (p *person) promote() {
	for i, other := range p.town.circle(p.number) {
		if other != p && i%3 == 0 {
			p.changeRole(p.own[0], other, "owner")
		}
	}
}
