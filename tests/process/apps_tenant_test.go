package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// An appView has the fields of an app that the test reads.
type appView struct {
	ID, Slug, Name, AnchorPath, Command, RuntimeStatus, ReconciliationError string

	APIScopes    []string
	Port         uint32
	DisabledAt   int64
	CustomDomain *struct{ Hostname, Status string }
	// Controls has the rights of the owner of the workspace: with an app that is being removed, only to repeat the removal.
	Controls struct{ MakePrivate bool }
}

// A tenant has at most one app at a time, which only it changes. It competes with the others for names and ports.
type tenant struct {
	t      *testing.T
	world  *appWorld
	number int
	space  string
	random *rand.Rand
	client *client
	made   int
	// app is the app as the node has acknowledged it; nil: none.
	app *model
	// next is the request that was sent and not answered; it is repeated until it is.
	next *appRequest
	// mustRead is set after a restart, and when the outcome of a removal is unknown: the app is compared before the next request.
	mustRead bool
	// retired has the keys of apps from before they were disabled or removed.
	retired []string
	changes int
	answers map[string]int
}

// A model is the state of an app as its client knows it.
type model struct {
	// id is empty until a registration is answered.
	id, slug, folder, name string
	// runtimes has the last accepted configuration, and the configurations that were requested since. The app shows one of them.
	runtimes []runtime
	// disabled and domain are the acknowledged state. keys has the keys that the processes of the app had.
	disabled bool
	domain   string
	keys     []string
}

type runtime struct {
	Command   string   `json:"command"`
	Port      uint32   `json:"port"`
	APIScopes []string `json:"apiScopes"`
}

func (a runtime) equals(b runtime) bool {
	return a.Command == b.Command && a.Port == b.Port && slices.Equal(a.APIScopes, b.APIScopes)
}

// An appRequest is a request of a tenant.
type appRequest struct {
	method, path string
	body         []byte
	// refusals are the errors that other tenants, or earlier requests, can cause. Such an answer changes nothing.
	refusals []string
	// apply changes the model as a successful answer does.
	apply func(m *model)
	// runtime is the requested configuration; nil: none.
	runtime *runtime
	// registers and removes mark a registration and a removal. revokes marks a request that ends the keys so far.
	registers *model
	removes   bool
	revokes   bool
}

func newTenant(w *appWorld, number int) *tenant {
	return &tenant{
		t: w.t, world: w, number: number, space: appSpaces[number%len(appSpaces)], random: rand.New(rand.NewPCG(*seed, uint64(200+number))),
		answers: map[string]int{},
	}
}

func (p *tenant) work(ctx context.Context) {
	p.world.site.runSteps(ctx, func(address string) {
		if p.client != nil {
			p.client.close()
		}
		p.client, p.mustRead = newClient(address, p.world.site.key), true
	}, func() bool { return p.step(ctx) })
}

// complete repeats the last request until it is answered, and uses a client from then on.
func (p *tenant) complete(c *client) {
	p.t.Helper()
	p.client, p.mustRead = c, true
	eventually(p.t, "the last request of a client is answered", func() bool {
		return (p.next == nil && !p.mustRead || p.step(p.t.Context())) && p.next == nil && !p.mustRead
	})
}

