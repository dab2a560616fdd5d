package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// example returns a value that is valid for a schema. It returns the schema's example, first enum value, const or default if it has
// one, and otherwise constructs a value from the examples of its parts, with all optional fields. value is a schema or a
// reference to one.
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
		constructed := object{}
		for _, m := range members(schema, "properties") {
			constructed = constructed.set(m.key, r.example(m.value))
		}
		return constructed
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

// exampleBody returns an example of a body in a media type as text, or "" if the page shows none for that type. content is the
// media type object of the document.
func (r *reader) exampleBody(media string, content object) string {
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
