package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// example returns a value that a schema describes: its own example, default or only value if it has one, else one that is
// made of the examples of its parts. Optional fields are included. schema may be a reference.
func (r *reader) example(value any) any {
	schema, _ := value.(object)
	if name, ok := referenced(schema, "schemas"); ok {
		return r.example(r.component("schemas", name))
	}
	for _, found := range [][]any{list(schema, "examples"), list(schema, "enum")} {
		if len(found) > 0 {
			return found[0]
		}
	}
	for _, key := range []string{"const", "default"} {
		if only := schema.get(key); only != nil {
			return only
		}
	}
	for _, key := range []string{"allOf", "oneOf"} {
		if parts := list(schema, key); len(parts) > 0 {
			return r.example(parts[0])
		}
	}
	name, _ := kind(schema)
	switch name {
	case "object":
		made := object{}
		for _, m := range members(schema, "properties") {
			made = made.set(m.key, r.example(m.value))
		}
		return made
	case "array":
		return []any{r.example(schema.get("items"))}
	case "integer", "number":
		if least := schema.get("minimum"); least != nil {
			return least
		}
		return 0
	case "boolean":
		return true
	case "string":
		return "text"
	case "string (email)":
		return "ada@example.org"
	case "string (uri)":
		return "https://atelier.example"
	default:
		return nil
	}
}

// body returns an example of a media type's content as text; empty if there is none to show.
func (r *reader) body(media string, content object) string {
	value := content.get("example")
	if text, ok := value.(string); ok {
		return strings.TrimSpace(text)
	}
	if value == nil {
		value = r.example(content.get("schema"))
	}
	switch media {
	case "application/json":
		var text bytes.Buffer
		compact, err := encode(value)
		if err == nil {
			err = json.Indent(&text, compact, "", "  ")
		}
		r.fail(err)
		return text.String()
	case "application/x-www-form-urlencoded":
		var pairs []string
		fields, _ := value.(object)
		for _, m := range fields {
			if items, ok := m.value.([]any); ok {
				m.value = items[0]
			}
			pairs = append(pairs, m.key+"="+url.QueryEscape(fmt.Sprint(m.value)))
		}
		return strings.Join(pairs, "&")
	default:
		return ""
	}
}
