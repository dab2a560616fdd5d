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

// object is a mapping with its keys in the order of the source. Each key occurs once.
type object []member

type member struct {
	key   string
	value any // object, []any, string, bool, int64, uint64, float64 or nil
}

// get returns the value of a key; nil if the object has no such key.
func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (o object) has(key string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.key == key })
}

// set replaces the value of a key, or adds the key at the end.
func (o object) set(key string, value any) object {
	for i := range o {
		if o[i].key == key {
			o[i].value = value
			return o
		}
	}
	return append(o, member{key, value})
}

// MarshalJSON encodes the object with its keys in order.
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

// encode returns a value as JSON, with <, > and & as they are.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// parse parses a YAML document with a mapping as its root, and resolves anchors, aliases and merge keys. A key of a mapping
// replaces the merged key of the same name, at its position. parse fails on duplicate keys, on keys that are not strings, on
// aliases without an anchor, and on YAML that JSON cannot represent.
func parse(text []byte) (object, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("the file has %d documents instead of one", len(file.Docs))
	}
	value, err := resolver{}.resolve(file.Docs[0].Body)
	if err != nil {
		return nil, err
	}
	root, ok := value.(object)
	if !ok {
		return nil, errors.New("the root is not a mapping")
	}
	return root, nil
}

// resolver has the value of each anchor seen so far. Values are never changed after they were stored here.
type resolver map[string]any

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
			return nil, at(n, "the alias *%s has no anchor before it", name)
		}
		return value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.StringNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.NullNode:
		return n.(ast.ScalarNode).GetValue(), nil
	default:
		return nil, at(n, "%s has no equivalent in JSON", n.Type())
	}
}

// mapping returns the object of a mapping: first the keys that merges bring, of which the last of several wins, then its own.
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
				return nil, at(m, "a merge key needs a mapping")
			}
			merged = append(merged, source...)
			continue
		}
		key, ok := m.Key.(*ast.StringNode)
		if !ok {
			return nil, at(m, "the key %s is not a string", m.Key)
		}
		own = append(own, member{key.Value, value})
	}
	all := object{}
	for _, m := range merged {
		all = all.set(m.key, m.value)
	}
	for i, m := range own {
		if own[:i].has(m.key) {
			return nil, at(values[0], "the key %s occurs twice", m.key)
		}
		all = all.set(m.key, m.value)
	}
	return all, nil
}

func at(n ast.Node, format string, arguments ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.GetToken().Position.Line}, arguments...)...)
}