// step compares the app after a restart, or sends the next request or repeats it. It returns false if the node has not answered, or
// ctx has ended.
func (p *tenant) step(ctx context.Context) bool {
	_, generation := p.world.site.current()
	if p.mustRead {
		if !p.read(ctx) {
			return p.world.site.waitForRetry(ctx, generation) // the node has not answered, or not yet
		}
		p.mustRead = false
		return true
	}
	if p.next == nil {
		p.next = p.choose()
	}
	if p.app != nil && p.next.revokes && !p.noteKey(ctx) {
		return false
	}
	status, answer, err := p.client.do(ctx, p.next.method, p.next.path, p.next.body, "Content-Type", "application/json")
	if err != nil {
		return false
	}
	var refusal struct{ Error, Message string }
	if status >= 400 {
		_ = json.Unmarshal(answer, &refusal) // an answer without JSON has no error
	}
	p.answers[strings.TrimSpace(fmt.Sprint(p.next.method, " ", status, " ", refusal.Error))]++
	switch {
	case status == http.StatusBadGateway && refusal.Error == "reconcile_failed" && !p.next.removes:
		// The app has the change, except that its last accepted configuration runs on.
		p.succeed(answer, false)
	case status >= 500 || status == http.StatusTooManyRequests:
		p.mustRead = p.next.removes && p.sharesNames()
		return p.world.site.waitForRetry(ctx, generation)
	case status < 300:
		p.succeed(answer, true)
		return p.finish(ctx)
	case p.next.registers != nil && refusal.Error == "slug_taken":
		return p.adopt(ctx)
	case !slices.Contains(p.next.refusals, refusal.Error):
		p.t.Errorf("%s %s: %d %s", p.next.method, p.next.path, status, answer)
	}
	return p.finish(ctx)
}

// finish ends the request after its answer was applied. It returns false if the node does not answer.
func (p *tenant) finish(ctx context.Context) bool {
	isAnswered := p.verifyRetired(ctx)
	p.next = nil
	if isAnswered {
		p.world.site.acknowledge()
	}
	return isAnswered
}

// sharesNames reports whether another tenant may register an app with the slug or the folder of the app once the app is removed.
func (p *tenant) sharesNames() bool { return p.app.slug != p.ownName() || p.app.folder != p.ownName() }

// succeed applies a successful answer to the model. isAccepted reports whether a requested configuration can have been accepted.
func (p *tenant) succeed(answer []byte, isAccepted bool) {
	p.changes++
	var shown struct{ App appView }
	if p.next.registers != nil {
		p.app = p.next.registers
	}
	if p.next.apply != nil {
		p.next.apply(p.app)
	}
	if p.next.revokes {
		p.retired = append(p.retired, p.app.keys...)
		p.app.keys = nil
	}
	if p.next.removes {
		p.app = nil
		return
	}
	if strings.HasSuffix(p.next.path, "/domain") {
		return // the answer is the domain
	}
	if p.next.runtime != nil {
		p.app.runtimes = append(p.app.runtimes, *p.next.runtime)
	}
	if err := json.Unmarshal(answer, &shown); err != nil || shown.App.ID == "" {
		p.t.Errorf("%s %s: %s", p.next.method, p.next.path, answer)
		return
	}
	if r := p.next.runtime; r != nil && isAccepted && shown.App.RuntimeStatus == "reconciled" && !shown.App.runtime().equals(*r) {
		p.t.Errorf("%s %s has accepted %+v and shows %+v", p.next.method, p.next.path, *r, shown.App.runtime())
	}
	if p.next.registers != nil {
		p.app.id = shown.App.ID
	}
	p.compare(shown.App)
}

func (v appView) runtime() runtime { return runtime{v.Command, v.Port, v.APIScopes} }

// adopt decides a registration with a taken slug: the slug was taken by the tenant's own request before, without an answer, or by
// another app.
func (p *tenant) adopt(ctx context.Context) bool {
	status, answer, err := p.client.do(ctx, http.MethodGet, p.ownPath(p.next.registers, ""), nil)
	if err != nil || status >= 500 || status == http.StatusTooManyRequests {
		return false
	}
	var shown struct{ App appView }
	if status == http.StatusOK && json.Unmarshal(answer, &shown) == nil && shown.App.Name == p.next.registers.name {
		p.succeed(answer, false)
	}
	p.next = nil
	return true
}

