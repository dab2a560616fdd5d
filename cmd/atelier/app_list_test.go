package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestListAppsByOneFolder has both flags that select apps by a folder, which exclude each other.
func TestListAppsByOneFolder(t *testing.T) {
	var out, errs bytes.Buffer
	code := run([]string{"app", "list", "--url", "http://127.0.0.1:1", "--path", "a", "--cwd", "b", "demo"}, console{&out, &errs})
	if code != exitConfig || !strings.Contains(errs.String(), "--path and --cwd can't be used together") {
		t.Errorf("status %d, %s", code, errs.String())
	}
}
