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
	xmlnsNS = "http://www.w3.org/2000/xmlns/"

	// maxBody limits the length of a body in bytes, maxNesting the depth of its elements, and maxNodes the number of its
	// elements, attributes and texts. Together they limit the memory for a body that is being received.
	maxBody    = 64 << 10
	maxNesting = 32
	maxNodes   = 2048
	// maxNamespace limits the name of a namespace in bytes, because it is repeated in each stored element.
	maxNamespace = 1 << 10
)

// An element is an XML element of a request's body. Its content consists of strings and *elements.
type element struct {
	name    xml.Name
	attrs   []xml.Attr
	content []any
	// lang is the xml:lang in scope.
	lang string
}

var errXML = entity.Errorf(entity.InvalidRequest, "the body is not valid XML, or not the element that the method expects")

var (
	errBodySize = entity.Errorf(entity.PayloadTooLarge, "the body is larger than %d bytes", maxBody)
	errBodyTime = entity.Errorf(entity.InvalidRequest, "the body did not arrive in time")
	errNodes    = entity.Errorf(entity.InvalidRequest, "the body has more than %d elements, attributes and texts", maxNodes)
)

// readBody parses the XML body of the request while it is received, and returns nil if the body is empty. It returns
// errBodySize, errNodes or errXML for an invalid body, and errBodyTime if the connection's read deadline passes, which the
// server sets once for the whole body.
func (c *call) readBody() (*element, error) {
	if c.r.ContentLength > maxBody {
		return nil, errBodySize
	}
	body := http.MaxBytesReader(c.w, c.r.Body, maxBody)
	parser := &parser{decoder: xml.NewDecoder(body), declared: map[string]bool{xmlNS: true}, maxNodes: maxNodes}
	root, err := parser.document()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errBodySize
	}
	return root, err
}

// A parser builds elements from a decoder. It also refuses documents that encoding/xml accepts: with undeclared prefixes, with
// prefixes for an empty namespace, with names that are legal only with a prefix, with two attributes of one name, with the
// namespaces that XML reserves (Namespaces in XML, section 3), and with a document type.
type parser struct {
	decoder *xml.Decoder
	// declared has the namespaces that were declared so far.
	declared map[string]bool
	// nodes counts elements, attributes and texts. A document has at most maxNodes of them.
	nodes, maxNodes int
}

