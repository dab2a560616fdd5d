package edge

import (
	"os"
	"strings"
	"testing"
)

// TestRemovedHeadersAreDocumented finds each header that no app gets in the documentation: the developer of an app looks there for a
// missing header.
func TestRemovedHeadersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, apps, _ := strings.Cut(string(text), "\n- *Headers.* ")
	apps, _, _ = strings.Cut(apps, "\n- *")
	documented := map[string]bool{}
	for i, name := range strings.Split(strings.ToLower(apps), "`") {
		documented[name] = i%2 == 1 // the parts between two backquotes
	}
	for name := range originHeaders {
		if !documented[name] {
			t.Errorf("the documentation does not name %s", name)
		}
	}
}
