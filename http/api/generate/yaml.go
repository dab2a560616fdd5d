package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// object is a mapping of YAML or an object of JSON. Its keys are unique and in the order of the source.
type object []member

// member is a key of an object with its value.
type member struct {
	key   string
	value any // object, []any, string, bool, int64, uint64, float64 or nil
}

// get returns the value of a key, or nil if the object does not have the key.
func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// has reports whether the object has a key.
func (o object) has(key string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.key == key })
}

// set replaces the value of a key, or appends the key with the value, and returns the object.
func (o object) set(key string, value any) object {
	for i := range o {
		if o[i].key == key {
			o[i].value = value
			return o
		}
	}
	return append(o, member{key, value})
}

// MarshalJSON implements json.Marshaler. It encodes the keys in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		for _, part := range []any{m.key, m.value} {
			encoded, err := encode(part)
			if err != nil {
				return nil, err
			}
			text.Write(encoded)
			text.WriteByte(':')
		}
		text.Truncate(text.Len() - 1)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// encode returns a value as JSON. It does not escape <, > and &.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// parse parses a YAML document with a mapping as its root, and resolves its anchors, aliases and merge keys. A key of a mapping
// replaces the value of the same key from a merge, at the position of the merged key. parse fails on duplicate keys, on keys that are
// not strings, on aliases without an anchor, and on values that JSON cannot represent.
func parse(text []byte) (object, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("the file has %d YAML documents, want one", len(file.Docs))
	}
	value, err := resolver{}.resolve(file.Docs[0].Body)
	if err != nil {
		return nil, err
	}
	root, ok := value.(object)
	if !ok {
		return nil, errors.New("the root of the document must be a mapping")
	}
	return root, nil
}

// resolver maps the name of each anchor before the current node to its value. Stored values are never modified.
type resolver map[string]any

// resolve returns the value of a node and stores the anchors in it. Its errors name the line.
func (r resolver) resolve(n ast.Node) (any, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(n.Values)
	case *ast.MappingValueNode: // a mapping with one key
		return r.mapping([]*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		items := make([]any, len(n.Values))
		for i, item := range n.Values {
			value, err := r.resolve(item)
			if err != nil {
				return nil, err
			}
			items[i] = value
		}
		return items, nil
	case *ast.AnchorNode:
		value, err := r.resolve(n.Value)
		r[n.Name.GetToken().Value] = value
		return value, err
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		value, ok := r[name]
		if !ok {
			return nil, errorAt(n, "the alias *%s has no anchor before it", name)
		}
		return value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.StringNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.NullNode:
		return n.(ast.ScalarNode).GetValue(), nil
	default:
		return nil, errorAt(n, "%s has no equivalent in JSON", n.Type())
	}
}

// mapping returns the object of a mapping: the keys from merges, followed by the mapping's own keys. If several merges have the
// same key, the value of the last one is used.
func (r resolver) mapping(values []*ast.MappingValueNode) (any, error) {
	var merged, own object
	for _, m := range values {
		value, err := r.resolve(m.Value)
		if err != nil {
			return nil, err
		}
		if m.Key.IsMergeKey() {
			source, ok := value.(object)
			if !ok {
				return nil, errorAt(m, "the value of the merge key << must be a mapping")
			}
			merged = append(merged, source...)
			continue
		}
		key, ok := m.Key.(*ast.StringNode)
		if !ok {
			return nil, errorAt(m, "the key %s must be a string: put it in quotes", m.Key)
		}
		own = append(own, member{key.Value, value})
	}
	all := object{}
	for _, m := range merged {
		all = all.set(m.key, m.value)
	}
	for i, m := range own {
		if own[:i].has(m.key) {
			return nil, errorAt(values[0], "the key %s occurs twice", m.key)
		}
		all = all.set(m.key, m.value)
	}
	return all, nil
}

// errorAt returns an error with the line of a node.
func errorAt(n ast.Node, format string, arguments ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.GetToken().Position.Line}, arguments...)...)
}