// count adds n nodes. It returns errNodes if there are too many.
func (p *parser) count(n int) error {
	if p.nodes += n; p.nodes > p.maxNodes {
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
			return nil, bodyError(err)
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
	e, err := p.newElement(start, lang)
	if err != nil || depth > maxNesting {
		return nil, errXML
	}
	for {
		token, err := p.decoder.Token()
		if err != nil {
			return nil, bodyError(err)
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

// newElement returns an element without content. It returns errXML for a name or a namespace that the parser refuses.
func (p *parser) newElement(start xml.StartElement, lang string) (*element, error) {
	e := &element{name: start.Name, lang: lang}
	if err := p.declare(start.Attr); err != nil {
		return nil, err
	}
	names := make(map[xml.Name]bool, len(start.Attr))
	for _, attr := range start.Attr {
		if names[attr.Name] {
			return nil, errXML
		}
		names[attr.Name] = true
		if isDeclaration(attr) {
			continue
		}
		if attr.Name.Space != "" && !p.declared[attr.Name.Space] || !isLocalName(attr.Name.Local) {
			return nil, errXML
		}
		if attr.Name.Space == xmlNS && attr.Name.Local == "lang" {
			e.lang = attr.Value
		}
		e.attrs = append(e.attrs, attr)
	}
	if start.Name.Space != "" && !p.declared[start.Name.Space] || start.Name.Space == xmlNS || !isLocalName(start.Name.Local) {
		return nil, errXML
	}
	return e, nil
}

// isDeclaration reports whether an attribute declares a namespace.
func isDeclaration(attr xml.Attr) bool {
	return attr.Name.Space == "xmlns" || attr.Name.Space == "" && attr.Name.Local == "xmlns"
}

// declare records the namespaces that attributes declare.
func (p *parser) declare(attrs []xml.Attr) error {
	for _, attr := range attrs {
		if hasColon(attr.Name) {
			return errXML
		}
		if !isDeclaration(attr) {
			continue
		}
		if attr.Value == "" && attr.Name.Space == "xmlns" || len(attr.Value) > maxNamespace {
			return errXML
		}
		if attr.Value == xmlnsNS || attr.Value == xmlNS && attr.Name.Local != "xml" {
			return errXML
		}
		p.declared[attr.Value] = true
	}
	return nil
}

// hasColon reports whether a name is like ":a", which encoding/xml takes for a name without a prefix.
func hasColon(name xml.Name) bool { return strings.Contains(name.Local, ":") }

// isLocalName reports whether the local part of a name that encoding/xml accepts is a legal name by itself: "a:1" is a legal name,
// and "1" is none.
func isLocalName(local string) bool {
	if first := local[0] | 0x20; first >= 'a' && first <= 'z' || local[0] == '_' {
		return !strings.Contains(local, ":")
	}
	token, err := xml.NewDecoder(strings.NewReader("<" + local + "/>")).RawToken()
	start, ok := token.(xml.StartElement)
	return err == nil && ok && start.Name == xml.Name{Local: local} && !strings.Contains(local, ":")
}

// bodyError returns the error for the client of a body that could not be decoded.
func bodyError(err error) error {
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

// child returns the first child with a name in the namespace DAV:, or nil.
func (e *element) child(local string) *element {
	for _, child := range e.children() {
		if child.is(local) {
			return child
		}
	}
	return nil
}

// is reports whether the element has a name in the namespace DAV:.
func (e *element) is(local string) bool { return e.name.Space == davNS && e.name.Local == local }

var errTooLong = errors.New("webdav: the encoded XML is too long")

// A boundedWriter builds a string of at most limit bytes. Writes beyond that fail with errTooLong.
type boundedWriter struct {
	strings.Builder
	limit int
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}

func (b *boundedWriter) writeRaw(parts ...string) error {
	for _, part := range parts {
		if _, err := b.Write([]byte(part)); err != nil {
			return err
		}
	}
	return nil
}

func (b *boundedWriter) writeEscaped(text string) error { return xml.EscapeText(b, []byte(text)) }

// encodeContent encodes the element's content as XML of at most limit bytes. Each element in it declares its own namespace, so
// that the result can be inserted in any document. It returns errTooLong if limit is not enough.
func (e *element) encodeContent(limit int) (string, error) {
	b := &boundedWriter{limit: limit}
	if err := e.writeContent(b); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (e *element) writeContent(b *boundedWriter) error {
	for _, content := range e.content {
		var err error
		switch content := content.(type) {
		case string:
			err = b.writeEscaped(content)
		case *element:
			err = content.write(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *element) write(b *boundedWriter) error {
	if err := errors.Join(b.writeRaw("<", e.name.Local), b.writeAttr("xmlns", e.name.Space), b.writeAttrs(e.attrs), b.writeRaw(">")); err != nil {
		return err
	}
	if err := e.writeContent(b); err != nil {
		return err
	}
	return b.writeRaw("</", e.name.Local, ">")
}

func (b *boundedWriter) writeAttr(name, value string) error {
	return errors.Join(b.writeRaw(" ", name, `="`), b.writeEscaped(value), b.writeRaw(`"`))
}

// writeAttrs writes attributes. It declares a prefix for each one that has a namespace.
func (b *boundedWriter) writeAttrs(attrs []xml.Attr) error {
	for i, attr := range attrs {
		name := attr.Name.Local
		switch attr.Name.Space {
		case "":
		case xmlNS:
			name = "xml:" + name
		default:
			prefix := "a" + strconv.Itoa(i)
			if err := b.writeAttr("xmlns:"+prefix, attr.Name.Space); err != nil {
				return err
			}
			name = prefix + ":" + name
		}
		if err := b.writeAttr(name, attr.Value); err != nil {
			return err
		}
	}
	return nil
}

// encodeAttrs encodes attributes in at most limit bytes. It returns errTooLong if that is not enough.
func encodeAttrs(attrs []xml.Attr, limit int) (string, error) {
	b := &boundedWriter{limit: limit}
	err := b.writeAttrs(attrs)
	return b.String(), err
}

// escape returns text as the content of an XML element. Quotes stay as they are: in content they need no escape, and some
// clients do not decode numeric entities.
func escape(text string) string { return quotes.Replace(escapeAttribute(text)) }

var quotes = strings.NewReplacer("&#34;", `"`, "&#39;", "'")

// escapeAttribute returns text as the value of an XML attribute.
func escapeAttribute(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text))
	return b.String()
}
