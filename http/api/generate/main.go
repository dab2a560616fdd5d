// Command generate converts http/api/openapi.yaml to the two files that a node serves: openapi.json, the same document as JSON,
// and reference.html, the API reference as a page.
//
//	generate -in openapi.yaml -style style.css -out folder
//
// yaml.go parses the source and resolves YAML's anchors and merge keys, so that each key occurs once in the JSON. reference.go,
// operation.go and schema.go collect the content of the page from the document, and example.go constructs example values for
// schemas. The template reference.html renders the content as one file without scripts. Its style is the style file of the other
// pages, which -style names, followed by reference.css.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"log"
	"os"
	"path/filepath"
	"strings"
)

var (
	//go:embed reference.html
	pageText string
	//go:embed reference.css
	pageStyle string
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("generate: ")
	in := flag.String("in", "openapi.yaml", "the `file` to read")
	style := flag.String("style", "../browser/pages/style.css", "the style `file` that the page shares with the other pages")
	out := flag.String("out", ".", "the `folder` for openapi.json and reference.html")
	flag.Parse()
	if err := run(*in, *style, *out); err != nil {
		log.Fatal(err)
	}
}

// run writes openapi.json and reference.html to the folder out. It fails if a file cannot be read or written, or if the document is
// invalid.
func run(in, style, out string) error {
	source, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	sharedStyle, err := os.ReadFile(style)
	if err != nil {
		return err
	}
	doc, err := parse(source)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	text, err := indentedJSON(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	page, err := render(doc, string(sharedStyle)+pageStyle)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	if err := os.WriteFile(filepath.Join(out, "openapi.json"), text, 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "reference.html"), page, 0o666)
}

// indentedJSON returns the document as JSON with one line for each key.
func indentedJSON(doc object) ([]byte, error) {
	compact, err := encode(doc)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, compact, "", " "); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// render returns the page for a document, with a style sheet. It fails if the document is invalid; see newReference.
func render(doc object, style string) ([]byte, error) {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	content, err := newReference(doc)
	if err != nil {
		return nil, err
	}
	content.Style = template.CSS(strings.TrimSpace(style)) // trusted: files of this repository
	var text bytes.Buffer
	if err := page.Execute(&text, content); err != nil {
		return nil, err
	}
	return withoutBlankLines(text.Bytes()), nil
}

// withoutBlankLines removes the blank lines that actions of the template leave, except blank lines inside <pre> elements.
func withoutBlankLines(text []byte) []byte {
	var kept [][]byte
	inPre := false
	for line := range bytes.Lines(text) {
		inPre = inPre || bytes.Contains(line, []byte("<pre"))
		if inPre || len(bytes.TrimSpace(line)) > 0 {
			kept = append(kept, line)
		}
		if bytes.Contains(line, []byte("</pre>")) {
			inPre = false
		}
	}
	return bytes.Join(kept, nil)
}
