package http

import (
	_ "embed"
	"fmt"

	"github.com/goccy/go-yaml"
)

//go:embed openapi.yaml
var documentYAML []byte

// documentJSON is the OpenAPI document as it is served.
func documentJSON() ([]byte, error) {
	text, err := yaml.YAMLToJSON(documentYAML)
	if err != nil {
		return nil, fmt.Errorf("http: openapi.yaml: %w", err)
	}
	return text, nil
}

func (s *Server) openAPI(c *call) error {
	if _, err := nothing(c); err != nil {
		return err
	}
	c.w.json(200, verbatim{s.document})
	return nil
}
