// Package webdav serves drives by WebDAV (RFC 4918, classes 1 and 2).
//
// The package does not use golang.org/x/net/webdav. In that package PUT truncates the file in place, MOVE and COPY consist of
// many operations, locks are always exclusive, and the If header supports neither Not nor entity tags.
//
// # One request
//
// Handler.ServeDrive is the entry point. call.serve decodes the path, opens the drive and its locks, and calls the handler of
// the method: call.get, call.propfind, call.put and so on, one or a few related methods in a file. A method that changes the
// drive passes a drive.Change, which call.change builds, to the drive. Its Guard checks the request's conditions (If,
// If-Match, If-None-Match, If-Unmodified-Since), and it has the lock tokens of the If header. The drive calls Guard and checks
// its locks (package locks) while it holds the paths, so that no other change comes between the check and this change. The package comment
// of drive describes the flow of a PUT ("The life of a change") and of a MOVE ("Rename") from here to the activity's row.
//
// # Errors
//
// The body of an error is JSON, { "error": code, "message": text }, or the XML element that RFC 4918 defines for the error.
// docs/webdav.md describes the protocol for clients.
package webdav
