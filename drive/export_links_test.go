package drive

import (
	"fmt"
	"strings"
	"testing"
)

// TestHardLinksAreBounded adds files with two names until there is no memory for more, and finds the second names.
func TestHardLinksAreBounded(t *testing.T) {
	var links hardLinks
	id := func(i int) fileID { return fileID{inode: uint64(i)} }
	at := func(i int) string { return fmt.Sprintf("%s%d/%d", strings.Repeat("folder/", 1000), i/2, i) }
	for range 3 {
		count := 0
		for links.add(id(count), 2, at(count)) {
			if count++; count > maxLinkMemory/1000 {
				t.Fatalf("there is memory for %d names", count)
			}
		}
		if count < maxLinkMemory/8000 || links.memory > maxLinkMemory {
			t.Fatalf("there is memory for %d names: %d bytes", count, links.memory)
		}
		if path := links.next(id(count)); path != "" {
			t.Errorf("a file that was not added has the name %q", path)
		}
		for i := range count {
			if path := links.next(id(i)); path != at(i) {
				t.Fatalf("the file has the name %q, want %q", path, at(i))
			}
		}
		if path := links.next(id(0)); path != "" || len(links.first) > 0 || links.memory != 0 {
			t.Fatalf("without further names %d names and %d bytes are left: %q", len(links.first), links.memory, path)
		}
	}
}
