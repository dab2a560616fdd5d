package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// A person administers workspaces, as far as their role permits.
type person struct {
	scenario *scenario
	number   int
	random   *rand.Rand
	errorf   func(format string, arguments ...any)

	id, email string
	client    *client
	// own has the workspaces that the person has created and pays for.
	own      []string
	requests []request
	// began has the times of the first attempts to accept an invitation, by its id.
	began map[string]int64
	made  int
	// suspended is a workspace that has refused a request because it is suspended.
	suspended string
}

// groups returns the numbers of the two groups that the person belongs to.
func (p *person) groups() (int, int) {
	return p.number % initialWorkspaces, (p.number/initialWorkspaces + 1) % initialWorkspaces
}

// work sends requests until the context ends. It reconnects after each restart of the node.
func (p *person) work(until context.Context) {
	p.scenario.site.runSteps(until, func(address string) {
		p.connect(address)
		p.whoami()
	}, p.step)
	p.client.close()
}

func (p *person) connect(address string) {
	p.client.close()
	p.client = newClient(address, p.client.key)
}

// step sends a random request and reports whether the node has answered.
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
		return p.createWorkspace()
	case n < 86:
		return p.suspend(space)
	case n < 93:
		return p.resume(space)
	case n < 98:
		return p.setModel(space, pick(p.random, "frontier", "balanced", "openai-max"))
	default:
		return p.whoami()
	}
}

func pick(r *rand.Rand, choices ...string) string { return choices[r.IntN(len(choices))] }

// choose returns a random workspace of the person and a random person of its group.
func (p *person) choose() (space string, other *person) {
	if len(p.own) > 0 && p.random.IntN(10) == 0 {
		return p.own[p.random.IntN(len(p.own))], p.scenario.people[p.random.IntN(peopleCount)]
	}
	group, second := p.groups()
	if p.random.IntN(2) == 0 {
		group = second
	}
	people := p.scenario.group(group)
	return p.scenario.spaces[group], people[p.random.IntN(len(people))]
}

// An answer is the result of a request.
type answer struct {
	outcome
	status int
	body   []byte
	// lost is set if there was no response.
	lost bool
}

func (a answer) read(into any) error { return json.Unmarshal(a.body, into) }

// send sends a request and classifies the response. A request without a response within patience is lost.
func (p *person) send(method, path string, in any) answer {
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
		p.scenario.site.acknowledge()
	case status != http.StatusForbidden && status != http.StatusNotFound && status != http.StatusConflict:
		p.errorf("%s %s: %d %s", method, path, status, content)
	}
	return a
}

// sendTo is send for a path below a workspace's.
func (p *person) sendTo(method, space, rest string, in any) answer {
	a := p.send(method, "/v1/ws/"+p.scenario.directory.slug(space)+rest, in)
	p.note(space, a)
	return a
}

// note records a workspace that has refused a request because it is suspended.
func (p *person) note(space string, a answer) {
	var refusal struct{ Error string }
	if a.status == http.StatusForbidden && a.read(&refusal) == nil && refusal.Error == "workspace_suspended" {
		p.suspended = space
	}
}

// newRequest returns the record of a request that begins now.
func (p *person) newRequest(event, space, target, value string) request {
	return request{change: change{event, p.id, space, target, value}, began: now()}
}

// finish records the outcome of a request and reports whether the node has answered.
func (p *person) finish(t request, a answer) bool {
	t.ended, t.outcome = now(), a.outcome
	p.requests = append(p.requests, t)
	return !a.lost
}

// expect fails the test if a successful response has the wrong content.
func (p *person) expect(a answer, right bool) {
	if a.outcome == acknowledged && !right {
		p.errorf("%s got a wrong response: %d %s", p.email, a.status, a.body)
	}
}

func (p *person) name() string {
	p.made++
	return fmt.Sprintf("%d of %d", p.made, p.number)
}
