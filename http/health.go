package http

import (
	"fmt"

	"github.com/atelier-run/atelier/entity"
)

type healthView struct {
	Status string `json:"status"`
}

func (s *Server) health(*call, none) (healthView, error) { return healthView{"ok"}, nil }

// readiness tells balancers whether to send requests here; while the server drains, not.
func (s *Server) readiness(*call, none) (healthView, error) {
	if s.watch.closed() {
		return healthView{}, entity.Errorf(entity.Unavailable, "the server is shutting down")
	}
	if err := s.options.Ready(); err != nil {
		s.log.Warn("not ready", "error", fmt.Sprint(err))
		return healthView{}, entity.Errorf(entity.Unavailable, "the server is not ready")
	}
	return healthView{"ok"}, nil
}
