package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// appScopes are sets of scopes between which apps change.
var appScopes = [][]string{{}, {"files:read"}, {"files:read", "memory"}}

func (p *tenant) ownPath(m *model, rest string) string {
	return spacePath(p.space, "/apps/"+m.slug+rest)
}

// choose returns the next request.
func (p *tenant) choose() *appRequest {
	p.made++
	if p.app == nil {
		return p.register()
	}
	switch n := p.random.IntN(20); {
	case n < 1:
		return &appRequest{method: http.MethodDelete, path: p.ownPath(p.app, ""), removes: true, revokes: true}
	case n < 4:
		name := p.uniqueName()
		return p.change(http.MethodPatch, "", map[string]any{"name": name}, func(m *model) { m.name = name })
	case n < 9:
		r := p.newRuntime()
		request := p.change(http.MethodPatch, "", r, nil)
		request.runtime, request.refusals = &r, []string{"port_in_use"}
		return request
	case n < 12:
		disable := !p.app.disabled
		request := p.change(http.MethodPut, "/disabled", map[string]any{"disabled": disable}, func(m *model) { m.disabled = disable })
		request.revokes = disable
		return request
	case n < 14 && !p.app.disabled:
		return p.change(http.MethodPost, "/restart", nil, nil)
	case n < 17 && p.app.domain == "":
		name := contestedHostname(p.random.IntN(contested))
		request := p.change(http.MethodPut, "/domain", map[string]any{"hostname": name}, func(m *model) { m.domain = name })
		// The domain that was removed before may still be cleaned up, on this app or on another.
		request.refusals = []string{"hostname_in_use", "domain_cleanup_pending"}
		return request
	case n < 17:
		request := p.change(http.MethodDelete, "/domain", nil, func(m *model) { m.domain = "" })
		return request
	default:
		return p.change(http.MethodPut, "/visibility", map[string]any{"visibility": []string{"folder", "public"}[p.random.IntN(2)]}, nil)
	}
}

func (p *tenant) change(method, rest string, body any, apply func(*model)) *appRequest {
	request := &appRequest{method: method, path: p.ownPath(p.app, rest), apply: apply}
	if body != nil {
		request.body = marshal(body)
	}
	return request
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// register returns the registration of an app. Its slug, folder and port are its own or contested.
func (p *tenant) register() *appRequest {
	m := &model{slug: p.ownName(), folder: p.ownName(), name: p.uniqueName()}
	if p.random.IntN(2) == 0 {
		m.slug = contestedSlug(p.random.IntN(contested))
	}
	if p.random.IntN(2) == 0 {
		m.folder = contestedFolder(p.random.IntN(contested))
	}
	r := p.newRuntime()
	m.runtimes = []runtime{r}
	request := &appRequest{
		method: http.MethodPost, path: spacePath(p.space, "/apps"), registers: m, refusals: []string{"path_in_use", "port_in_use"},
		body: marshal(struct {
			runtime
			Path string `json:"path"`
			Slug string `json:"slug"`
			Name string `json:"name"`
		}{r, m.folder, m.slug, m.name}),
	}
	return request
}

// ownName is the slug and the folder that the tenant shares with no other tenant.
func (p *tenant) ownName() string { return fmt.Sprint("own-", p.number) }

func (p *tenant) uniqueName() string { return fmt.Sprintf("app %d of %d", p.made, p.number) }

// newRuntime returns a random configuration. Its command serves the folder of the app with a file that names the command.
func (p *tenant) newRuntime() runtime {
	token := fmt.Sprintf("%d-%d", p.number, p.made)
	r := runtime{
		Command: fmt.Sprintf(`printf %s >token; printf %%s "$SERVICE_APP_API_KEY" >key; export %s; exec /.atelier/atelier site`, token, p.world.mark),
		Port:    firstOwnPort + uint32(p.number), APIScopes: slices.Clone(appScopes[p.random.IntN(len(appScopes))]),
	}
	if p.random.IntN(2) == 0 {
		r.Port = firstContestedPort + uint32(p.random.IntN(contested))
	}
	return r
}
