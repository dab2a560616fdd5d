package entity_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
)

func TestCheckText(t *testing.T) {
	for name, test := range map[string]struct {
		text        string
		least, most int
		want        string
	}{
		"shortest":        {"é", 1, 2, ""},
		"longest":         {"éé", 1, 2, ""},
		"optional":        {"", 0, 2, ""},
		"empty":           {"", 1, 2, "f must have 1 to 2 characters"},
		"long":            {"ééé", 1, 2, "f must have 1 to 2 characters"},
		"long, optional":  {"ééé", 0, 2, "f must have at most 2 characters"},
		"control":         {"a\u0085", 1, 2, "f has a control character or is not UTF-8"},
		"override":        {"a\u202e", 1, 2, "f has a control character or is not UTF-8"},
		"embedding":       {"a\u202a", 1, 2, "f has a control character or is not UTF-8"},
		"isolate":         {"\u2066\u2069", 1, 2, "f has a control character or is not UTF-8"},
		"line separator":  {"a\u2028", 1, 2, "f has a control character or is not UTF-8"},
		"paragraph":       {"a\u2029", 1, 2, "f has a control character or is not UTF-8"},
		"direction mark":  {"\u05d0\u200f", 1, 2, ""},
		"joiner":          {"\u0645\u200c", 1, 2, ""},
		"encoded word":    {"=?utf-8?q?x?=", 1, 20, ""},
		"not UTF-8":       {"a\xff", 1, 2, "f has a control character or is not UTF-8"},
		"not UTF-8, long": {"aaaa\xff", 1, 2, "f has a control character or is not UTF-8"},
	} {
		err := entity.CheckText("f", test.text, test.least, test.most)
		if err == nil && test.want != "" || err != nil && (err.Code != entity.InvalidRequest || err.Message != test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestCheckLabel(t *testing.T) {
	for name, isValid := range map[string]bool{
		"a": true, strings.Repeat("é", 200): true, "": false, " \u00a0": false, strings.Repeat("é", 201): false, "a\n": false,
		"\u200b": false, "\u200e \ufeff": false, "\u200bx": true, "\u202ex": false,
	} {
		if err := entity.CheckLabel(name); (err == nil) != isValid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestIsID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "usr_01~": true, strings.Repeat("a", 128): true,
		"": false, strings.Repeat("a", 129): false, "a b": false, "a\n": false, "é": false,
	} {
		if got := entity.IsID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func TestHashesEqual(t *testing.T) {
	hash, other := sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))
	for name, test := range map[string]struct {
		stored, given []byte
		want          bool
	}{
		"equal":     {hash[:], hash[:], true},
		"other":     {hash[:], other[:], false},
		"short":     {hash[:31], hash[:31], false},
		"both none": {nil, nil, false},
		"none":      {nil, hash[:], false},
	} {
		if got := entity.HashesEqual(test.stored, test.given); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestIsUseRecorded(t *testing.T) {
	const minute = 60_000
	for _, test := range []struct {
		lastUsedAt, at int64
		want           bool
	}{{0, 5, false}, {100, 100, true}, {100, 99 + minute, true}, {100, 100 + minute, false}, {100, 50, true}, {100 + 2*minute, 100, false}} {
		if got := entity.IsUseRecorded(test.lastUsedAt, test.at); got != test.want {
			t.Errorf("%d, %d: %v", test.lastUsedAt, test.at, got)
		}
	}
}

func TestWithinAgreesWithSegments(t *testing.T) {
	path := rapid.StringMatching(`([ab]{1,2}(/[ab]{1,2}){0,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := path.Draw(t, "a"), path.Draw(t, "b")
		want := b == "" || strings.HasPrefix(a+"/", b+"/")
		if entity.Within(a, b) != want {
			t.Errorf("Within(%q, %q) is %t", a, b, !want)
		}
	})
}
