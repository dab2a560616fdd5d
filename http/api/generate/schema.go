package main

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// shape is the description of a schema on the page.
type shape struct {
	// Ref is the name of a schema that the page describes elsewhere. If it is set, all other fields except Description are empty.
	Ref string
	// Kind is the type in words, or "" if Values lists all valid values.
	Kind string
	// Values are the valid values as JSON, if the schema lists them.
	Values []string
	// Items is the shape of the items of an array.
	Items *shape
	// Nullable reports whether null is valid.
	Nullable bool
	// Limits are the limits and the default of a value in words.
	Limits []string
	// Pattern is the regular expression that a string must match.
	Pattern string
	// Fields are the properties of an object.
	Fields []field
	// Variants are the alternatives of oneOf.
	Variants    []*shape
	Description template.HTML
}

// field is a property of an object.
type field struct {
	Name     string
	Required bool
	*shape
}

// Inline returns the shape with the fields or variants that the page lists below this shape: the shape itself or the items of an
// array. It returns nil if there are none.
func (s *shape) Inline() *shape {
	switch {
	case len(s.Fields) > 0 || len(s.Variants) > 0:
		return s
	case s.Items != nil:
		return s.Items.Inline()
	default:
		return nil
	}
}

// shape returns the description of value, which is a schema or a reference to one.
func (r *reader) shape(value any) *shape {
	schema, _ := value.(object)
	s := &shape{Description: r.prose(schema.get("description"))}
	if name, ok := referenced(schema, "schemas"); ok {
		s.Ref = name
		return s
	}
	if all := list(schema, "allOf"); len(all) == 1 { // a reference that has its own description
		inner := r.shape(all[0])
		if s.Description != "" {
			inner.Description = s.Description
		}
		return inner
	}
	s.Kind, s.Nullable = kind(schema)
	s.Values = values(schema)
	if len(s.Values) > 0 && s.Kind != "array" {
		s.Kind, s.Nullable = "", false
	}
	if items := schema.get("items"); items != nil && s.Kind == "array" {
		s.Items = r.shape(items)
	}
	s.Limits = limits(schema)
	s.Pattern = word(schema, "pattern")
	required := list(schema, "required")
	for _, m := range members(schema, "properties") {
		s.Fields = append(s.Fields, field{Name: m.key, Required: slices.Contains(required, any(m.key)), shape: r.shape(m.value)})
	}
	for _, variant := range list(schema, "oneOf") {
		s.Variants = append(s.Variants, r.shape(variant))
	}
	return s
}

// kind returns the type of a schema in words, without null, and reports whether null is valid too.
func kind(schema object) (name string, nullable bool) {
	var names []string
	switch declared := schema.get("type").(type) {
	case string:
		names = []string{declared}
	case []any:
		for _, one := range declared {
			if one == "null" {
				nullable = true
			} else {
				names = append(names, fmt.Sprint(one))
			}
		}
	}
	if len(names) > 3 {
		return "any JSON value", false
	}
	name = strings.Join(names, " or ")
	if format := word(schema, "format"); format != "" {
		name += " (" + format + ")"
	}
	return name, nullable
}

// values returns the values that a schema lists in enum or const, as JSON.
func values(schema object) []string {
	all := list(schema, "enum")
	if only := schema.get("const"); only != nil {
		all = []any{only}
	}
	var shown []string
	for _, value := range all {
		text, _ := encode(value) // a scalar, which can always be encoded
		shown = append(shown, string(text))
	}
	return shown
}

// limits returns the limits and the default of a schema in words.
func limits(schema object) []string {
	var all []string
	for _, bound := range []struct{ least, most, unit string }{
		{"minLength", "maxLength", "characters"}, {"minItems", "maxItems", "items"}, {"minimum", "maximum", ""},
		{"minProperties", "maxProperties", "fields"},
	} {
		least, most := schema.get(bound.least), schema.get(bound.most)
		var text string
		switch {
		case least != nil && most != nil:
			text = fmt.Sprintf("%v to %v %s", least, most, bound.unit)
		case most != nil:
			text = fmt.Sprintf("at most %v %s", most, bound.unit)
		case least != nil && bound.least == "minLength" && fmt.Sprint(least) == "1":
			text = "not empty"
		case least != nil:
			text = fmt.Sprintf("at least %v %s", least, bound.unit)
		default:
			continue
		}
		all = append(all, strings.TrimSpace(text))
	}
	if value := schema.get("default"); value != nil {
		text, _ := encode(value) // a scalar, which can always be encoded
		all = append(all, "default "+string(text))
	}
	return all
}
