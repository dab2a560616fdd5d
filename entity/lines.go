package entity

import "bytes"

// lineEnds are the characters beside CR and LF at which some clients end a line, with their form in JSON. Neither server-sent events (HTML
// standard, section 9.2.5) nor newline-delimited JSON end a line there.
var lineEnds = []struct{ character, escaped []byte }{
	{[]byte("\u0085"), []byte(`\u0085`)},
	{[]byte("\u2028"), []byte(`\u2028`)},
	{[]byte("\u2029"), []byte(`\u2029`)},
}

// EscapeLineEnds returns a JSON text that no client takes for several lines: U+0085, U+2028 and U+2029, which only strings may contain,
// are escaped. It returns text itself if there are none.
func EscapeLineEnds(text []byte) []byte {
	for _, end := range lineEnds {
		if bytes.Contains(text, end.character) {
			text = bytes.ReplaceAll(text, end.character, end.escaped)
		}
	}
	return text
}
