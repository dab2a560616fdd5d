package skill_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity/skill"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// file returns a file with front matter and a body.
func file(frontMatter string) string { return "---\n" + frontMatter + "\n---\nBody\n" }

func TestParse(t *testing.T) {
	for name, test := range map[string]struct{ content, name, description string }{
		"plain":                     {file("name: notes\ndescription: Writes notes."), "notes", "Writes notes."},
		"no description":            {file("name: notes"), "notes", ""},
		"null":                      {file("name: notes\ndescription: ~"), "notes", ""},
		"double quotes":             {file(`name: "a: \"b\" \\ \u00e9\x21"` + "\ndescription: \"two\n  lines\" # comment"), `a: "b" \ é!`, "two lines"},
		"single quotes":             {file("name: 'it''s #1'\ndescription: 'a\\n'"), "it's #1", `a\n`},
		"comments":                  {file("# first\n\nname: notes # why\ndescription: C# and a#b"), "notes", "C# and a#b"},
		"colon in a plain value":    {file("name: notes\ndescription: Use this when: always\n  or: never"), "notes", "Use this when: always or: never"},
		"plain on several lines":    {file("name: notes\ndescription:\n  one\n  two\n\n  three"), "notes", "one two three"},
		"folded block":              {file("name: notes\ndescription: >-\n  one\n  two\n\n  # three"), "notes", "one two # three"},
		"literal block":             {file("description: |2\n  one\n    two\nname: notes"), "notes", "one two"},
		"keys of others":            {file("license: MIT\nallowed-tools:\n- Read\n- \"Bash(git: *)\"\nmetadata:\n  name: no\n  tags: [a, b]\nname: notes"), "notes", ""},
		"quoted key":                {file("\"name\": notes"), "notes", ""},
		"byte order mark and CRLF":  {"\ufeff---\r\nname: notes\r\ndescription: a\r\n---\r\n", "notes", "a"},
		"document end":              {"---\nname: notes\n...\n", "notes", ""},
		"no line after the hyphens": {"---\nname: notes\n---", "notes", ""},
	} {
		got, err := skill.Parse([]byte(test.content))
		if err != nil || got.Name != test.name || got.Description != test.description {
			t.Errorf("%s: %q, %q, %v; want %q, %q", name, got.Name, got.Description, err, test.name, test.description)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"empty file":           {"", "first line"},
		"no front matter":      {"# Notes\n", "first line"},
		"no end":               {"---\nname: notes\n", "no end"},
		"no name":              {file("description: a"), "no name"},
		"empty name":           {file("name: \"  \""), "no name"},
		"long name":            {file("name: " + strings.Repeat("a", skill.MaxName+1)), "name must have"},
		"control character":    {file("name: \"\\x07\""), "name has a control character"},
		"override":             {file("name: a\u202eb"), "name has a control character"},
		"escaped override":     {file(`name: "\u202e"`), "name has a control character"},
		"override described":   {file("name: a\ndescription: \"\\U0000202e\""), "description has a control character"},
		"zero byte":            {file("name: a\ndescription: \"\\x00\""), "description has a control character"},
		"long description":     {file("name: a\ndescription: " + strings.Repeat("é", skill.MaxDescription+1)), "description must have"},
		"no entry":             {file("name notes"), "`key: value`"},
		"indented":             {file(" name: notes"), "`key: value`"},
		"twice":                {file("name: a\nname: b"), "name occurs twice"},
		"list":                 {file("name:\n- a"), "name: its value is not a text"},
		"mapping":              {file("name:\n  a: b"), "name: its value is not a text"},
		"flow":                 {file("name: [a]"), "name: its value is not a text"},
		"alias":                {file("name: *a"), "name: its value is not a text"},
		"tag":                  {file("name: !!str a"), "name: its value is not a text"},
		"block with a comment": {file("name: |x\n  a"), "name: its value is not a text"},
		"open quote":           {file("name: \"a"), "no closing quote"},
		"text after a quote":   {file("name: 'a' b"), "after the closing quote"},
		"unknown escape":       {file(`name: "\q"`), "unknown escape"},
		"cut escape":           {file(`name: "\u00"`), "unknown escape"},
		"surrogate":            {file(`name: "\ud800"`), "unknown escape"},
		"not UTF-8":            {file("name: \xff"), "not UTF-8"},
		"too large":            {file("name: a\n") + strings.Repeat("x", skill.MaxBytes), "larger than"},
	} {
		if got, err := skill.Parse([]byte(test.content)); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "SKILL.md") {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, test.want)
		}
	}
}

func TestParseAgent(t *testing.T) {
	got, err := skill.ParseAgent([]byte("---\nname: Notes\ndescription: Writes notes.\ntier: openai-max\n---\n\nFirst\n\n---\nLast\n\n"))
	want := skill.Agent{
		Name: "Notes", Description: "Writes notes.", Tier: workspacev1.Tier_TIER_OPENAI_MAX, Instructions: "First\n\n---\nLast",
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := skill.ParseAgent([]byte(file("name: a\ndescription: b"))); err != nil || got.Tier != 0 {
		t.Errorf("no tier: %+v, %v", got, err)
	}
	for content, want := range map[string]string{
		file("name: a"): "AGENT.md has no description",
		file("name: a\ndescription: b\ntier: economy"): "AGENT.md: tier must be one of frontier",
		"Text": "AGENT.md: the file does not begin",
	} {
		if _, err := skill.ParseAgent([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

func TestPositionsSort(t *testing.T) {
	inOrder := []string{
		skill.Position(0, 0, "a"), skill.Position(0, 0, "b"), skill.Position(0, 1, "a"), skill.Position(1, 0, ""),
		skill.Position(300, 0, "a"), skill.Position(1<<20, 255, "z"), skill.BuiltinPosition(""), skill.BuiltinPosition("a"),
	}
	if !slices.IsSorted(inOrder) {
		t.Errorf("%q", inOrder)
	}
}

// FuzzParse checks that accepted files satisfy the limits.
func FuzzParse(f *testing.F) {
	f.Add(file("name: a\ndescription: >\n  b\ntier: balanced"))
	f.Add(file(`name: "\u00e9"`))
	f.Fuzz(func(t *testing.T, content string) {
		got, err := skill.Parse([]byte(content))
		if err == nil && (got.Name == "" || len([]rune(got.Name)) > skill.MaxName || strings.ContainsAny(got.Name+got.Description, "\n\x00")) {
			t.Errorf("%+v", got)
		}
		_, _ = skill.ParseAgent([]byte(content))
	})
}