// read compares the app with the model. A removal with an unknown outcome is complete when the slug has no app any more, or the app of
// another tenant. The removal is repeated only if the node has not begun it: a later request would remove the app that another tenant has
// registered with the slug meanwhile. read returns false if the node does not answer, or still removes the app.
func (p *tenant) read(ctx context.Context) bool {
	if p.app == nil {
		return true
	}
	status, answer, err := p.client.do(ctx, http.MethodGet, p.ownPath(p.app, ""), nil)
	var shown struct{ App appView }
	removes := p.next != nil && p.next.removes
	switch {
	case err != nil, status >= 500, status == http.StatusTooManyRequests:
		return false
	case status == http.StatusOK && json.Unmarshal(answer, &shown) != nil, status != http.StatusOK && (status != http.StatusNotFound || !removes):
		p.t.Errorf("%s: %d %s", p.ownPath(p.app, ""), status, answer)
		return true
	case removes && shown.App.ID != p.app.id: // without an app, the id is empty
		p.succeed(nil, false)
		return p.finish(ctx)
	case removes && !shown.App.Controls.MakePrivate && p.sharesNames():
		return false
	}
	p.compare(shown.App)
	return true
}

// compare fails the test if an app is neither as it was acknowledged nor as the request would make it that was not answered.
func (p *tenant) compare(v appView) {
	p.t.Helper()
	problem := p.app.difference(v)
	if problem != "" && p.next != nil && p.next.registers == nil {
		after := *p.app
		if p.next.apply != nil {
			p.next.apply(&after)
		}
		if p.next.runtime != nil {
			after.runtimes = append(slices.Clone(after.runtimes), *p.next.runtime)
		}
		if after.difference(v) == "" {
			return
		}
	}
	if problem != "" {
		p.t.Errorf("%s/%s: %s", p.space, p.app.slug, problem)
	}
	if v.RuntimeStatus == "reconciled" && (p.next == nil || p.next.runtime == nil) {
		p.app.runtimes = []runtime{v.runtime()}
	}
}

// difference returns how an app differs from the model; empty if it does not.
func (m *model) difference(v appView) string {
	domain := ""
	if v.CustomDomain != nil && v.CustomDomain.Status != "removing" {
		domain = v.CustomDomain.Hostname
	}
	switch {
	case v.ID != m.id:
		return fmt.Sprintf("it is %s with the name %q, want %s with %q", v.ID, v.Name, m.id, m.name)
	case v.Slug != m.slug || v.AnchorPath != m.folder || v.Name != m.name:
		return fmt.Sprintf("it is %s in %s with the name %q, want %s in %s with %q", v.Slug, v.AnchorPath, v.Name, m.slug, m.folder, m.name)
	case (v.DisabledAt != 0) != m.disabled:
		return fmt.Sprintf("it is disabled: %t, want %t", v.DisabledAt != 0, m.disabled)
	case domain != m.domain:
		return fmt.Sprintf("its domain is %q, want %q", domain, m.domain)
	case !slices.ContainsFunc(m.runtimes, v.runtime().equals):
		return fmt.Sprintf("it has the configuration %+v, want one of %+v", v.runtime(), m.runtimes)
	}
	return ""
}

// noteKey reads the key of the process that runs now, which it has written into its folder. It returns false if the node does not
// answer.
func (p *tenant) noteKey(ctx context.Context) bool {
	status, answer, err := p.client.do(ctx, http.MethodGet, spacePath(p.space, "/drive/"+p.app.folder+"/key"), nil)
	if err != nil {
		return false
	}
	key := strings.TrimSpace(string(answer))
	if status == http.StatusOK && strings.HasPrefix(key, "atlapp_") && !slices.Contains(p.app.keys, key) {
		p.app.keys = append(p.app.keys, key)
	}
	return true
}

// verifyRetired fails the test if a key of a disabled or removed app is accepted. It returns false if the node does not answer; the
// keys are verified again later.
func (p *tenant) verifyRetired(ctx context.Context) bool {
	if !p.next.revokes {
		return true
	}
	for _, key := range p.retired {
		c := newClient(p.client.address, key)
		status, _, err := c.do(ctx, http.MethodGet, "/v1/whoami", nil)
		c.close()
		if err != nil {
			return false
		}
		if status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			p.t.Errorf("after %s %s a key of the app is answered with %d", p.next.method, p.next.path, status)
		}
	}
	return true
}
