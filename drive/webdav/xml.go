package webdav

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

const (
	xmlType = `application/xml; charset=utf-8`
	xmlHead = `<?xml version="1.0" encoding="utf-8"?>` + "\n"
	davNS   = "DAV:"
	xmlNS   = "http://www.w3.org/XML/1998/namespace"

	// Bounds of a body: its length in bytes, how deep its elements are nested, and how many elements, attributes and
	// pieces of text it has. Together they bound what a body takes in memory while it arrives.
	maxBody    = 64 << 10
	maxNesting = 32
	maxNodes   = 2048
	// maxSpace bounds the name of a namespace, which is written out again with each element in it.
	maxSpace = 1 << 10
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

var (
	errBodySize = entity.Errorf(entity.PayloadTooLarge, "the body is larger than %d bytes", maxBody)
	errBodyTime = entity.Errorf(entity.InvalidRequest, "the body did not arrive in time")
	errNodes    = entity.Errorf(entity.InvalidRequest, "the body has more than %d elements, attributes and texts", maxNodes)
)

// readBody decodes an XML body as it arrives; nil where it is empty. It ends with the read deadline that is set for the
// whole body, not renewed as bytes arrive.
func (c *call) readBody() (*element, error) {
	if c.r.ContentLength > maxBody {
		return nil, errBodySize
	}
	body := http.MaxBytesReader(c.w, c.r.Body, maxBody)
	parser := &parser{decoder: xml.NewDecoder(body), declared: map[string]bool{xmlNS: true}}
	root, err := parser.document()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errBodySize
	}
	return root, err
}

// A parser refuses what encoding/xml lets pass: undeclared prefixes, prefixes declared as nothing, document types.
type parser struct {
	decoder  *xml.Decoder
	declared map[string]bool
	// nodes is how many elements, attributes and texts there were.
	nodes int
}

// count counts nodes and refuses too many.
func (p *parser) count(n int) error {
	if p.nodes += n; p.nodes > maxNodes {
		return errNodes
	}
	return nil
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
	if err := p.count(1 + len(start.Attr)); err != nil {
		return nil, err
	}
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
			if err := p.count(1); err != nil {
				return nil, err
			}
			e.content = append(e.content, string(token))
		case xml.EndElement:
			return e, nil
		}
	}
}

func (p *parser) open(start xml.StartElement, lang string) (*element, error) {
	e := &element{name: start.Name, lang: lang}
	if err := p.declare(start.Attr); err != nil {
		return nil, err
	}
	for _, attr := range start.Attr {
		if declares(attr) {
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
	if start.Name.Space != "" && !p.declared[start.Name.Space] || hasColon(start.Name) {
		return nil, errXML
	}
	return e, nil
}

func declares(attr xml.Attr) bool {
	return attr.Name.Space == "xmlns" || attr.Name.Space == "" && attr.Name.Local == "xmlns"
}

func (p *parser) declare(attrs []xml.Attr) error {
	for _, attr := range attrs {
		if hasColon(attr.Name) {
			return errXML
		}
		if !declares(attr) {
			continue
		}
		if attr.Value == "" && attr.Name.Space == "xmlns" || len(attr.Value) > maxSpace {
			return errXML
		}
		p.declared[attr.Value] = true
	}
	return nil
}

// hasColon finds names like ":a", which encoding/xml takes for names without a prefix.
func hasColon(name xml.Name) bool { return strings.Contains(name.Local, ":") }

// asXML keeps what is not about the XML: a body that is too large or broke off.
func asXML(err error) error {
	if _, syntax := errors.AsType[*xml.SyntaxError](err); syntax {
		return errXML
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errBodyTime
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

var errNoRoom = errors.New("webdav: what is written is too long")

// A bounded text is written until its room is used up.
type bounded struct {
	strings.Builder
	room int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.room {
		return 0, errNoRoom
	}
	return b.Builder.Write(p)
}

func (b *bounded) raw(parts ...string) error {
	for _, part := range parts {
		if _, err := b.Write([]byte(part)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bounded) escaped(text string) error { return xml.EscapeText(b, []byte(text)) }

// inner writes what is inside, each element with its own namespace, so that it can stand anywhere.
func (e *element) inner(room int) (string, error) {
	b := &bounded{room: room}
	if err := e.writeInner(b); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (e *element) writeInner(b *bounded) error {
	for _, content := range e.content {
		var err error
		switch content := content.(type) {
		case string:
			err = b.escaped(content)
		case *element:
			err = content.write(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *element) write(b *bounded) error {
	if err := errors.Join(b.raw("<", e.name.Local), b.attr("xmlns", e.name.Space), b.attrs(e.attrs), b.raw(">")); err != nil {
		return err
	}
	if err := e.writeInner(b); err != nil {
		return err
	}
	return b.raw("</", e.name.Local, ">")
}

func (b *bounded) attr(name, value string) error {
	return errors.Join(b.raw(" ", name, `="`), b.escaped(value), b.raw(`"`))
}

func (b *bounded) attrs(attrs []xml.Attr) error {
	for i, attr := range attrs {
		name := attr.Name.Local
		switch attr.Name.Space {
		case "":
		case xmlNS:
			name = "xml:" + name
		default:
			prefix := "a" + strconv.Itoa(i)
			if err := b.attr("xmlns:"+prefix, attr.Name.Space); err != nil {
				return err
			}
			name = prefix + ":" + name
		}
		if err := b.attr(name, attr.Value); err != nil {
			return err
		}
	}
	return nil
}

func writeAttrs(attrs []xml.Attr, room int) (string, error) {
	b := &bounded{room: room}
	err := b.attrs(attrs)
	return b.String(), err
}

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text))
	return b.String()
}
