// Command generate writes the files that are served for http/api/openapi.yaml: openapi.json, the same document as JSON, and
// reference.html, the API reference for people.
//
//	generate -in openapi.yaml -style style.css -out folder
//
// yaml.go parses the source and resolves YAML's anchors and merge keys, so that each key occurs once in the JSON.
// reference.go has the content of the page, schema.go the description of schemas, and example.go their examples. The page is
// one file without scripts. Its style is the style of the other pages (-style) and reference.css.
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
	style := flag.String("style", "../browser/pages/style.css", "the style `file` of the other pages")
	out := flag.String("out", ".", "the `folder` for openapi.json and reference.html")
	flag.Parse()
	if err := run(*in, *style, *out); err != nil {
		log.Fatal(err)
	}
}

func run(in, style, out string) error {
	source, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	common, err := os.ReadFile(style)
	if err != nil {
		return err
	}
	doc, err := parse(source)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	text, err := indented(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	page, err := render(doc, string(common)+pageStyle)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	if err := os.WriteFile(filepath.Join(out, "openapi.json"), text, 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "reference.html"), page, 0o666)
}

// indented returns the document as JSON with a line for each key.
func indented(doc object) ([]byte, error) {
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

// render returns the page of the document.
func render(doc object, style string) ([]byte, error) {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	shown, err := newReference(doc)
	if err != nil {
		return nil, err
	}
	shown.Style = template.CSS(strings.TrimSpace(style)) // the repository's own files
	var text bytes.Buffer
	if err := page.Execute(&text, shown); err != nil {
		return nil, err
	}
	return withoutBlankLines(text.Bytes()), nil
}

// withoutBlankLines drops the lines that the template's actions leave empty, outside of examples.
func withoutBlankLines(text []byte) []byte {
	var kept [][]byte
	verbatim := false
	for line := range bytes.Lines(text) {
		verbatim = verbatim || bytes.Contains(line, []byte("<pre"))
		if verbatim || len(bytes.TrimSpace(line)) > 0 {
			kept = append(kept, line)
		}
		if bytes.Contains(line, []byte("</pre>")) {
			verbatim = false
		}
	}
	return bytes.Join(kept, nil)
}
