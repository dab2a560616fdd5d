package runner

import "net/http"

// maxToolRequests is the maximum number of requests of one agent to the tools that are served at the same time. A request can hold queries of
// many sessions for minutes, and the number of held queries is bounded for all agents of a node together.
const maxToolRequests = 8

// limitTools makes requests wait while maxToolRequests are being served.
func limitTools(tools http.Handler) http.Handler {
	served := make(chan struct{}, maxToolRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case served <- struct{}{}:
			defer func() { <-served }()
			tools.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}
