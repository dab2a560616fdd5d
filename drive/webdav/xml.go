package webdav

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

const (
	xmlType = `application/xml; charset=utf-8`
	xmlHead = `<?xml version="1.0" encoding="utf-8"?>` + "\n"
	davNS   = "DAV:"
	xmlNS   = "http://www.w3.org/XML/1998/namespace"

	maxBody    = 1 << 20
	maxNesting = 64
)

// An element of a request's body. Content holds strings and *elements.
type element struct {
	name    xml.Name
	attrs   []xml.Attr
	content []any
	// lang is the xml:lang in scope.
	lang string
}

var errXML = entity.Errorf(entity.InvalidRequest, "the body is not the XML that the method takes")

// readBody reads an XML body; nil where it is empty.
func (c *call) readBody() (*element, error) {
	body := http.MaxBytesReader(c.w, c.r.Body, maxBody)
	parser := &parser{decoder: xml.NewDecoder(body), declared: map[string]bool{xmlNS: true}}
	root, err := parser.document()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, entity.Errorf(entity.PayloadTooLarge, "the body is larger than %d bytes", maxBody)
	}
	return root, err
}

// A parser refuses what encoding/xml lets pass: undeclared prefixes, prefixes declared as nothing, document types.
type parser struct {
	decoder  *xml.Decoder
	declared map[string]bool
}

func (p *parser) document() (root *element, err error) {
	for {
		token, err := p.decoder.Token()
		if err == io.EOF {
			return root, nil
		}
		if err != nil {
			return nil, asXML(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if root != nil {
				return nil, errXML
			}
			if root, err = p.element(token, "", 1); err != nil {
				return nil, err
			}
		case xml.Directive:
			return nil, errXML
		case xml.CharData:
			if strings.TrimSpace(string(token)) != "" {
				return nil, errXML
			}
		}
	}
}

func (p *parser) element(start xml.StartElement, lang string, depth int) (*element, error) {
	e, err := p.open(start, lang)
	if err != nil || depth > maxNesting {
		return nil, errXML
	}
	for {
		token, err := p.decoder.Token()
		if err != nil {
			return nil, asXML(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			child, err := p.element(token, e.lang, depth+1)
			if err != nil {
				return nil, err
			}
			e.content = append(e.content, child)
		case xml.CharData:
			e.content = append(e.content, string(token))
		case xml.EndElement:
			return e, nil
		}
	}
}

func (p *parser) open(start xml.StartElement, lang string) (*element, error) {
	e := &element{name: start.Name, lang: lang}
	for _, attr := range start.Attr {
		if attr.Name.Space == "xmlns" || attr.Name.Space == "" && attr.Name.Local == "xmlns" {
			if attr.Value == "" && attr.Name.Space == "xmlns" {
				return nil, errXML
			}
			p.declared[attr.Value] = true
		}
	}
	for _, attr := range start.Attr {
		if attr.Name.Space == "xmlns" || attr.Name.Space == "" && attr.Name.Local == "xmlns" {
			continue
		}
		if attr.Name.Space != "" && !p.declared[attr.Name.Space] {
			return nil, errXML
		}
		if attr.Name.Space == xmlNS && attr.Name.Local == "lang" {
			e.lang = attr.Value
		}
		e.attrs = append(e.attrs, attr)
	}
	if start.Name.Space != "" && !p.declared[start.Name.Space] {
		return nil, errXML
	}
	return e, nil
}

// asXML keeps what is not about the XML: a body that is too large or broke off.
func asXML(err error) error {
	if _, syntax := errors.AsType[*xml.SyntaxError](err); syntax {
		return errXML
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return err
	}
	return errXML
}

func (e *element) children() []*element {
	var children []*element
	for _, content := range e.content {
		if child, ok := content.(*element); ok {
			children = append(children, child)
		}
	}
	return children
}

// child finds an element of the DAV: namespace.
func (e *element) child(local string) *element {
	for _, child := range e.children() {
		if child.is(local) {
			return child
		}
	}
	return nil
}

func (e *element) is(local string) bool { return e.name.Space == davNS && e.name.Local == local }

// inner writes what is inside, each element with its own namespace, so that it can stand anywhere.
func (e *element) inner() string {
	var b strings.Builder
	e.writeInner(&b)
	return b.String()
}

func (e *element) writeInner(b *strings.Builder) {
	for _, content := range e.content {
		switch content := content.(type) {
		case string:
			xml.EscapeText(b, []byte(content))
		case *element:
			content.write(b)
		}
	}
}

func (e *element) write(b *strings.Builder) {
	b.WriteString("<" + e.name.Local + ` xmlns="` + escape(e.name.Space) + `"` + writeAttrs(e.attrs) + ">")
	e.writeInner(b)
	b.WriteString("</" + e.name.Local + ">")
}

func writeAttrs(attrs []xml.Attr) string {
	var b strings.Builder
	for i, attr := range attrs {
		name := attr.Name.Local
		switch attr.Name.Space {
		case "":
		case xmlNS:
			name = "xml:" + name
		default:
			prefix := "a" + strconv.Itoa(i)
			b.WriteString(" xmlns:" + prefix + `="` + escape(attr.Name.Space) + `"`)
			name = prefix + ":" + name
		}
		b.WriteString(" " + name + `="` + escape(attr.Value) + `"`)
	}
	return b.String()
}

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text))
	return b.String()
}
