package http_test

import (
	"cmp"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http/server"
)

// What decisions (section 2) give each role, written down a second time: what the platform uses must agree with it.
var roleCapabilities = map[string][]string{
	"owner":  strings.Fields("admin files:read files:write memory sessions agents services integrations apps share publish members"),
	"editor": strings.Fields("files:read files:write memory sessions agents services integrations apps share publish members"),
	"viewer": strings.Fields("files:read sessions apps"),
}

// visitor is one column of the matrix: a credential in a state.
type visitor struct {
	name string
	// role is that of the person behind it in the workspace; empty: none.
	role string
	// human credentials are a person's own identity.
	human bool
	// void credentials open nothing.
	void bool
	// granted, where not nil, is what an app or OAuth client was granted.
	granted []string
	// suspended has the workspace suspended.
	suspended bool
	// impersonated credentials may not change how their person gets in.
	impersonated bool
	credential   func(*scene) headers
}

type headers map[string]string

var visitors = []visitor{
	{name: "nobody", void: true, credential: func(*scene) headers { return nil }},
	{name: "a malformed key", void: true, credential: func(*scene) headers { return bearer("atl_nonsense") }},
	{name: "an unknown key", void: true, credential: (*scene).unknownKey},
	{name: "an expired key", void: true, credential: (*scene).expiredKey},
	{name: "a revoked key", void: true, credential: (*scene).revokedKey},
	{name: "a disabled owner", void: true, credential: (*scene).disabledKey},
	{name: "a session's key as a bearer", void: true, credential: (*scene).sessionAsBearer},
	{name: "outsider", human: true, credential: person("outsider")},
	{name: "owner", role: "owner", human: true, credential: person("owner")},
	{name: "editor", role: "editor", human: true, credential: person("editor")},
	{name: "viewer", role: "viewer", human: true, credential: person("viewer")},
	{name: "removed", human: true, credential: person("removed")},
	{name: "owner in a browser", role: "owner", human: true, credential: (*scene).cookie},
	{name: "owner, impersonated", role: "owner", human: true, impersonated: true, credential: (*scene).impersonation},
	{name: "owner, suspended", role: "owner", human: true, suspended: true, credential: person("owner")},
	{name: "editor, suspended", role: "editor", human: true, suspended: true, credential: person("editor")},
	{name: "app with everything", role: "owner", granted: without("admin"), credential: app("owner", everything...)},
	{name: "app with files:read", role: "owner", granted: []string{"files:read"}, credential: app("owner", "files:read")},
	{name: "app of a viewer", role: "viewer", granted: without("admin"), credential: app("viewer", everything...)},
	{name: "app with nothing", role: "owner", granted: []string{}, credential: app("owner")},
	{name: "app of another workspace", credential: (*scene).foreignApp},
	{name: "oauth with everything", role: "owner", granted: everything, credential: oauth("owner", everything...)},
	{name: "oauth with members", role: "owner", granted: []string{"members"}, credential: oauth("owner", "members")},
	{name: "oauth with files:read", role: "editor", granted: []string{"files:read"}, credential: oauth("editor", "files:read")},
	{name: "oauth with nothing of use", role: "owner", granted: []string{"memory"}, credential: oauth("owner", "memory")},
	{name: "oauth of a viewer", role: "viewer", granted: everything, credential: oauth("viewer", everything...)},
	{name: "revoked oauth", void: true, credential: (*scene).revokedGrant},
	{name: "oauth for another resource", void: true, credential: (*scene).foreignGrant},
	{name: "computer", role: "editor", credential: (*scene).computer},
	{name: "another's computer", credential: (*scene).foreignComputer},
}

var everything = roleCapabilities["owner"]

func without(capability string) []string {
	return slices.DeleteFunc(slices.Clone(everything), func(c string) bool { return c == capability })
}

// verdict is what the specification and decisions say of a visitor and an operation: 0 lets in.
func verdict(v visitor, r server.Route) (status int, code string) {
	need, inWorkspace := needOf(r.Scope)
	switch {
	case v.void && isPage(r):
		return 303, "/sign-in"
	case v.void:
		return 401, "unauthorized"
	case r.Scope == "human" && !v.human, humansOnly[operationOf(r)] && !v.human:
		return 403, "forbidden"
	case v.impersonated && refusedToImpersonation[operationOf(r)]:
		return 403, "forbidden"
	case !inWorkspace:
		return 0, ""
	case v.role == "":
		return 404, "not_found"
	case len(need) > 0 && !slices.ContainsFunc(need, v.has):
		return 403, "forbidden"
	case !changes(r.Method):
		return 0, ""
	case v.role == "viewer":
		return 403, "forbidden"
	case v.suspended && !strings.HasSuffix(r.Path, "/admin/suspension"):
		return 403, "workspace_suspended"
	}
	return 0, ""
}

