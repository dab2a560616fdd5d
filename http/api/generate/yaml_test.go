package main

import (
	"strings"
	"testing"
)

// TestParse checks the JSON of documents with all kinds of values, anchors and merge keys.
func TestParse(t *testing.T) {
	for name, test := range map[string]struct{ yaml, json string }{
		"order_of_keys":          {"b: 1\na: 2\n", `{"b":1,"a":2}`},
		"scalars":                {"a: [1, -2, 0.5, true, null, text, \"1\"]\n", `{"a":[1,-2,0.5,true,null,"text","1"]}`},
		"block_text":             {"a: |\n  <b> & c\n  d\n", `{"a":"<b> & c\nd\n"}`},
		"one_key":                {"a: {b: {c: d}}\n", `{"a":{"b":{"c":"d"}}}`},
		"empty":                  {"a: {}\nb: []\n", `{"a":{},"b":[]}`},
		"alias":                  {"a: &x {b: 1}\nc: *x\n", `{"a":{"b":1},"c":{"b":1}}`},
		"own_key_replaces":       {"a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\n", `{"a":{"b":1,"c":2},"d":{"b":3,"c":2}}`},
		"own_key_before_merge":   {"a: &x {b: 1, c: 2}\nd:\n  b: 3\n  <<: *x\n", `{"a":{"b":1,"c":2},"d":{"b":3,"c":2}}`},
		"merge_of_a_merge":       {"a: &x {b: 1}\nc: &y {<<: *x, b: 2}\nd: {<<: *y}\n", `{"a":{"b":1},"c":{"b":2},"d":{"b":2}}`},
		"anchor_in_an_anchor":    {"a: &x\n  b: &y {c: 1}\nd: *y\ne: *x\n", `{"a":{"b":{"c":1}},"d":{"c":1},"e":{"b":{"c":1}}}`},
		"number_as_quoted_key":   {"\"200\": ok\n2XX: ok\n", `{"200":"ok","2XX":"ok"}`},
		"merged_value_unchanged": {"a: &x {b: {c: 1}}\nd: {<<: *x, e: 2}\nf: *x\n", `{"a":{"b":{"c":1}},"d":{"b":{"c":1},"e":2},"f":{"b":{"c":1}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := parse([]byte(test.yaml))
			if err != nil {
				t.Fatal(err)
			}
			text, err := encode(doc)
			if err != nil || string(text) != test.json {
				t.Errorf("parse(%q) returned %s (%v), want %s", test.yaml, text, err, test.json)
			}
		})
	}
}

func TestParseFails(t *testing.T) {
	for name, test := range map[string]struct{ yaml, want string }{
		"duplicate_key":          {"a: 1\na: 2\n", "a"},
		"duplicate_beside_merge": {"x: &x {a: 0}\ny: {<<: *x, a: 1, a: 2}\n", "a"},
		"alias_without_anchor":   {"a: *x\n", "x"},
		"merge_of_a_text":        {"a: &x text\nb: {<<: *x}\n", "mapping"},
		"number_as_key":          {"200: ok\n", "200"},
		"root_is_a_list":         {"- a\n", "mapping"},
		"infinity":               {"a: .inf\n", "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			if doc, err := parse([]byte(test.yaml)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("parse(%q) returned %v and the error %v, want an error with %q", test.yaml, doc, err, test.want)
			}
		})
	}
}

// TestNewReferenceFails makes a small document invalid in such a way that the page would lack a part of it.
func TestNewReferenceFails(t *testing.T) {
	const small = `
tags: [{name: things}]
paths:
  /things:
    get: {operationId: list, tags: [things], responses: {"200": {$ref: "#/components/responses/Things"}}}
components:
  responses: {Things: {description: All things}}
`
	for name, test := range map[string]struct{ old, new, want string }{
		"unknown_tag":       {"tags: [things]", "tags: [others]", "others"},
		"unknown_component": {"responses/Things", "responses/Nothing", "Nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newReference(mustParse(t, small)); err != nil {
				t.Fatal(err)
			}
			_, err := newReference(mustParse(t, strings.Replace(small, test.old, test.new, 1)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("newReference returned the error %v, want one with %q", err, test.want)
			}
		})
	}
}

// mustParse parses a document and fails the test if it is invalid.
func mustParse(t *testing.T, text string) object {
	t.Helper()
	doc, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
