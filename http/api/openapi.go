package api

import (
	"bytes"
	_ "embed"
	"net/http"
	"strconv"

	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
)

// openapi.yaml is the source of both files; tests/generated compares them with it.
//
//go:generate go run ./generate
var (
	//go:embed openapi.json
	documentJSON []byte
	//go:embed reference.html
	referencePage []byte
	// referencePolicy allows the style inside the page and nothing else: no scripts, no other files.
	referencePolicy = pages.PolicyFor(styleOf(referencePage))
)

// styleOf returns the text between the style tags of a page.
func styleOf(page []byte) string {
	_, rest, _ := bytes.Cut(page, []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	return string(style)
}

// Document returns the OpenAPI document, as JSON. The caller leaves it unchanged.
func Document() []byte { return documentJSON }

// document serves the OpenAPI document and the reference page that is made from it.
type document struct{}

func (d document) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/openapi.json", Scope: server.ScopePublic, Summary: "Download the OpenAPI document",
			Handler: d.serve},
		{Method: http.MethodGet, Path: "/docs", Scope: server.ScopePublic, Summary: "Read the API reference", Handler: d.serveReference},
	}
}

func (document) serve(c *server.Call) error {
	if _, err := server.Nothing(c); err != nil {
		return err
	}
	c.Response.WriteJSON(http.StatusOK, server.RawJSON{documentJSON})
	return nil
}

func (document) serveReference(c *server.Call) error {
	if _, err := server.Nothing(c); err != nil {
		return err
	}
	header := c.Response.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(referencePage)))
	header.Set("Content-Security-Policy", referencePolicy)
	pages.Guard(header)
	c.Response.WriteHeader(http.StatusOK)
	c.Response.Write(referencePage) // fails only if the client has gone
	return nil
}
