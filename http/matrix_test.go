package http_test

import (
	"cmp"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/tests/race"
)

// roleCapabilities is a second copy of the capabilities of each role (section 2 of the decisions): the platform's table must
// agree with it.
var roleCapabilities = map[string][]string{
	"owner":  strings.Fields("admin files:read files:write memory sessions agents services integrations apps share publish members"),
	"editor": strings.Fields("files:read files:write memory sessions agents services integrations apps share publish members"),
	"viewer": strings.Fields("files:read sessions apps"),
}

// visitor is a column of the matrix: a credential in a state.
type visitor struct {
	name string
	// role is the role of the account behind the credential in the workspace; "": it is not a member.
	role string
	// isHuman: the credential is a person's own identity.
	isHuman bool
	// isInvalid: the credential is missing, unknown, expired or revoked.
	isInvalid bool
	// granted are the capabilities granted to an app, an OAuth client or a limited key; nil: all.
	granted []string
	// isReadOnly: the credential is a limited key that only reads.
	isReadOnly bool
	// isSuspended: the workspace is suspended.
	isSuspended bool
	// isBrowser: the credential is a session cookie.
	isBrowser bool
	// isImpersonated: the credential may not change how its person signs in.
	isImpersonated bool
	credential     func(*scene) headers
}

type headers map[string]string

var visitors = []visitor{
	{name: "nobody", isInvalid: true, credential: func(*scene) headers { return nil }},
	{name: "a malformed key", isInvalid: true, credential: func(*scene) headers { return bearer("atl_nonsense") }},
	{name: "an unknown key", isInvalid: true, credential: (*scene).unknownKey},
	{name: "an expired key", isInvalid: true, credential: (*scene).expiredKey},
	{name: "a revoked key", isInvalid: true, credential: (*scene).revokedKey},
	{name: "a disabled owner", isInvalid: true, credential: (*scene).disabledKey},
	{name: "a session's key as a bearer", isInvalid: true, credential: (*scene).sessionAsBearer},
	{name: "outsider", isHuman: true, credential: person("outsider")},
	{name: "owner", role: "owner", isHuman: true, credential: person("owner")},
	{name: "editor", role: "editor", isHuman: true, credential: person("editor")},
	{name: "viewer", role: "viewer", isHuman: true, credential: person("viewer")},
	{name: "removed", isHuman: true, credential: person("removed")},
	{name: "owner in a browser", role: "owner", isHuman: true, isBrowser: true, credential: (*scene).cookie},
	{name: "owner, impersonated", role: "owner", isHuman: true, isImpersonated: true, credential: (*scene).impersonation},
	{name: "owner, suspended", role: "owner", isHuman: true, isSuspended: true, credential: person("owner")},
	{name: "editor, suspended", role: "editor", isHuman: true, isSuspended: true, credential: person("editor")},
	{name: "app with everything", role: "owner", granted: without("admin"), credential: appKey("owner", everything...)},
	{name: "app with files:read", role: "owner", granted: []string{"files:read"}, credential: appKey("owner", "files:read")},
	{name: "app of a viewer", role: "viewer", granted: without("admin"), credential: appKey("viewer", everything...)},
	{name: "app with nothing", role: "owner", granted: []string{}, credential: appKey("owner")},
	{name: "app of another workspace", credential: (*scene).foreignApp},
	{name: "oauth with everything", role: "owner", granted: everything, credential: oauth("owner", everything...)},
	{name: "oauth with members", role: "owner", granted: []string{"members"}, credential: oauth("owner", "members")},
	{name: "oauth with admin", role: "owner", granted: []string{"admin", "members"}, credential: oauth("owner", "admin", "members")},
	{name: "oauth with what viewers have", role: "owner", granted: strings.Fields("members admin files:read sessions apps"), credential: oauth("owner", strings.Fields("members admin files:read sessions apps")...)},
	{name: "app with members", role: "owner", granted: []string{"members"}, credential: appKey("owner", "members")},
	{name: "limited key with members", role: "owner", granted: []string{"members"}, credential: limitedKey("owner", []string{"members"})},
	{name: "oauth with files:read", role: "editor", granted: []string{"files:read"}, credential: oauth("editor", "files:read")},
	{name: "oauth with memory only", role: "owner", granted: []string{"memory"}, credential: oauth("owner", "memory")},
	{name: "oauth of a viewer", role: "viewer", granted: everything, credential: oauth("viewer", everything...)},
	{name: "limited key to some workspaces", role: "owner", granted: everything, credential: (*scene).keyForHere},
	{name: "limited key with files:read", role: "owner", granted: []string{"files:read"}, credential: limitedKey("owner", []string{"files:read"})},
	{name: "limited key without admin", role: "owner", granted: without("admin"), credential: limitedKey("owner", without("admin"))},
	{name: "limited key to another workspace", granted: everything, credential: (*scene).keyForElsewhere},
	{name: "limited key to read", role: "viewer", granted: everything, isReadOnly: true, credential: limitedKey("owner", everything, readOnly)},
	{name: "a revoked limited key", isInvalid: true, credential: (*scene).revokedLimitedKey},
	{name: "a limited key with the start of another key", isInvalid: true, credential: (*scene).limitedKeyAsKey},
	{name: "revoked oauth", isInvalid: true, credential: (*scene).revokedGrant},
	{name: "oauth for another resource", isInvalid: true, credential: (*scene).foreignGrant},
	{name: "computer", role: "editor", credential: (*scene).computer},
	{name: "computer of another workspace", credential: (*scene).foreignComputer},
}

