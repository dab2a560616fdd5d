package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/keys"
)

func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID("key_")
		text, hash := keys.New(KeyStart, id)
		k, ok := parseKey(text)
		back, secret := k.id, k.secret
		if !ok || back != id || len(hash) != 32 || len(secret) != 40 || seen[secret] {
			t.Fatalf("%s: %s %s %v", text, back, secret, ok)
		}
		if prefix := user.ShownPrefix(id, false); prefix != "atl_"+id[4:12] || !strings.HasPrefix(text, prefix) {
			t.Fatalf("prefix %s of %s", prefix, text)
		}
		seen[secret] = true
	}
}

func FuzzKey(f *testing.F) {
	good, _ := keys.New(KeyStart, NewID("key_"))
	for _, seed := range []string{"", "atl_", good, good[1:], good + "_", strings.ToUpper(good), strings.Replace(good, "_", "-", 2)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, ok := parseKey(text)
		id, secret := k.id, k.secret
		if ok && "atl_"+strings.TrimPrefix(id, "key_")+"_"+secret != text {
			t.Errorf("%q is %q and %q", text, id, secret)
		}
		if !ok && (id != "" || secret != "") {
			t.Errorf("%q is refused and parsed", text)
		}
	})
}

// TestCursors checks that each cursor is accepted with its binding only, and that no edited cursor is accepted.
func TestCursors(t *testing.T) {
	s := newCursors(make([]byte, 32))
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.String().Draw(t, "place")
		walk := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "walk")
		other := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "other")
		text := s.encode(place, Binding(walk...))
		if len(text) <= 1024 {
			if back, err := s.decode(text, Binding(walk...)); err != nil || back != place {
				t.Fatalf("%q came back as %q, %v", place, back, err)
			}
		}
		if strings.Join(walk, "\x00") != strings.Join(other, "\x00") || len(walk) != len(other) {
			if _, err := s.decode(text, Binding(other...)); err == nil {
				t.Fatalf("a cursor of %q was taken for %q", walk, other)
			}
		}
		edited := []byte(text)
		edited[rapid.IntRange(0, len(edited)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if _, err := s.decode(string(edited), Binding(walk...)); err == nil {
			t.Fatalf("an edited cursor was taken")
		}
	})
}

func FuzzCursor(f *testing.F) {
	s := newCursors(make([]byte, 32))
	binding := Binding("api-keys", "usr_01j0000000000000000000000a")
	f.Add(s.encode("key_1", binding))
	f.Add("")
	f.Add("AAAA\nAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if place, err := s.decode(text, binding); err == nil && s.encode(place, binding) != text {
			t.Errorf("%q is a second text of %q", text, place)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{}`, `{"name":"x"}`, `{"name":null}`, `{"name":"x","name":"y"}`, `{"name":"\ud800"}`, `{"x":1}`, `[1]`, `{"name":"x"} x`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in struct {
			Name string `json:"name"`
		}
		err := decodeJSON(text, &in)
		name := in.Name
		if err != nil {
			return
		}
		var loose map[string]string
		decoder := json.NewDecoder(bytes.NewReader(text))
		if err := decoder.Decode(&loose); err != nil || decoder.More() || !utf8.Valid(text) {
			t.Fatalf("%q was accepted: %v", text, err)
		}
		if len(loose) > 1 || loose["name"] != name || loose == nil {
			t.Errorf("%q was read as %q", text, name)
		}
	})
}
