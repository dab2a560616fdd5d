package session

import (
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
)

func TestCleanCwd(t *testing.T) {
	for cwd, want := range map[string]string{
		"": "", ".": "", "a": "a", "a/": "a", "a//b": "a/b", "./a/../b/.": "b", "a/b/../c": "a/c", "a/..": "",
		"/": reasonInvalid, "/a": reasonInvalid, "a\x00": reasonInvalid, "a\nb": reasonInvalid, strings.Repeat("a", 300): reasonInvalid,
		"..": reasonOutside, "../a": reasonOutside, "a/../..": reasonOutside,
	} {
		got, refused := CleanCwd(cwd)
		if refused != nil {
			got = refused.Reason
		}
		if got != want {
			t.Errorf("%q is %q, want %q", cwd, got, want)
		}
	}
}

func FuzzCleanCwd(f *testing.F) {
	for _, seed := range []string{"", "a/b/../c", "../..", "/", "a\x00", "..a", "a/..b/."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cwd string) {
		clean, refused := CleanCwd(cwd)
		if refused != nil {
			return
		}
		if clean != "" && entity.CheckPath(clean) != nil {
			t.Errorf("%q was cleaned to %q", cwd, clean)
		}
		if again, refused := CleanCwd(clean); refused != nil || again != clean {
			t.Errorf("%q was cleaned to %q, and that to %q", cwd, clean, again)
		}
	})
}
