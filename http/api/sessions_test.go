package api

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
)

func TestUniqueName(t *testing.T) {
	const id = "upl_01j00000000000000000abcdef"
	for name, want := range map[string]string{
		"a.txt": "a-0000abcdef.txt", "a": "a-0000abcdef", ".profile": ".profile-0000abcdef", "a.tar.gz": "a.tar-0000abcdef.gz",
	} {
		if got := uniqueName(name, id); got != want || entity.CheckPath(got) != nil {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}
