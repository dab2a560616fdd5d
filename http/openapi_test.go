package http_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/atelier-run/atelier/http/api"
)

var document = sync.OnceValues(func() (*openapi3.T, error) {
	for _, media := range []string{"text/event-stream", "text/html", "application/xml", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(media, func(body io.Reader, _ nethttp.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
			text, err := io.ReadAll(body)
			return string(text), err
		})
	}
	doc, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

func TestDocumentIsValid(t *testing.T) {
	if _, err := document(); err != nil {
		t.Fatal(err)
	}
}

// operationsOf returns the operations of a path, including the operations of WebDAV: summary, scope, idempotent.
func operationsOf(item *openapi3.PathItem) map[string]string {
	found := map[string]string{}
	for method, op := range item.Operations() {
		found[method] = fmt.Sprintln(op.Summary, op.Extensions["x-scope"], op.Extensions["x-idempotent"])
	}
	webdav, _ := item.Extensions["x-webdav-operations"].(map[string]any)
	for method, op := range webdav {
		fields := op.(map[string]any)
		found[method] = fmt.Sprintln(fields["summary"], fields["x-scope"], fields["x-idempotent"])
	}
	return found
}

func TestRoutesAndDocumentAgree(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range operationsOf(item) {
			documented[method+" "+path] = op
		}
	}
	for _, r := range newFakeEntities().server(t).Routes() {
		name := r.Method + " " + r.Path
		want := fmt.Sprintln(r.Summary, r.Scope, r.Idempotent)
		if got := documented[name]; got != want {
			t.Errorf("%s: the table says %q, the document %q", name, want, got)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented and not served", name)
	}
}

// isAboveDrives reports whether a path is a folder above the drives without another operation.
func isAboveDrives(item *openapi3.PathItem) bool {
	return item.Options != nil && len(item.Operations()) == 1 && item.Extensions["x-webdav-operations"] != nil
}

// find returns the documented path that a request's path matches.
func find(doc *openapi3.T, escaped string) (string, map[string]string) {
	if doc.Paths.Value(escaped) != nil {
		return escaped, nil
	}
	// A path without a variable in a segment comes before one with it.
	paths := slices.Sorted(maps.Keys(doc.Paths.Map()))
	slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(a, "{") - strings.Count(b, "{") })
	for _, path := range paths {
		if parameters, ok := fit(strings.Split(path, "/"), strings.Split(escaped, "/")); ok {
			return path, parameters
		}
	}
	return "", nil
}

func fit(template, path []string) (map[string]string, bool) {
	parameters := map[string]string{}
	for i, part := range template {
		switch {
		case i >= len(path):
			return nil, false
		case part == "{path}":
			parameters["path"] = max(strings.Join(path[i:], "/"), "/") // the validator takes an empty one for none
			return parameters, true
		case strings.HasPrefix(part, "{"):
			parameters[strings.Trim(part, "{}")] = path[i]
		case part != path[i]:
			return nil, false
		}
	}
	return parameters, len(path) == len(template)
}

// conforms checks an exchange against the document: a request that the document does not allow must have been refused, and
// the response must be documented.
func conforms(t testing.TB, r *nethttp.Request, body []byte, response *nethttp.Response) {
	t.Helper()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	if id := response.Header.Get("X-Request-Id"); len(id) < 8 || len(id) > 64 {
		t.Errorf("%s %s: request id %q", r.Method, r.URL, id)
	}
	if h := response.Header; h.Get("Content-Type") == "application/json" && h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s: a browser may guess what JSON is", r.Method, r.URL)
	}
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	path, parameters := find(doc, r.URL.EscapedPath())
	if strings.HasPrefix(r.URL.Path, "/admin/") {
		return
	}
	item := doc.Paths.Value(path)
	if r.Method == "HEAD" && item != nil && item.Head == nil && item.Get != nil {
		return // HEAD is answered as GET, without the body
	}
	if item == nil || item.GetOperation(r.Method) == nil {
		refusal := 405
		if item == nil || isAboveDrives(item) && r.Method != "PUT" && r.Method != "DELETE" {
			refusal = 404
		}
		if (item == nil || operationsOf(item)[r.Method] == "") && response.StatusCode != refusal {
			t.Errorf("%s %s is not documented and was answered %d", r.Method, r.URL, response.StatusCode)
		}
		return
	}
	request := r.Clone(context.Background())
	request.Body = io.NopCloser(bytes.NewReader(body))
	query, _ := url.ParseQuery(r.URL.RawQuery)
	options := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
		ExcludeRequestBody: strings.Contains(path, "/drive"),
	}
	in := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: parameters, QueryParams: query, Options: options,
		Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)},
	}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && response.StatusCode < 400 {
		t.Errorf("%s %s was answered %d: %v", r.Method, r.URL, response.StatusCode, err)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: response.StatusCode, Header: response.Header,
		Body: io.NopCloser(bytes.NewReader(answer)), Options: options,
	}
	if r.Method == nethttp.MethodHead {
		options.ExcludeResponseBody = true
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, response.StatusCode, answer, err)
	}
}

// TestRefusalsOfEveryOperation verifies that each operation documents the refusals that come before it: of unknown host names, which probes
// serve, of clients with their share, and without free slots.
func TestRefusalsOfEveryOperation(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, status := range []string{"421", "429", "503"} {
				isServed := status == "421" && (path == "/healthz" || path == "/readyz")
				documented := operation.Responses.Value(status) != nil || operation.Responses.Value(status[:1]+"XX") != nil
				if !documented && !isServed {
					t.Errorf("%s %s does not document %s", method, path, status)
				}
			}
		}
	}
}
