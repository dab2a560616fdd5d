package yamlfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// form has a field of each type that the configuration files of the product have.
type form struct {
	Text    string
	Texts   []string
	Env     map[string]string
	Number  uint64
	Rate    float64
	On      bool
	Any     map[string]any
	Missing *string
}

func TestDecode(t *testing.T) {
	for content, want := range map[string]form{
		"":                                  {},
		"# nothing\n":                       {},
		"---\ntext: a\n...\n":               {Text: "a"},
		"text: a\n---\n":                    {Text: "a"},
		"\ufefftext: a\n":                   {Text: "a"},
		"text: 0123456":                     {Text: "0123456"},
		"text: 1_000":                       {Text: "1_000"},
		"text: 1.10 # a version":            {Text: "1.10"},
		"text: -0":                          {Text: "-0"},
		"text: 0x1F":                        {Text: "0x1F"},
		"text: 1e3":                         {Text: "1e3"},
		"text: .inf":                        {Text: ".inf"},
		"text: '0123'":                      {Text: "0123"},
		"text: \"a\\tb\"":                   {Text: "a\tb"},
		"text: |\n  a\n  b\n":               {Text: "a\nb\n"},
		"text: true":                        {Text: "true"},
		"text: 2026-01-02":                  {Text: "2026-01-02"},
		"texts: [1.10, b, '0']":             {Texts: []string{"1.10", "b", "0"}},
		"texts:\n- 007\n- b\n":              {Texts: []string{"007", "b"}},
		"texts: []":                         {Texts: []string{}},
		"env:\n  PORT: 08\n  A: b\n":        {Env: map[string]string{"PORT": "08", "A": "b"}},
		`{"env": {"A": 1.50}}`:              {Env: map[string]string{"A": "1.50"}},
		"number: 12\nrate: 0.5\non: true\n": {Number: 12, Rate: 0.5, On: true},
		"any: {a: 010, b: {c: 1.0}}":        {Any: map[string]any{"a": "010", "b": map[string]any{"c": "1.0"}}},
		"any: {a: &x 1.0, b: *x}":           {Any: map[string]any{"a": "1.0", "b": "1.0"}},
		"missing: ~":                        {},
	} {
		var got form
		if err := Decode([]byte(content), &got, yaml.Strict()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", content, got, err, want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for content, want := range map[string]string{
		"text: a\n---\ntext: b\n": "more than one document",
		"text: a\ntext: b\n":      `mapping key "text" already defined`,
		"text: a\nother: b\n":     `[2:1] unknown field "other"`,
		"number: many":            "[1:9]",
		"number: -1":              "[1:9]",
		"text: [a":                "[1:",
		"- a\n":                   "[1:1]",
	} {
		var got form
		if err := Decode([]byte(content), &got, yaml.Strict()); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}
