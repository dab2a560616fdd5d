package main

import (
	"bytes"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

// reference is the content of the page. The template reference.html reads its exported fields and the exported fields of its parts.
type reference struct {
	Title, Version string
	Summary        string
	Style          template.CSS
	Intro          template.HTML
	Topics         []topic
	Groups         []group
	Errors         []errorEntry
	Schemas        []namedSchema
}

// topic is a heading of the introduction, with its anchor.
type topic struct{ ID, Title string }

// group is a section of the page with the operations of one tag.
type group struct {
	tag         string
	ID, Title   string
	Description template.HTML
	Operations  []*operation
}

// operation is a method of a path. Required reports whether it requires the request body. Responses are the successful
// responses, and Errors the responses with a status of 400 or more.
type operation struct {
	tag                       string
	ID, Method, Path, Summary string
	Description               template.HTML
	Scope                     string
	Idempotent                bool
	Parameters                []parameter
	Request                   *content
	Required                  bool
	Responses                 []response
	Errors                    []response
	Curl                      string
}

// parameter is a parameter in a path, a query or a header of a request, or a header of a response.
type parameter struct {
	Name, In string
	Required bool
	Example  string
	*shape
}

// content is a request or response body in one media type.
type content struct {
	Media   string
	Schema  *shape
	Example string
}

// response is a response of an operation.
type response struct {
	Status      string
	Description template.HTML
	Headers     []parameter
	Content     []content
}

// errorEntry is an error code and its description.
type errorEntry struct {
	Code        string
	Description template.HTML
}

// namedSchema is a schema of the section Schemas. Other schemas refer to it by its name.
type namedSchema struct {
	Name string
	*shape
	Example string
}

// reader reads the content of the page from a document. After an error it continues with incomplete content; the caller must check
// err, which is the first error.
type reader struct {
	doc object
	err error
}

// fail sets err if it is the first error. It ignores nil.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// newReference returns the content of the page for a document. It fails if the document refers to a component that does not exist,
// or if an operation has a tag that the document does not list.
func newReference(doc object) (*reference, error) {
	r := &reader{doc: doc}
	info, _ := doc.get("info").(object)
	page := &reference{
		Title: word(info, "title"), Version: word(info, "version"), Summary: word(info, "summary"),
		Intro: r.prose(info.get("description")), Topics: topics(word(info, "description")),
	}
	components, _ := doc.get("components").(object)
	page.Groups = r.groups()
	for _, m := range members(components, "schemas") {
		schema := m.value.(object)
		if code := errorCode(schema); code != "" {
			page.Errors = append(page.Errors, errorEntry{Code: code, Description: r.prose(schema.get("description"))})
			continue
		}
		one := namedSchema{Name: m.key, shape: r.shape(schema)}
		if len(one.Fields) > 0 || len(one.Variants) > 0 {
			one.Example = r.exampleBody("application/json", object{{"schema", schema}})
		}
		page.Schemas = append(page.Schemas, one)
	}
	slices.SortFunc(page.Errors, func(a, b errorEntry) int { return strings.Compare(a.Code, b.Code) })
	return page, r.err
}

// groups returns the operations grouped by tag, in the order of the tags and the paths in the document.
func (r *reader) groups() []group {
	var groups []group
	for _, value := range list(r.doc, "tags") {
		tag := value.(object)
		title := word(tag, "x-displayName")
		if title == "" {
			title = word(tag, "name")
		}
		groups = append(groups, group{
			tag: word(tag, "name"), ID: strings.ReplaceAll(word(tag, "name"), " ", "-"), Title: title, Description: r.prose(tag.get("description")),
		})
	}
	for _, path := range members(r.doc, "paths") {
		for _, one := range r.operations(path.key, path.value.(object)) {
			i := slices.IndexFunc(groups, func(g group) bool { return g.tag == one.tag })
			if i < 0 {
				r.fail(fmt.Errorf("%s %s has the tag %q, which the document does not list under tags: add it there", one.Method, path.key, one.tag))
				continue
			}
			groups[i].Operations = append(groups[i].Operations, one)
		}
	}
	return groups
}

// topics returns the second-level headings of a Markdown text, with the anchors that goldmark gives them.
func topics(text string) []topic {
	var all []topic
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(title)
			all = append(all, topic{strings.ReplaceAll(strings.ToLower(title), " ", "-"), title})
		}
	}
	return all
}

// markdown converts descriptions to HTML.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// prose converts a description from Markdown to HTML. It omits HTML tags in the description.
func (r *reader) prose(value any) template.HTML {
	text, _ := value.(string)
	if text == "" {
		return ""
	}
	var rendered bytes.Buffer
	r.fail(markdown.Convert([]byte(text), &rendered))
	return template.HTML(strings.TrimSpace(rendered.String())) // goldmark omits HTML in its input and escapes text
}

// word returns the string at a key, or "" if there is none.
func word(o object, key string) string {
	text, _ := o.get(key).(string)
	return text
}

// list returns the array at a key, or nil if there is none.
func list(o object, key string) []any {
	items, _ := o.get(key).([]any)
	return items
}

// members returns the object at a key, or nil if there is none.
func members(o object, key string) object {
	inner, _ := o.get(key).(object)
	return inner
}

// referenced returns the name of the component that value refers to. ok is false if value is not a reference to a component of
// that kind.
func referenced(value object, kind string) (name string, ok bool) {
	return strings.CutPrefix(word(value, "$ref"), "#/components/"+kind+"/")
}

// component returns the component with a name. If there is none, it returns nil and calls fail.
func (r *reader) component(kind, name string) object {
	found, ok := members(members(r.doc, "components"), kind).get(name).(object)
	if !ok {
		r.fail(fmt.Errorf("the document refers to #/components/%s/%s, which does not exist", kind, name))
	}
	return found
}

// resolved returns value, or the component that it refers to if it is a reference.
func (r *reader) resolved(value any, kind string) object {
	o, _ := value.(object)
	if name, ok := referenced(o, kind); ok {
		return r.component(kind, name)
	}
	return o
}

// errorCode returns the error code that a schema describes, or "" if it does not describe an error.
func errorCode(schema object) string {
	code, _ := members(members(schema, "properties"), "error").get("const").(string)
	return code
}
