package workspace

import "maps"

// with and without are copies of a map: a state that is left behind keeps its own.
func with[V any](all map[string]V, id string, one V) map[string]V {
	next := make(map[string]V, len(all)+1)
	maps.Copy(next, all)
	next[id] = one
	return next
}

func without[V any](all map[string]V, id string) map[string]V {
	next := maps.Clone(all)
	delete(next, id)
	return next
}