var everything = roleCapabilities["owner"]

func without(capability string) []string {
	return slices.DeleteFunc(slices.Clone(everything), func(c string) bool { return c == capability })
}

// expectedRefusal returns the refusal of an operation for a visitor, according to the specification and the decisions; 0: it
// is allowed.
func expectedRefusal(v visitor, r server.Route) (status int, code string) {
	need, inWorkspace := needOf(r.Scope)
	switch {
	case v.isInvalid && isPage(r):
		return 303, "/sign-in"
	case v.isInvalid, r.Path == "/mcp" && v.isBrowser: // the tools refuse cookies
		return 401, "unauthorized"
	case r.Scope == "human" && !v.isHuman, humansOnly[operationOf(r)] && !v.isHuman:
		return 403, "forbidden"
	case v.isImpersonated && refusedToImpersonation[operationOf(r)]:
		return 403, "forbidden"
	case !inWorkspace:
		return 0, ""
	case v.role == "":
		return 404, "not_found"
	case len(need) > 0 && !slices.ContainsFunc(need, v.has):
		return 403, "forbidden"
	case strings.HasSuffix(r.Path, "/launch") && !v.isHuman && !strings.HasPrefix(v.name, "oauth") && !strings.HasPrefix(v.name, "limited key"),
		strings.HasSuffix(r.Path, "/launch") && v.isReadOnly:
		return 403, "forbidden" // a visit belongs to a person, who uses it in a browser
	case !changes(r):
		return 0, ""
	case v.isReadOnly, v.role == "viewer" && !personal[operationOf(r)]:
		return 403, "forbidden"
	case v.isSuspended && !strings.HasSuffix(r.Path, "/admin/suspension"):
		return 403, "workspace_suspended"
	}
	return 0, ""
}

func (v visitor) has(capability string) bool {
	granted := v.granted == nil || slices.Contains(v.granted, capability)
	return granted && slices.Contains(roleCapabilities[v.role], capability)
}

// alsoNeeds has the capabilities that the example of an operation gives to a person, or to a process. A credential with grants must have
// them itself.
var alsoNeeds = map[string][]string{
	"POST /v1/ws/{workspaceSlug}/invites":               roleCapabilities["editor"],
	"PATCH /v1/ws/{workspaceSlug}/members/{userId}":     roleCapabilities["viewer"],
	"POST /v1/ws/{workspaceSlug}/apps":                  commandNeeds,
	"PUT /v1/ws/{workspaceSlug}/apps/{appSlug}/runtime": commandNeeds,
}

// commandNeeds are the capabilities of a credential that sets the command of an app.
var commandNeeds = []string{"files:read", "files:write", "services"}

// covers reports whether the grants of a credential have all of some capabilities.
func (v visitor) covers(all []string) bool {
	return v.granted == nil || !slices.ContainsFunc(all, func(c string) bool { return !slices.Contains(v.granted, c) })
}

