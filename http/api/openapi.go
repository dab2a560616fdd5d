package api

import (
	_ "embed"
	"fmt"
	"net/http"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/atelier-run/atelier/http/server"
)

//go:embed openapi.yaml
var documentYAML []byte

// documentJSON returns the OpenAPI document as it is served.
var documentJSON = sync.OnceValues(func() ([]byte, error) {
	text, err := yaml.YAMLToJSON(documentYAML)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return text, nil
})

// Document returns the OpenAPI document, as JSON.
func Document() ([]byte, error) { return documentJSON() }

// document serves the OpenAPI document.
type document struct{}

func (d document) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/openapi.json", Scope: server.ScopePublic, Summary: "This document", Handler: d.serve},
	}
}

func (document) serve(c *server.Call) error {
	if _, err := server.Nothing(c); err != nil {
		return err
	}
	text, err := documentJSON()
	if err != nil {
		return err
	}
	c.Response.WriteJSON(http.StatusOK, server.RawJSON{text})
	return nil
}
