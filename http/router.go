package http

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/atelier-run/atelier/entity"
)

// operation is a route in service.
type operation struct {
	route
	meter meter
	// need is what the caller needs of the path's workspace, where it names one.
	need        entity.Need
	inWorkspace bool
}

func (s *Server) newOperation(r route) *operation {
	op := &operation{route: r, meter: s.metrics.meter(r)}
	op.need, op.inWorkspace = r.scope.need()
	op.need.Changes = !slices.Contains(readingMethods, r.method) && !r.evenSuspended
	return op
}

// readingMethods change nothing.
var readingMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, "PROPFIND"}

// newRouter matches the path as the client wrote it: nothing is decoded, cleaned or redirected on the way.
func (s *Server) newRouter(table []route) *mux.Router {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	router.NotFoundHandler = http.HandlerFunc(notFound)
	var paths []string
	resources := map[string]resource{}
	for _, r := range table {
		if resources[r.path] == nil {
			paths = append(paths, r.path)
			resources[r.path] = resource{}
		}
		resources[r.path][r.method] = s.newOperation(r)
	}
	for _, path := range paths {
		resource := resources[path]
		allow := resource.allow()
		router.Path(pattern(path)).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := resource[r.Method]
			if op == nil {
				w.Header()["Allow"] = allow
				w.(*response).fail(entity.Errorf(entity.MethodNotAllowed, "the method is not allowed here"))
				return
			}
			s.operate(op, w.(*response), r)
		})
	}
	return router
}

// pattern is the router's form of a path: only the drive's path goes on over slashes.
func pattern(path string) string {
	return strings.Replace(path, "/drive/{path}", "/drive/{path:.*}", 1)
}

// resource is the operations of one path, by method.
type resource map[string]*operation

func (r resource) allow() []string {
	var methods []string
	for method := range r {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	return []string{strings.Join(methods, ", ")}
}

func notFound(w http.ResponseWriter, _ *http.Request) { w.(*response).fail(errNotFound) }
