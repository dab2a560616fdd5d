// Package yamlfile decodes configuration files: YAML 1.2, with JSON as a part of it.
//
// A file is one document, and a string has the characters that the file has. YAML alone would turn the client id 0123456 into the
// number 42798 and the model 1.10 into 1.1, and would ignore a second document.
package yamlfile

import (
	"bytes"
	"errors"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

var byteOrderMark = []byte("\ufeff")

// Decode decodes a file into target, as yaml.Unmarshal does, but with all numbers as they are written where target takes a string or
// any value. An empty file leaves target unchanged. Errors have the line and the column in the file.
func Decode(content []byte, target any, options ...yaml.DecodeOption) error {
	file, err := parser.ParseBytes(bytes.TrimPrefix(content, byteOrderMark), 0)
	if err != nil {
		return explain(err)
	}
	var body ast.Node
	for _, document := range file.Docs {
		switch {
		case document.Body == nil:
		case body != nil:
			return errors.New("it has more than one document: remove the lines --- between them")
		default:
			body = document.Body
		}
	}
	if body == nil || body.Type() == ast.CommentType {
		return nil
	}
	return explain(yaml.NodeToValue(asWritten(body), target, options...))
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(yaml.FormatError(err, false, false))
}

// asWritten returns the node with strings in place of all numbers below it.
func asWritten(node ast.Node) ast.Node {
	switch node := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return ast.String(node.GetToken())
	case *ast.MappingNode:
		for _, value := range node.Values {
			value.Value = asWritten(value.Value)
		}
	case *ast.MappingValueNode:
		node.Value = asWritten(node.Value)
	case *ast.SequenceNode:
		for i, value := range node.Values {
			node.Values[i] = asWritten(value)
		}
	case *ast.AnchorNode:
		node.Value = asWritten(node.Value)
	}
	return node
}
