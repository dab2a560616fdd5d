package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/mux"
)

// BenchmarkRouting measures the cost of finding the operation of a request in a table of 80 paths, for the first and the last
// path: as the server does it, and by the router's own templates and ServeHTTP.
func BenchmarkRouting(b *testing.B) {
	ours, own := mux.NewRouter(), mux.NewRouter().UseEncodedPath().SkipClean(true)
	for i := range 80 {
		path := fmt.Sprintf("/v1/ws/{workspaceSlug}/resource-%d/{id}", i)
		ours.MatcherFunc(parseTemplate(path).match).HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		own.Path(path).HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	s := &Server{}
	for _, i := range []int{0, 79} {
		request := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/ws/demo/resource-%d/a", i), nil)
		b.Run(fmt.Sprintf("path=%d/by=server", i), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.route(ours, &Response{}, request)
			}
		})
		b.Run(fmt.Sprintf("path=%d/by=router", i), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				own.ServeHTTP(&Response{}, request)
			}
		})
	}
}
