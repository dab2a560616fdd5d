// Package webdav serves drives by WebDAV (RFC 4918, classes 1 and 2).
//
// The protocol is written here and not taken from golang.org/x/net/webdav, whose PUT truncates in place, whose MOVE and
// COPY are many operations, whose locks are exclusive only and whose If header knows neither Not nor entity tags.
//
// A request goes decode (path.go), open the drive, then one file a method. What a method demands of the current state
// (If, If-Match and its kin, locks) is a guard that the drive asks again while it holds the paths, so that nothing comes
// between the check and the change.
//
// Locks belong to paths and live in one small file beside each drive. They are shared or exclusive, at most an hour
// long, and their tokens are good for whoever made them.
//
// Errors are JSON, { "error": code, "message": text }, but where RFC 4918 names an XML element for them.
// docs/webdav.md tells what clients see.
package webdav