func needOf(scope server.Scope) (need []string, inWorkspace bool) {
	for one := range strings.SplitSeq(string(scope), " or ") {
		if capability, ok := strings.CutPrefix(one, "ws:{workspaceSlug}:"); ok {
			need = append(need, capability)
		}
	}
	return need, len(need) > 0 || scope == "workspace_member"
}

func changes(r server.Route) bool {
	return changesByGET[operationOf(r)] || !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PROPFIND"}, r.Method)
}

// changesByGET are operations that require the right to change something although their method is GET.
var changesByGET = map[string]bool{"GET /v1/ws/{workspaceSlug}/computer/terminal": true, "GET /v1/ws/{workspaceSlug}/apps/{appSlug}/logs": true}

func isPage(r server.Route) bool {
	return !strings.HasPrefix(r.Path, "/v1/") && r.Path != "/mcp" && !r.IsAboveDrives
}

func operationOf(r server.Route) string { return r.Method + " " + r.Path }

// humansOnly are operations of the scope api_key that only people can use, because they create things that belong to a
// person.
var humansOnly = map[string]bool{"POST /v1/workspaces": true}

// refusedToImpersonation are operations with an effect that would outlast an impersonation.
var refusedToImpersonation = map[string]bool{
	"POST /v1/user/api-keys": true, "POST /v1/user/limited-keys": true, "POST /account/sessions/{sessionId}/end": true, "POST /account/keys": true, "POST /account/password": true,
}

// TestAccess sends every operation of the table as every visitor. It fails for an operation without an example in requests.
func TestAccess(t *testing.T) {
	race.Skip(t, "it sends thousands of requests one after the other")
	checkAccess(t, newBoundary(t))
}

// TestAccessInSplitMode does the same while partitions move between two actor systems.
func TestAccessInSplitMode(t *testing.T) {
	race.Skip(t, "it sends thousands of requests one after the other")
	checkAccess(t, newBoundaryOn(t, newSplitStage(t)))
}

func checkAccess(t *testing.T, b *boundary) {
	t.Helper()
	table := b.stage.node.Server.Routes()
	slices.SortStableFunc(table, func(a, b server.Route) int { // operations outside workspaces first: they slow down with the number of workspaces
		return cmp.Compare(len(a.Scope), len(b.Scope))
	})
	for _, r := range table {
		operation := operationOf(r)
		if r.Scope == "public" || r.Scope == "probe" {
			continue // needs no credential
		}
		made, known := requests[operation]
		if !known {
			t.Errorf("%s has no example: add one to requests", operation)
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
			t.Errorf("%s is in requests, but is not an operation", operation)
		}
	}
}

// visit sends a valid request and, if the operation has a body, an invalid one. Visitors without access must get the same
// refusal for both.
func (b *boundary) visit(t *testing.T, r server.Route, made func(*scene) exampleRequest, v visitor) {
	status, code := expectedRefusal(v, r)
	_, inWorkspace := needOf(r.Scope)
	sc := b.scene(t, v, inWorkspace && status == 0 && changes(r))
	in := made(sc)
	credential := v.credential(sc)
	name := fmt.Sprintf("%s as %s", operationOf(r), v.name)
	if strings.HasPrefix(in.body, "{") {
		for _, wrong := range []string{"{", `{"unknown":1}`} {
			got := sc.send(r, in, credential, wrong)
			if status != 0 {
				sc.expectRefusal(t, name+", with "+wrong, r, got, status, code)
			} else if got.Code != nethttp.StatusBadRequest && (in.refusal != onlyCreator || !strings.Contains(got.Body.String(), onlyCreator)) {
				t.Errorf("%s, with %s: %d %s, want 400", name, wrong, got.Code, got.Body)
			}
		}
	}
	got := sc.send(r, in, credential, in.body)
	switch {
	case status == 0 && !v.covers(alsoNeeds[operationOf(r)]):
		sc.expectRefusal(t, name, r, got, nethttp.StatusForbidden, "forbidden")
	case status == 0 && got.Code >= 400 && (in.refusal == "" || !strings.Contains(got.Body.String(), in.refusal)):
		t.Errorf("%s: %d %s, want it to be allowed", name, got.Code, got.Body)
	case status != 0:
		sc.expectRefusal(t, name, r, got, status, code)
	}
}
