package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/getkin/kin-openapi/openapi3"
)

// otherTags are the tags of operations that this client does not call: operations for operators, WebDAV, OAuth and MCP clients, and
// browsers; or not with its key.
var otherTags = []string{"operation", "drive", "oauth", "pages", "tools", "uploads"}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	text, err := os.ReadFile("../http/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func documented(t *testing.T) map[string]*openapi3.Operation {
	all := map[string]*openapi3.Operation{}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			op.Parameters = append(slices.Clone(op.Parameters), item.Parameters...)
			all[method+" "+path] = op
		}
	}
	return all
}

// recorder is an http.RoundTripper that records requests and responds to each with the same status.
type recorder struct {
	status   int
	after    string
	requests []*http.Request
	bodies   [][]byte
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		body, _ = io.ReadAll(q.Body)
	}
	r.requests, r.bodies = append(r.requests, q), append(r.bodies, body)
	return &http.Response{
		StatusCode: r.status, Request: q, Header: http.Header{"Retry-After": {r.after}},
		Body: io.NopCloser(strings.NewReader(`{"error":"code","message":"text"}`)),
	}, nil
}

func (o operation) record(t *testing.T, status int) *recorder {
	t.Helper()
	r := &recorder{status: status, after: "1"}
	c, err := New("http://localhost", "atl_key", WithHTTPClient(&http.Client{Transport: r}))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.send(t.Context(), c); !HasCode(err, "code") {
		t.Errorf("%s: the error is %v", o.route, err)
	}
	return r
}

