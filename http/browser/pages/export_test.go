package pages

import (
	"maps"
	"slices"
)

// Names lists the pages.
func Names() []string { return slices.Sorted(maps.Keys(templates)) }
