package drive

import (
	"slices"
	"strings"
)

// tree names the generated tree strictly below which a path lies: the path up to its first generated segment.
func (d *Drives) tree(path string) string {
	for start := 0; ; {
		length := strings.IndexByte(path[start:], '/')
		if length < 0 {
			return ""
		}
		if end := start + length; slices.Contains(d.generated, path[start:end]) {
			return path[:end]
		}
		start += length + 1
	}
}
