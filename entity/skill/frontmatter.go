package skill

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The front matter is a mapping at the top level of YAML 1.2. Of the values of the requested keys, parse understands
// plain and quoted scalars of one or several lines, and block scalars (| and >). It skips the values of all other keys, of any
// form, because their lines are indented or belong to a list. It resolves no anchors, aliases and tags.

var (
	errNoUTF8   = errors.New("the file is not UTF-8")
	errNoStart  = errors.New("the file does not begin with front matter: its first line must be ---")
	errNoEnd    = errors.New("the front matter has no end: a second line with --- is missing")
	errNoScalar = errors.New("its value is not a text")
	errNoQuote  = errors.New("its value has no closing quote")
	errAfter    = errors.New("its value goes on after the closing quote")
	errEscape   = errors.New("its value has an unknown escape")
)

// parse returns the values of the keys in the front matter, and the text after it without surrounding empty lines. A key that
// is missing or has no value is missing in values.
func parse(content string, keys []string) (values map[string]string, body string, err error) {
	if !utf8.ValidString(content) {
		return nil, "", errNoUTF8
	}
	content = strings.ReplaceAll(strings.TrimPrefix(content, "\ufeff"), "\r\n", "\n")
	first, rest, _ := strings.Cut(content, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return nil, "", errNoStart
	}
	lines := strings.Split(rest, "\n")
	end := slices.IndexFunc(lines, func(line string) bool {
		line = strings.TrimRight(line, " \t")
		return line == "---" || line == "..."
	})
	if end < 0 {
		return nil, "", errNoEnd
	}
	values, err = parseMapping(lines[:end], keys)
	if err != nil {
		return nil, "", err
	}
	return values, strings.Trim(strings.Join(lines[end+1:], "\n"), "\n"), nil
}

// parseMapping returns the values of the keys in the lines of a mapping.
func parseMapping(lines []string, keys []string) (map[string]string, error) {
	values, seen := map[string]string{}, map[string]bool{}
	for len(lines) > 0 {
		line := lines[0]
		if isBlank(line) || isComment(line) {
			lines = lines[1:]
			continue
		}
		key, value, isEntry := cutKey(line)
		if !isEntry {
			return nil, fmt.Errorf("the front matter has a line that is not `key: value`: %s", strconv.Quote(clip(line)))
		}
		more := 1 + countOfValue(lines[1:])
		if slices.Contains(keys, key) {
			if seen[key] {
				return nil, fmt.Errorf("%s occurs twice", key)
			}
			seen[key] = true
			text, err := parseValue(value, lines[1:more])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			if text != "" {
				values[key] = text
			}
		}
		lines = lines[more:]
	}
	return values, nil
}

// cutKey splits a line into a key at its beginning and the value after the colon.
func cutKey(line string) (key, value string, ok bool) {
	if strings.ContainsRune(" \t-", rune(line[0])) && !strings.HasPrefix(line, "---") {
		return "", "", false
	}
	for i := range len(line) {
		if line[i] == ':' && (i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t') {
			key = strings.Trim(strings.TrimRight(line[:i], " \t"), `"'`)
			return key, strings.Trim(line[i+1:], " \t"), key != ""
		}
	}
	return "", "", false
}

// countOfValue returns the number of lines at the beginning that belong to the value of the key before them: indented and
// empty lines, and the items of a list, which need not be indented.
func countOfValue(lines []string) int {
	for i, line := range lines {
		if !isBlank(line) && line[0] != ' ' && line[0] != '\t' && !strings.HasPrefix(line, "- ") && line != "-" {
			return i
		}
	}
	return len(lines)
}

// parseValue returns the text of a scalar: value is the text after the colon, and more the following lines of the scalar.
func parseValue(value string, more []string) (string, error) {
	switch {
	case value == "" || isComment(value):
		return parsePlain("", more)
	case value[0] == '|' || value[0] == '>':
		return parseBlock(value, more)
	case value[0] == '"' || value[0] == '\'':
		return parseQuoted(value, more)
	case strings.ContainsRune("[{&*!@`%#,?]}", rune(value[0])):
		return "", errNoScalar
	default:
		return parsePlain(value, more)
	}
}

