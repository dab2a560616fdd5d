package entity

import "maps"

// With is a copy of a map with one entry more or replaced: a state that is left behind keeps its own.
func With[V any](all map[string]V, key string, value V) map[string]V {
	next := make(map[string]V, len(all)+1)
	maps.Copy(next, all)
	next[key] = value
	return next
}

// Without is a copy of a map that lacks entries.
func Without[V any](all map[string]V, keys ...string) map[string]V {
	next := maps.Clone(all)
	for _, key := range keys {
		delete(next, key)
	}
	return next
}
