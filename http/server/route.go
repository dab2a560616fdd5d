package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/atelier-run/atelier/entity"
)

// Route is a row of the table of operations.
type Route struct {
	Method string
	// Path may have variables in braces, of one segment each. Only the path of a drive's entry has several segments.
	Path  string
	Scope Scope
	// Idempotent operations have the same effect and the same response if they are repeated.
	Idempotent bool
	Summary    string
	Handler    Handler
	Timing     Timing
	// ChangesSuspended operations may change a suspended workspace; all others that change one are refused then.
	ChangesSuspended bool
	// Changes marks an operation that requires the right to change the workspace although its method usually only reads: it changes
	// the workspace, or shows secrets of it.
	Changes bool
	// Resource is the path of the operation as an OAuth resource of its own (RFC 9728); empty: the operation belongs to the API.
	// Tokens for a resource are valid for its operations alone, and tokens for the API for all operations.
	Resource string
	// Personal marks an operation that changes only data of the caller. Members with read access may call it.
	Personal bool
	// IsAboveDrives marks an operation on a folder above the drives, a prefix of the address of a drive. The path of the folder may end with a
	// slash. At a path with such operations only, methods outside WebDAV get not_found, as at a path without operations.
	IsAboveDrives bool
	// Refuse answers with an error, also for a method without an operation at the path; nil: as JSON.
	Refuse func(w *Response, refused *entity.Error)
}

// Scope names the access that an operation requires, as the specification writes it. The package comment describes how it is
// enforced.
type Scope string

// The scopes of the specification. Operations with ScopePublic need no credential and are limited by the address of the
// client, operations with ScopeProbe are for monitoring and have no limit, operations with ScopeOperator are served on the
// operators' socket only.
const (
	ScopePublic        Scope = "public"
	ScopeProbe         Scope = "probe"
	ScopeKey           Scope = "api_key"
	ScopeHuman         Scope = "human"
	ScopeOperator      Scope = "operator"
	ScopeMember        Scope = "workspace_member"
	ScopeAdmin         Scope = capabilityPrefix + "admin"
	ScopeReadFiles     Scope = capabilityPrefix + "files:read"
	ScopeWriteFiles    Scope = capabilityPrefix + "files:write"
	ScopeManageMembers Scope = capabilityPrefix + "members"
	ScopeRunServices   Scope = capabilityPrefix + "services"
	ScopeSessions      Scope = capabilityPrefix + "sessions"
	ScopeListMembers   Scope = capabilityPrefix + "sessions or " + capabilityPrefix + "files:read"
	ScopeManageAgents  Scope = capabilityPrefix + "agents"
	ScopeListAgents    Scope = capabilityPrefix + "sessions or " + capabilityPrefix + "agents"
	ScopeApps          Scope = capabilityPrefix + "apps"
	ScopeBindAnchors   Scope = capabilityPrefix + "apps or " + capabilityPrefix + "publish or " + capabilityPrefix + "share"

	capabilityPrefix = "ws:{workspaceSlug}:"
)

// need returns the access that the scope requires in the workspace of the path; ok is false if the scope concerns no
// workspace.
func (s Scope) need() (need entity.Need, ok bool) {
	if s == ScopeMember {
		return need, true
	}
	for _, one := range strings.Split(string(s), " or ") {
		if capability, ok := strings.CutPrefix(one, capabilityPrefix); ok {
			need.Any = append(need.Any, capability)
		}
	}
	return need, len(need.Any) > 0
}

// RequiredCapabilities returns the capabilities that the operations of a table require, each once, sorted.
func RequiredCapabilities(table []Route) []string {
	var required []string
	for _, r := range table {
		need, _ := r.Scope.need()
		required = append(required, need.Any...)
	}
	slices.Sort(required)
	return slices.Compact(required)
}

// Timing is the time limit of an operation, and the limit on concurrent requests that it counts against.
type Timing int