// parsePlain returns a scalar without quotes. Its lines are joined by spaces.
func parsePlain(value string, more []string) (string, error) {
	text := []string{withoutComment(value)}
	for _, line := range more {
		line = strings.Trim(line, " \t")
		if strings.HasPrefix(line, "- ") || line == "-" {
			return "", errNoScalar
		}
		if value == "" && line != "" {
			if _, _, isEntry := cutKey(line); isEntry {
				return "", errNoScalar // a mapping
			}
		}
		if !isComment(line) {
			text = append(text, withoutComment(line))
		}
	}
	joined := strings.Join(strings.Fields(strings.Join(text, " ")), " ")
	if joined == "~" || joined == "null" {
		return "", nil
	}
	return joined, nil
}

// parseQuoted returns a scalar in single or double quotes. A line break in it is a space.
func parseQuoted(value string, more []string) (string, error) {
	quote := value[0]
	text := value[1:]
	for _, line := range more {
		text += " " + strings.Trim(line, " \t")
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			out.WriteByte(quote)
			i++
		case c == quote:
			if rest := strings.Trim(text[i+1:], " \t"); rest != "" && !isComment(rest) {
				return "", errAfter
			}
			return out.String(), nil
		case c == '\\' && quote == '"':
			size, err := unescape(&out, text[i+1:])
			if err != nil {
				return "", err
			}
			i += size
		default:
			out.WriteByte(c)
		}
	}
	return "", errNoQuote
}

// unescape writes the character of an escape in double quotes. text begins after the backslash. It returns the number of
// bytes of the escape without the backslash.
func unescape(out *strings.Builder, text string) (size int, err error) {
	if text == "" {
		return 0, errEscape
	}
	if plain := strings.IndexByte(`"\/ `, text[0]); plain >= 0 {
		out.WriteByte(text[0])
		return 1, nil
	}
	switch text[0] {
	case 'n', 'r', 't':
		out.WriteByte(' ') // names and descriptions have one line
		return 1, nil
	case 'x':
		return writeCode(out, text, 2)
	case 'u':
		return writeCode(out, text, 4)
	case 'U':
		return writeCode(out, text, 8)
	}
	return 0, errEscape
}

// writeCode writes a character; its code is the digits after the first byte of a text.
func writeCode(out *strings.Builder, text string, digits int) (size int, err error) {
	if len(text) < 1+digits {
		return 0, errEscape
	}
	code, err := strconv.ParseUint(text[1:1+digits], 16, 32)
	if err != nil || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
		return 0, errEscape
	}
	out.WriteRune(rune(code))
	return 1 + digits, nil
}

// parseBlock returns a block scalar. Its lines are returned as they are, without the indentation; the caller joins them.
func parseBlock(header string, more []string) (string, error) {
	if strings.Trim(withoutComment(header)[1:], "+-123456789") != "" {
		return "", errNoScalar
	}
	text := make([]string, 0, len(more))
	for _, line := range more {
		text = append(text, strings.TrimLeft(line, " \t"))
	}
	return strings.Trim(strings.Join(text, "\n"), "\n"), nil
}

// withoutComment returns a value without the comment after it, which begins with a space and #.
func withoutComment(value string) string {
	for i := 1; i < len(value); i++ {
		if value[i] == '#' && (value[i-1] == ' ' || value[i-1] == '\t') {
			return strings.TrimRight(value[:i], " \t")
		}
	}
	return strings.TrimRight(value, " \t")
}

func isBlank(line string) bool { return strings.Trim(line, " \t") == "" }

func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") }

// clip returns a bounded part of a line for an error.
func clip(line string) string {
	if len(line) > 60 {
		return strings.ToValidUTF8(line[:60], "") + "…"
	}
	return line
}
