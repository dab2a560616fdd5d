package entity

import (
	"encoding/json"
	"testing"
)

func TestEscapeLineEnds(t *testing.T) {
	for text, want := range map[string]string{
		`{"text":"a"}`: `{"text":"a"}`,
		"{\"text\":\"a\u0085b\u2028\u2029c\u2027\u202a\u0084\"}": "{\"text\":\"a\\u0085b\\u2028\\u2029c\u2027\u202a\u0084\"}",
		"\"\\\\\u2028\"": `"\\\u2028"`,
	} {
		got := EscapeLineEnds([]byte(text))
		if string(got) != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil || json.Unmarshal(got, &after) != nil {
			t.Fatalf("%s is not JSON", got)
		}
	}
}
