// Package activity holds the rules of a workspace's file-activity sequence: what becomes a row, what folds into a
// summary, what counts as read and written, and where each row is indexed.
//
// A row's stored form is the JSON that pages and streams send, behind one byte for its kind (row.go). The version of the
// stream is the row's seq. Index entries and read counts are written behind the rows: the tail (tail.go) is what the
// indexes do not have yet, an index write (write.go) empties it, and queries add it to what they find.
package activity

import (
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Subscription asks for a workspace's rows as they come, as frames of a server-sent event stream.
type Subscription struct {
	WorkspaceID string
	Principal   *wirev1.Principal
	// After is the position after which the stream begins; 0: from the first row.
	After uint64
	// Reads includes read markers.
	Reads bool
	// Send writes whole frames to the client, and waits while the client takes no more. An error ends the stream.
	Send func(frames []byte) error
	// TrySend writes whole frames to the client without waiting, and reports whether it wrote them all. If not, the next call
	// is Send with the same frames, which writes what is missing; until then the frames must not change. Several goroutines
	// may call the two, one at a time. nil: Send alone is called.
	TrySend func(frames []byte) bool
}
