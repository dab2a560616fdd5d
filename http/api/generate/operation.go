package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

var methods = []string{"get", "head", "put", "post", "patch", "delete", "options"}

// operations returns the operations of a path with their tags, WebDAV's methods included. OpenAPI has no place for those; the
// document has them in x-webdav-operations, and they share the tag of GET.
func (r *reader) operations(path string, item object) (all []*operation) {
	for _, m := range item {
		op, _ := m.value.(object)
		switch {
		case slices.Contains(methods, m.key):
			all = append(all, r.operation(strings.ToUpper(m.key), path, item, op))
		case m.key == "x-webdav-operations":
			get, _ := item.get("get").(object)
			for _, webdav := range op {
				own := object{
					{"operationId", strings.TrimSuffix(word(get, "operationId"), "Get") + webdav.key}, {"tags", get.get("tags")},
				}
				all = append(all, r.operation(webdav.key, path, item, append(own, webdav.value.(object)...)))
			}
		}
	}
	return all
}

func (r *reader) operation(method, path string, item, op object) *operation {
	shown := &operation{
		ID: word(op, "operationId"), Method: method, Path: path, Summary: word(op, "summary"),
		Description: r.prose(op.get("description")), Scope: word(op, "x-scope"),
	}
	shown.Idempotent, _ = op.get("x-idempotent").(bool)
	if tags := list(op, "tags"); len(tags) > 0 {
		shown.tag = fmt.Sprint(tags[0])
	}
	for _, value := range append(slices.Clone(list(item, "parameters")), list(op, "parameters")...) {
		p := r.resolved(value, "parameters")
		shown.Parameters = append(shown.Parameters, r.parameter(word(p, "name"), word(p, "in"), p))
	}
	if request, ok := op.get("requestBody").(object); ok {
		shown.Required, _ = request.get("required").(bool)
		if all := r.contents(request); len(all) > 0 {
			shown.Request = &all[0]
		}
	}
	for _, m := range members(op, "responses") {
		one := r.answer(m.key, r.resolved(m.value, "responses"))
		if m.key < "4" {
			shown.Answers = append(shown.Answers, one)
		} else {
			shown.Refusals = append(shown.Refusals, one)
		}
	}
	shown.Curl = curl(shown)
	return shown
}

// parameter returns a parameter or a header; both have a schema, and a description of their own.
func (r *reader) parameter(name, in string, p object) parameter {
	shown := parameter{Name: name, In: in, shape: r.shape(p.get("schema"))}
	shown.Required, _ = p.get("required").(bool)
	example := r.example(p.get("schema"))
	if own := p.get("example"); own != nil {
		example = own
	}
	if items, ok := example.([]any); ok {
		example = items[0]
	}
	shown.Example = fmt.Sprint(example)
	if text := r.prose(p.get("description")); text != "" {
		shown.shape.Description = text
	}
	return shown
}

func (r *reader) contents(of object) []content {
	var all []content
	for _, m := range members(of, "content") {
		media, _ := m.value.(object)
		all = append(all, content{m.key, r.shape(media.get("schema")), r.body(m.key, media)})
	}
	return all
}

// usual are headers of nearly every response, which the introduction describes.
var usual = []string{"X-Request-Id", "Cache-Control"}

func (r *reader) answer(status string, response object) answer {
	shown := answer{Status: status, Description: r.prose(response.get("description")), Content: r.contents(response)}
	for _, m := range members(response, "headers") {
		if !slices.Contains(usual, m.key) {
			shown.Headers = append(shown.Headers, r.parameter(m.key, "header", r.resolved(m.value, "headers")))
		}
	}
	return shown
}

// curl returns the operation as a call of curl; empty for pages, which are for browsers.
func curl(o *operation) string {
	if o.tag == "pages" || o.Method == "OPTIONS" {
		return ""
	}
	words := []string{"curl"}
	switch {
	case o.Method == "HEAD":
		words = append(words, "-I")
	case slices.ContainsFunc(o.Answers, func(a answer) bool { return len(a.Content) > 0 && a.Content[0].Media == "text/event-stream" }):
		words = append(words, "-N")
	case o.Method == "PUT" && o.Request != nil && o.Request.Media == "*/*":
		words = append(words, "-T report.pdf")
	case o.Method != "GET" && !(o.Method == "POST" && o.Request != nil):
		words = append(words, "-X "+o.Method)
	}
	if o.Scope != "public" && o.Scope != "probe" {
		words = append(words, `-H "Authorization: Bearer $KEY"`)
	}
	lines := []string{strings.Join(words, " ")}
	var query []string
	path := o.Path
	for _, p := range o.Parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		case p.In == "query" && p.Required:
			query = append(query, p.Name+"="+url.QueryEscape(p.Example))
		case p.In == "header" && p.Required:
			lines = append(lines, `-H "`+p.Name+": "+p.Example+`"`)
		}
	}
	if r := o.Request; r != nil && r.Media == "application/json" {
		lines = append(lines, "-H 'Content-Type: application/json' -d '"+compacted(r.Example)+"'")
	} else if r != nil && r.Example != "" {
		lines = append(lines, "-d '"+r.Example+"'") // a form, which is curl's default
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return strings.Join(append(lines, `"$ATELIER`+path+`"`), " \\\n  ")
}

// compacted returns an example on one line.
func compacted(example string) string {
	lines := strings.Split(example, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "")
}
