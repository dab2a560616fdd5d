package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// person administers workspaces, as far as the others let them.
type person struct {
	town   *town
	number int
	random *rand.Rand
	errorf func(format string, arguments ...any)

	id, email string
	client    *client
	life      int
	// own are spaces that the person has founded, and pays for.
	own  []string
	told []told
	// began is when the person first tried to accept an invitation.
	began map[string]int64
	made  int
	// suspended is the space that refused the last request for being suspended.
	suspended string
}

func (p *person) circles() (int, int) {
	return p.number % spacesAtStart, (p.number/spacesAtStart + 1) % spacesAtStart
}

// work goes on until the context ends, over the node's lives.
func (p *person) work(until context.Context) {
	for until.Err() == nil {
		if p.step() {
			continue
		}
		if !p.town.site.after(until, p.life) {
			break
		}
		p.reconnect()
		p.look()
	}
	p.client.close()
}

func (p *person) reconnect() {
	p.client.close()
	var address string
	address, p.life = p.town.site.current()
	p.client = newClient(address, p.client.key)
}

// step does one thing and tells whether the node answered.
func (p *person) step() bool {
	space, other := p.choose()
	if p.suspended != "" && p.random.IntN(2) == 0 {
		space, p.suspended = p.suspended, ""
		return p.resume(space)
	}
	switch n := p.random.IntN(100); {
	case n < 22:
		return p.changeRole(space, other, pick(p.random, "owner", "owner", "owner", "editor", "viewer"))
	case n < 29:
		return p.remove(space, other)
	case n < 50:
		return p.invite(space, other, pick(p.random, "editor", "editor", "viewer"))
	case n < 58:
		return p.revoke()
	case n < 78:
		return p.accept()
	case n < 83:
		return p.rename(space)
	case n < 84:
		return p.found()
	case n < 86:
		return p.suspend(space)
	case n < 93:
		return p.resume(space)
	case n < 98:
		return p.setModel(space, pick(p.random, "frontier", "balanced", "openai-max"))
	default:
		return p.look()
	}
}

func pick(r *rand.Rand, choices ...string) string { return choices[r.IntN(len(choices))] }

// choose gives a space that the person cares for, and somebody of its circle.
func (p *person) choose() (space string, other *person) {
	if len(p.own) > 0 && p.random.IntN(10) == 0 {
		return p.own[p.random.IntN(len(p.own))], p.town.people[p.random.IntN(peopleAtWork)]
	}
	circle, second := p.circles()
	if p.random.IntN(2) == 0 {
		circle = second
	}
	people := p.town.circle(circle)
	return p.town.spaces[circle], people[p.random.IntN(len(people))]
}

// answer is what came back.
type answer struct {
	outcome
	status int
	body   []byte
	lost   bool
}

func (a answer) read(into any) error { return json.Unmarshal(a.body, into) }

// ask sends a request. What is not answered within the patience of a test is lost.
func (p *person) ask(method, path string, in any) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var body []byte
	var headers []string
	if in != nil {
		body, _ = json.Marshal(in)
		headers = []string{"Content-Type", "application/json"}
	}
	status, content, err := p.client.do(ctx, method, path, body, headers...)
	a := answer{status: status, body: content}
	switch {
	case err != nil:
		a.outcome, a.lost = unknown, true
	case status >= http.StatusInternalServerError:
		a.outcome = unknown
	case status < http.StatusBadRequest:
		a.outcome = acknowledged
		p.town.site.acknowledge()
	case status != http.StatusForbidden && status != http.StatusNotFound && status != http.StatusConflict:
		p.errorf("%s %s: %d %s", method, path, status, content)
	}
	return a
}

// inSpace is ask below a space's path. A space that is not where the signs say is looked for with the next step.
func (p *person) inSpace(method, space, rest string, in any) answer {
	a := p.ask(method, "/v1/ws/"+p.town.signs.slug(space)+rest, in)
	p.note(space, a)
	return a
}

func (p *person) note(space string, a answer) {
	var refusal struct{ Error string }
	if a.status == http.StatusForbidden && a.read(&refusal) == nil && refusal.Error == "workspace_suspended" {
		p.suspended = space
	}
}

// attempt is what is about to be asked for.
func (p *person) attempt(event, space, target, value string) told {
	return told{deed: deed{event, p.id, space, target, value}, began: now()}
}

// learn takes down what became of an attempt, and tells whether the node answered.
func (p *person) learn(t told, a answer) bool {
	t.ended, t.outcome = now(), a.outcome
	p.told = append(p.told, t)
	return !a.lost
}

// expect has an answer that says that something was done say also what it should.
func (p *person) expect(a answer, right bool) {
	if a.outcome == acknowledged && !right {
		p.errorf("%s was answered %d %s", p.email, a.status, a.body)
	}
}

func (p *person) name() string {
	p.made++
	return fmt.Sprintf("%d of %d", p.made, p.number)
}