func (v visitor) has(capability string) bool {
	granted := v.granted == nil || slices.Contains(v.granted, capability)
	return granted && slices.Contains(roleCapabilities[v.role], capability)
}

func needOf(scope server.Scope) (need []string, inWorkspace bool) {
	for one := range strings.SplitSeq(string(scope), " or ") {
		if capability, ok := strings.CutPrefix(one, "ws:{workspaceSlug}:"); ok {
			need = append(need, capability)
		}
	}
	return need, len(need) > 0 || scope == "workspace_member"
}

func changes(method string) bool {
	return !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PROPFIND"}, method)
}

func isPage(r server.Route) bool { return !strings.HasPrefix(r.Path, "/v1/") }

func operationOf(r server.Route) string { return r.Method + " " + r.Path }

// humansOnly are operations of the scope api_key that only a whole person can use: what they make belongs to one.
var humansOnly = map[string]bool{"POST /v1/workspaces": true}

// outlives are what an impersonation is refused, since it would outlive it.
var refusedToImpersonation = map[string]bool{
	"POST /v1/user/api-keys": true, "POST /account/sessions/{sessionId}/end": true, "POST /account/keys": true, "POST /account/password": true,
}

// TestAccess walks every operation of the table with every visitor. An operation that it has no request for fails it.
func TestAccess(t *testing.T) { checkAccess(t, newBoundary(t)) }

// TestAccessInSplitMode checks the same while partitions move between two actor systems.
func TestAccessInSplitMode(t *testing.T) { checkAccess(t, newBoundaryOn(t, newSplitStage(t))) }

func checkAccess(t *testing.T, b *boundary) {
	t.Helper()
	table := b.stage.node.Server.Routes()
	slices.SortStableFunc(table, func(a, b server.Route) int { // a person of many workspaces is told of in each
		return cmp.Compare(len(a.Scope), len(b.Scope))
	})
	for _, r := range table {
		operation := operationOf(r)
		if r.Scope == "public" || r.Scope == "probe" {
			continue // anybody's
		}
		made, known := requests[operation]
		if !known {
			t.Errorf("%s is not known: say in requests how it is asked", operation)
			continue
		}
		t.Run(operation, func(t *testing.T) {
			for _, v := range visitors {
				b.visit(t, r, made, v)
			}
		})
	}
	for operation := range requests {
		if !slices.ContainsFunc(table, func(r server.Route) bool { return operationOf(r) == operation }) {
			t.Errorf("%s is no operation", operation)
		}
	}
}

// visit sends a request that is right, and where the operation takes a body one that is not, which nobody may be told
// who is not let in.
func (b *boundary) visit(t *testing.T, r server.Route, made func(*scene) exampleRequest, v visitor) {
	status, code := verdict(v, r)
	_, inWorkspace := needOf(r.Scope)
	sc := b.scene(t, v, inWorkspace && status == 0 && changes(r.Method))
	in := made(sc)
	credential := v.credential(sc)
	name := fmt.Sprintf("%s as %s", operationOf(r), v.name)
	if strings.HasPrefix(in.body, "{") {
		for _, wrong := range []string{"{", `{"unknown":1}`} {
			got := sc.send(r, in, credential, wrong)
			if status != 0 {
				sc.refused(t, name+", with "+wrong, r, got, status, code)
			} else if got.Code != nethttp.StatusBadRequest {
				t.Errorf("%s, with %s: %d %s, want 400", name, wrong, got.Code, got.Body)
			}
		}
	}
	got := sc.send(r, in, credential, in.body)
	switch {
	case status == 0 && got.Code >= 400 && (in.refusal == "" || !strings.Contains(got.Body.String(), in.refusal)):
		t.Errorf("%s: %d %s, want it to be let in", name, got.Code, got.Body)
	case status != 0:
		sc.refused(t, name, r, got, status, code)
	}
}
