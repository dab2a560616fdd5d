//go:build !linux

package persistence

import "github.com/cockroachdb/pebble/v2/vfs"

// placeOf returns "": a copy is not recognised here.
func placeOf(vfs.File) string { return "" }