const (
	// Brief operations end within Limits.RequestTime.
	Brief Timing = iota
	// Transfer operations last as long as bytes move.
	Transfer
	// Streaming operations last until their client, their access or their purpose ends, and count against Limits.Streams;
	// streams of StreamTo last Options.StreamSegment. Requests that wait belong to them, so that they do not use up Limits.Requests.
	Streaming
)

// WorkspacePath is the path of a workspace's resources, and DrivePath of its drive.
const (
	WorkspacePath = "/v1/ws/{workspaceSlug}"
	DrivePath     = WorkspacePath + "/drive"
)

// operation is a route in service.
type operation struct {
	Route
	meter meter
	// need is the access that the caller needs in the workspace of the path, if the path names one.
	need        entity.Need
	inWorkspace bool
}

func (s *Server) newOperation(r Route) *operation {
	op := &operation{Route: r, meter: s.metrics.meter(r)}
	op.need, op.inWorkspace = r.Scope.need()
	changes := (r.Changes || !slices.Contains(readingMethods, r.Method)) && !r.ChangesSuspended
	op.need.Changes, op.need.Personal = changes && !r.Personal, changes && r.Personal
	return op
}

// readingMethods change nothing.
var readingMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, "PROPFIND"}

// changingMethods are the methods with which WebDAV changes files and folders.
var changingMethods = []string{http.MethodPut, http.MethodDelete, "MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK", "UNLOCK"}

// newRouter makes a router for a table. It tries the paths in the order of the table, so that hot paths come first. It neither
// cleans nor redirects paths.
func (s *Server) newRouter(table []Route) *mux.Router {
	router := mux.NewRouter()
	router.NotFoundHandler = http.HandlerFunc(notFound)
	var paths []string
	resources := map[string]resource{}
	for _, r := range table {
		if resources[r.Path] == nil {
			paths = append(paths, r.Path)
			resources[r.Path] = resource{}
		}
		resources[r.Path][r.Method] = s.newOperation(r)
	}
	for _, path := range paths {
		resource := resources[path]
		resource.addHead()
		allow, refuse, isOnlyWebDAV := resource.allow(), resource.refuse(), resource.isOnlyWebDAV()
		match := parseTemplate(path).match
		if isOnlyWebDAV {
			match = matchFolder(path)
		}
		router.MatcherFunc(match).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := resource[r.Method]
			if op == nil && isOnlyWebDAV && !slices.Contains(changingMethods, r.Method) {
				notFound(w, r)
				return
			}
			if op == nil {
				w.Header()["Allow"] = allow
				w.(*Response).refuse = refuse
				w.(*Response).fail(entity.Errorf(entity.MethodNotAllowed, "the method is not allowed here"))
				return
			}
			s.runOperation(op, w.(*Response), r)
		})
	}
	return router
}

// resource maps the methods of one path to their operations.
type resource map[string]*operation

// addHead serves HEAD wherever GET is served, with the same operation: net/http leaves the body out.
func (r resource) addHead() {
	if get := r[http.MethodGet]; get != nil && r[http.MethodHead] == nil {
		r[http.MethodHead] = get
	}
}

// refuse returns Refuse of the operations. All operations have the same, except operations on a folder above the drives, which have none.
func (r resource) refuse() func(*Response, *entity.Error) {
	for _, op := range r {
		if op.Refuse != nil {
			return op.Refuse
		}
	}
	return nil
}

// isOnlyWebDAV reports whether all operations are operations on a folder above the drives.
func (r resource) isOnlyWebDAV() bool {
	for _, op := range r {
		if !op.IsAboveDrives {
			return false
		}
	}
	return true
}

func (r resource) allow() []string {
	var methods []string
	for method := range r {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	return []string{strings.Join(methods, ", ")}
}

func notFound(w http.ResponseWriter, _ *http.Request) { w.(*Response).fail(ErrNotFound) }
