package server

import (
	"fmt"
	"net/http"

	"github.com/atelier-run/atelier/entity"
)

type healthView struct {
	Status string `json:"status"`
}

func (s *Server) health(*Call, None) (healthView, error) { return healthView{"ok"}, nil }

// probes returns the routes for monitoring of the public listener.
func (s *Server) probes() []Route {
	probes := []Route{
		{Method: http.MethodGet, Path: "/healthz", Scope: ScopeProbe, Summary: "Report whether the process runs",
			Handler: Answer(http.StatusOK, Nothing, s.health)},
		{Method: http.MethodGet, Path: "/readyz", Scope: ScopeProbe, Summary: "Report whether requests can be answered",
			Handler: Answer(http.StatusOK, Nothing, s.readiness)},
	}
	if !s.options.SeparateMetrics {
		probes = append(probes, s.metricsRoute())
	}
	return probes
}

func (s *Server) metricsRoute() Route {
	return Route{Method: http.MethodGet, Path: "/metrics", Scope: ScopeProbe, Summary: "Report metrics for Prometheus", Handler: s.metrics.exposition.serve}
}

// readiness tells load balancers whether to send requests to this server. It refuses while the server shuts down.
func (s *Server) readiness(*Call, None) (healthView, error) {
	if s.watcher.isClosed() {
		return healthView{}, entity.Errorf(entity.Unavailable, "the server is shutting down")
	}
	if err := s.options.Ready(); err != nil {
		s.log.Warn("not ready", "error", fmt.Sprint(err))
		return healthView{}, entity.Errorf(entity.Unavailable, "the server is not ready")
	}
	return healthView{"ok"}, nil
}
