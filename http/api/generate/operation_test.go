package main

import (
	"slices"
	"testing"
)

// TestOperations checks the operations of one path: their parameters, bodies, responses and errors, a method of WebDAV, and the
// command line of curl for each operation.
func TestOperations(t *testing.T) {
	doc := mustParse(t, `
paths:
  /shelves/{shelf}/books:
    parameters: [{$ref: "#/components/parameters/Shelf"}]
    post:
      operationId: addGet
      tags: [books]
      x-scope: human
      requestBody:
        content:
          application/json:
            schema:
              type: object
              required: [title]
              properties:
                title: {type: string, maxLength: 9, examples: [Emma]}
                year: {type: integer, minimum: 1800}
                kind: {enum: [novel, poem]}
                tags: {type: array, items: {$ref: "#/components/schemas/Tag"}}
      responses:
        "201": {description: Added, headers: {X-Request-Id: {}, Location: {schema: {type: string}}}}
        "409": {$ref: "#/components/responses/Full"}
    get: {operationId: list, tags: [books], x-scope: public, parameters: [{name: q, in: query, required: true, example: a b}]}
    x-webdav-operations:
      COPY: {summary: Copy, parameters: [{name: Destination, in: header, required: true, example: /new}]}
components:
  parameters: {Shelf: {name: shelf, in: path, required: true, example: blue, schema: {type: string}}}
  responses: {Full: {description: "The shelf is full"}}
  schemas: {Tag: {type: string, examples: [old]}}
`)
	r := &reader{doc: doc}
	path := members(doc, "paths")[0]
	all := r.operations(path.key, path.value.(object))
	if len(all) != 3 || r.err != nil {
		t.Fatalf("the path has %d operations (%v), want 3", len(all), r.err)
	}
	add, list, webdav := all[0], all[1], all[2]
	for got, want := range map[string]string{
		add.Curl: "curl -H \"Authorization: Bearer $KEY\" \\\n  -H 'Content-Type: application/json' -d " +
			"'{\"title\": \"Emma\",\"year\": 1800,\"kind\": \"novel\",\"tags\": [\"old\"]}' \\\n  \"$ATELIER/shelves/blue/books\"",
		list.Curl:   "curl \\\n  \"$ATELIER/shelves/blue/books?q=a+b\"",
		webdav.Curl: "curl -X COPY -H \"Authorization: Bearer $KEY\" \\\n  -H \"Destination: /new\" \\\n  \"$ATELIER/shelves/blue/books\"",
		webdav.ID:   "listCOPY",
	} {
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if len(add.Responses) != 1 || len(add.Responses[0].Headers) != 1 || len(add.Errors) != 1 || add.Errors[0].Status != "409" {
		t.Errorf("responses %+v and errors %+v, want one of each", add.Responses, add.Errors)
	}
	fields := add.Request.Schema.Fields
	if len(fields) != 4 || !fields[0].Required || fields[1].Required {
		t.Fatalf("fields %+v", fields)
	}
	if !slices.Equal(fields[0].Limits, []string{"at most 9 characters"}) || !slices.Equal(fields[1].Limits, []string{"at least 1800"}) {
		t.Errorf("limits %q and %q", fields[0].Limits, fields[1].Limits)
	}
	if !slices.Equal(fields[2].Values, []string{`"novel"`, `"poem"`}) || fields[3].Items.Ref != "Tag" {
		t.Errorf("values %q, items %+v", fields[2].Values, fields[3].Items)
	}
}
