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

// reference is the content of the page.
type reference struct {
	Title, Version string
	Summary        string
	Style          template.CSS
	Intro          template.HTML
	Topics         []topic
	Groups         []group
	Errors         []failure
	Schemas        []named
}

// topic is a heading of the introduction.
type topic struct{ ID, Title string }

// group is the operations of one tag.
type group struct {
	tag         string
	ID, Title   string
	Description template.HTML
	Operations  []*operation
}

// operation is a method of a path.
type operation struct {
	tag                       string
	ID, Method, Path, Summary string
	Description               template.HTML
	Scope                     string
	Idempotent                bool
	Parameters                []parameter
	Request                   *content
	Required                  bool
	Answers                   []answer
	Refusals                  []answer
	Curl                      string
}

// parameter is a parameter of a path, a query or a header, or a header of a response.
type parameter struct {
	Name, In string
	Required bool
	Example  string
	*shape
}

// content is a body in one media type.
type content struct {
	Media   string
	Schema  *shape
	Example string
}

// answer is a response of an operation.
type answer struct {
	Status      string
	Description template.HTML
	Headers     []parameter
	Content     []content
}

// failure is an error code and its meaning.
type failure struct {
	Code        string
	Description template.HTML
}

// named is a schema that others refer to.
type named struct {
	Name string
	*shape
	Example string
}

// reader takes the content of the page from the document. It keeps the first error.
type reader struct {
	doc object
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// newReference returns the content of the page. It fails if the document refers to a component that it does not have, or
// has an operation with a tag that it does not list.
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
			page.Errors = append(page.Errors, failure{code, r.prose(schema.get("description"))})
			continue
		}
		one := named{Name: m.key, shape: r.shape(schema)}
		if len(one.Fields) > 0 || len(one.Variants) > 0 {
			one.Example = r.body("application/json", object{{"schema", schema}})
		}
		page.Schemas = append(page.Schemas, one)
	}
	slices.SortFunc(page.Errors, func(a, b failure) int { return strings.Compare(a.Code, b.Code) })
	return page, r.err
}

// groups returns the operations by their tags, in the order of the document.
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
				r.fail(fmt.Errorf("%s %s: the document does not list the tag %q", one.Method, path.key, one.tag))
				continue
			}
			groups[i].Operations = append(groups[i].Operations, one)
		}
	}
	return groups
}

// topics returns the headings of a text in Markdown.
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

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// prose renders a description, which is Markdown. Markup in it is left out.
func (r *reader) prose(value any) template.HTML {
	text, _ := value.(string)
	if text == "" {
		return ""
	}
	var rendered bytes.Buffer
	r.fail(markdown.Convert([]byte(text), &rendered))
	return template.HTML(strings.TrimSpace(rendered.String())) // goldmark escapes all HTML in the text
}

func word(o object, key string) string {
	text, _ := o.get(key).(string)
	return text
}

func list(o object, key string) []any {
	items, _ := o.get(key).([]any)
	return items
}

func members(o object, key string) object {
	inner, _ := o.get(key).(object)
	return inner
}

// referenced returns the name of the component of a kind that value refers to.
func referenced(value object, kind string) (name string, ok bool) {
	return strings.CutPrefix(word(value, "$ref"), "#/components/"+kind+"/")
}

// component returns a component by its name. It fails if there is none.
func (r *reader) component(kind, name string) object {
	found, ok := members(members(r.doc, "components"), kind).get(name).(object)
	if !ok {
		r.fail(fmt.Errorf("there is no #/components/%s/%s", kind, name))
	}
	return found
}

// resolved returns the object that value is or refers to.
func (r *reader) resolved(value any, kind string) object {
	o, _ := value.(object)
	if name, ok := referenced(o, kind); ok {
		return r.component(kind, name)
	}
	return o
}

// errorCode returns the code of a schema of an error; empty if the schema is of something else.
func errorCode(schema object) string {
	code, _ := members(members(schema, "properties"), "error").get("const").(string)
	return code
}
