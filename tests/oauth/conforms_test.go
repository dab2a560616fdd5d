package oauth

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

var decodePages = sync.OnceFunc(func() {
	openapi3filter.RegisterBodyDecoder("text/html", func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		text, err := io.ReadAll(body)
		return string(text), err
	})
})

// document returns the OpenAPI document that the node serves.
func (w *world) document() *openapi3.T {
	w.Helper()
	decodePages()
	answer, err := w.agent.Get(w.url + "/v1/openapi.json")
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	doc, err := openapi3.NewLoader().LoadFromIoReader(answer.Body)
	if err != nil {
		w.Fatal(err)
	}
	return doc
}

// conforms compares an exchange with the authorization server with the OpenAPI document. A request that is invalid by the
// document must have been refused, and every response must be valid by the document.
func (w *world) conforms(r *http.Request, body string, response *http.Response, answer string) {
	w.Helper()
	if !strings.HasPrefix(r.URL.Path, "/oauth/") && !strings.HasPrefix(r.URL.Path, "/.well-known/") {
		return
	}
	item := w.described.Paths.Value(r.URL.Path)
	if item == nil || item.GetOperation(r.Method) == nil {
		if item != nil && response.StatusCode == http.StatusMethodNotAllowed {
			return
		}
		w.Errorf("%s %s is not in the OpenAPI document", r.Method, r.URL.Path)
		return
	}
	request := r.Clone(context.Background())
	request.Body = io.NopCloser(strings.NewReader(body))
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	in := &openapi3filter.RequestValidationInput{
		Request: request, QueryParams: r.URL.Query(), Options: options,
		Route: &routers.Route{Spec: w.described, Path: r.URL.Path, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)},
	}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && response.StatusCode < 300 {
		w.Errorf("%s %s was answered %d: %v", r.Method, r.URL, response.StatusCode, err)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: response.StatusCode, Header: response.Header,
		Body: io.NopCloser(bytes.NewReader([]byte(answer))), Options: options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		w.Errorf("%s %s: %d %s: %v", r.Method, r.URL, response.StatusCode, answer, err)
	}
}
