package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// methods are the methods that a path item of OpenAPI can have.
var methods = []string{"get", "head", "put", "post", "patch", "delete", "options"}

// operations returns the operations of a path, including operations with a method of WebDAV. OpenAPI cannot describe methods of WebDAV,
// so the document has these operations in x-webdav-operations. Their tag and the beginning of their ids are the tag and the beginning of the
// id of the path's OPTIONS operation, or else of its GET operation.
func (r *reader) operations(path string, item object) (all []*operation) {
	for _, m := range item {
		op, _ := m.value.(object)
		switch {
		case slices.Contains(methods, m.key):
			all = append(all, r.operation(strings.ToUpper(m.key), path, item, op))
		case m.key == "x-webdav-operations":
			model, ok := item.get("options").(object)
			if !ok {
				model, _ = item.get("get").(object)
			}
			start := strings.TrimSuffix(strings.TrimSuffix(word(model, "operationId"), "Options"), "Get")
			for _, webdav := range op {
				own := object{{"operationId", start + webdav.key}, {"tags", model.get("tags")}}
				all = append(all, r.operation(webdav.key, path, item, append(own, webdav.value.(object)...)))
			}
		}
	}
	return all
}

// operation returns the description of an operation. The parameters of the path item come before its own.
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
		one := r.response(m.key, r.resolved(m.value, "responses"))
		if m.key < "4" {
			shown.Responses = append(shown.Responses, one)
		} else {
			shown.Errors = append(shown.Errors, one)
		}
	}
	shown.Curl = curl(shown)
	return shown
}

// parameter returns the description of a parameter or of a response header. Its own description replaces the description of its schema.
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

// contents returns the media types of a request body or a response.
func (r *reader) contents(body object) []content {
	var all []content
	for _, m := range members(body, "content") {
		media, _ := m.value.(object)
		all = append(all, content{
			Media: m.key, Schema: r.shape(media.get("schema")), Example: r.exampleBody(m.key, media),
		})
	}
	return all
}

// commonHeaders are the headers of nearly every response. The introduction describes them, so operations do not list them.
var commonHeaders = []string{"X-Request-Id", "Cache-Control"}

// response returns the description of the response with a status.
func (r *reader) response(status string, described object) response {
	shown := response{Status: status, Description: r.prose(described.get("description")), Content: r.contents(described)}
	for _, m := range members(described, "headers") {
		if !slices.Contains(commonHeaders, m.key) {
			shown.Headers = append(shown.Headers, r.parameter(m.key, "header", r.resolved(m.value, "headers")))
		}
	}
	return shown
}

// streamed are the media types of responses that are read while they arrive.
var streamed = []string{"text/event-stream", "application/x-ndjson"}

// curl returns a command line of curl that calls the operation, or "" for OPTIONS, for WebSockets, and for pages, which are
// opened in a browser.
func curl(o *operation) string {
	isWebSocket := slices.ContainsFunc(o.Responses, func(r response) bool { return r.Status == "101" })
	if o.tag == "pages" || o.Method == "OPTIONS" || isWebSocket {
		return ""
	}
	words := []string{"curl"}
	switch {
	case o.Method == "HEAD":
		words = append(words, "-I")
	case slices.ContainsFunc(o.Responses, func(r response) bool { return len(r.Content) > 0 && slices.Contains(streamed, r.Content[0].Media) }):
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
		lines = append(lines, "-H 'Content-Type: application/json' -d '"+onOneLine(r.Example)+"'")
	} else if r != nil && r.Example != "" {
		lines = append(lines, "-d '"+r.Example+"'") // a form, which is the default content type of curl -d
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return strings.Join(append(lines, `"$ATELIER`+path+`"`), " \\\n  ")
}

// onOneLine returns an example in JSON without its line breaks and indentation.
func onOneLine(example string) string {
	lines := strings.Split(example, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "")
}
