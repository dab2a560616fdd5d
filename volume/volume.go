// Package volume measures the free space of file systems.
//
// A file system has two resources that files occupy: bytes, and inodes, one for each file, folder and link. Either may be
// exhausted first: two thousand empty files fill a volume of two thousand inodes, although its bytes are free. So drives
// and the journal treat both in the same way, each with a reserve of bytes and a reserve of inodes. This package calls a
// number of inodes a number of files.
package volume

import "math"

// Unlimited is the number of free files of a file system that allocates inodes as they are needed (Btrfs, for example): only
// its bytes are limited.
const Unlimited = math.MaxUint64

// Usage is the use of a file system.
type Usage struct {
	// FreeBytes are the bytes that a process without privileges may still write.
	FreeBytes, UsedBytes, TotalBytes uint64
	// FreeFiles is the number of files that may still be made, or Unlimited. UsedFiles is the number of files that exist, or
	// Unlimited if it is unknown.
	FreeFiles, UsedFiles uint64
}