// TestOperations checks that each operation of the OpenAPI document has a method, which sends the documented request and
// decodes the documented response.
func TestOperations(t *testing.T) {
	all := documented(t)
	for _, o := range operations {
		t.Run(o.route, func(t *testing.T) {
			op := all[o.route]
			if op == nil {
				t.Fatal("the document does not have the operation")
			}
			r := o.record(t, http.StatusNotFound)
			q := r.requests[0]
			if sent := q.Method + " " + q.URL.Path; sent != o.route {
				t.Errorf("sent as %s", sent)
			}
			got, want := slices.Sorted(maps.Keys(q.URL.Query())), parameters(op)
			if o.streams && q.Header.Get("Last-Event-ID") == "c" { // this header has the cursor
				got = append([]string{"cursor"}, got...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("sent with the parameters %v, not %v", got, want)
			}
			checkRequest(t, op, r.bodies[0], q.Header)
			if o.answer != nil {
				compare(t, "answer", reflect.TypeOf(o.answer), answerSchema(t, op))
			}
		})
		delete(all, o.route)
	}
	for route, op := range all {
		if !slices.ContainsFunc(op.Tags, func(tag string) bool { return slices.Contains(otherTags, tag) }) {
			t.Errorf("no method calls %s", route)
		}
	}
}

func parameters(op *openapi3.Operation) (names []string) {
	for _, p := range op.Parameters {
		if p.Value.In == "query" {
			names = append(names, p.Value.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// checkRequest compares a request with its documented schema.
func checkRequest(t *testing.T, op *openapi3.Operation, body []byte, h http.Header) {
	t.Helper()
	if h.Get("Authorization") != "Bearer atl_key" {
		t.Error("sent without the key")
	}
	if op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] == nil {
		if h.Get("Content-Type") != "" {
			t.Errorf("sent with a body: %s", body)
		}
		return
	}
	schema := op.RequestBody.Value.Content["application/json"].Schema.Value
	var sent map[string]any
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := schema.VisitJSON(sent); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	if got, want := slices.Sorted(maps.Keys(sent)), slices.Sorted(maps.Keys(schema.Properties)); !slices.Equal(got, want) {
		t.Errorf("sent with the fields %v, not %v", got, want)
	}
}

func answerSchema(t *testing.T, op *openapi3.Operation) *openapi3.Schema {
	t.Helper()
	for _, status := range []int{http.StatusOK, http.StatusCreated} {
		if r := op.Responses.Status(status); r != nil {
			return r.Value.Content["application/json"].Schema.Value
		}
	}
	t.Fatal("the document has no successful response")
	return nil
}

// fields returns the properties of a schema. Of variants it returns the properties of all. A property is required if each variant
// requires it.
func fields(s *openapi3.Schema) (properties map[string]*openapi3.Schema, required map[string]bool) {
	properties, required = map[string]*openapi3.Schema{}, map[string]bool{}
	for name, p := range s.Properties {
		properties[name], required[name] = p.Value, slices.Contains(s.Required, name)
	}
	for _, part := range s.AllOf {
		more, needed := fields(part.Value)
		maps.Copy(properties, more)
		maps.Copy(required, needed)
	}
	variants := slices.DeleteFunc(slices.Concat(s.OneOf, s.AnyOf), func(v *openapi3.SchemaRef) bool { return v.Value.Type.Is("null") })
	count := map[string]int{}
	for _, v := range variants {
		more, needed := fields(v.Value)
		maps.Copy(properties, more)
		for name, need := range needed {
			if need {
				count[name]++
			}
		}
		for name := range more {
			required[name] = count[name] == len(variants)
		}
	}
	return properties, required
}

// compare compares the JSON fields of a type with the properties of a schema: the names, and which are required.
func compare(t *testing.T, at string, typed reflect.Type, s *openapi3.Schema) {
	t.Helper()
	for typed.Kind() == reflect.Pointer {
		typed = typed.Elem()
	}
	switch {
	case typed.Kind() == reflect.Slice && typed.Elem().Kind() != reflect.Uint8:
		if s.Items == nil {
			t.Fatalf("%s is not an array", at)
		}
		compare(t, at+"[]", typed.Elem(), s.Items.Value)
		return
	case typed.Kind() != reflect.Struct:
		if properties, _ := fields(s); len(properties) > 0 {
			t.Errorf("%s is an object", at)
		}
		return
	}
	properties, required := fields(s)
	for _, field := range reflect.VisibleFields(typed) {
		if field.Anonymous {
			continue // its fields are visible too
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" { // set from a header
			continue
		}
		p := properties[name]
		if p == nil {
			t.Errorf("%s.%s is not in the schema", at, name)
			continue
		}
		if required[name] == strings.Contains(options, "omit") {
			t.Errorf("%s.%s is required: %v", at, name, required[name])
		}
		compare(t, at+"."+name, field.Type, p)
		delete(properties, name)
	}
	for name := range properties {
		t.Errorf("%s.%s is missing", at, name)
	}
}

// TestOnlyIdempotentRequestsAreRetried checks that GET requests and operations declared idempotent are retried, and no
// others.
func TestOnlyIdempotentRequestsAreRetried(t *testing.T) {
	all := documented(t)
	for _, o := range operations {
		op := all[o.route]
		if op == nil || o.streams {
			continue
		}
		want := 1
		if strings.HasPrefix(o.route, "GET ") || op.Extensions["x-idempotent"] == true && !o.once {
			want = DefaultAttempts
		}
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				r := o.record(t, status)
				if len(r.requests) != want {
					t.Errorf("%s was sent %d times on %d, not %d", o.route, len(r.requests), status, want)
				}
				for _, body := range r.bodies {
					if !bytes.Equal(body, r.bodies[0]) {
						t.Errorf("%s was sent as %s and %s", o.route, r.bodies[0], body)
					}
				}
			})
		}
	}
}

// operation is a route, and a call of its method that sets every field and parameter.
type operation struct {
	route  string
	answer any
	send   func(context.Context, *Client) error
	// streams marks a stream, which resumes forever; once marks a request with a body that can be read only once.
	streams, once bool
}

// errorOf drops the result of a call.
func errorOf[Out any](_ Out, err error) error { return err }

var page = Paging{Cursor: "c", Limit: 7}
