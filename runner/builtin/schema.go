package builtin

import "strings"

type property struct{ name, kind, description string }

// schema returns the JSON schema of an object. required has the names of its required properties.
func schema(required string, properties ...property) map[string]any {
	all := map[string]any{}
	for _, p := range properties {
		all[p.name] = map[string]any{"type": p.kind, "description": p.description}
	}
	object := map[string]any{"type": "object", "properties": all}
	if names := strings.Fields(required); len(names) > 0 {
		object["required"] = names
	}
	return object
}
