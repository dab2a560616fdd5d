// Package drive keeps the drives of workspaces: plain files below a data directory.
//
//	<dir>/<workspace>/files/   the drive itself, as the computer mounts it
//	<dir>/<workspace>/tmp/     what is being made ("<id>") and what was taken away ("<id>.trash"), on the same file system
//	<dir>/<workspace>/<name>   small state of protocols, such as locks.json
//
// # One operation
//
// Whatever changes a drive is made aside first and appears by one rename. An operation is
//
//	make aside in tmp/ and fsync     an upload of any size, a folder, the copy of a tree; no lock is held
//	lock the paths                   a path conflicts with itself, its ancestors and its descendants
//	check                            what the caller demands of the current state (Change.Guard)
//	confirm                          the caller's access, once more (Change.Confirm)
//	Intend                           durable: the operation, its author, and the inode that will appear; the activity
//	                                 authorizes it for the caller (Change.Principal)
//	rename, fsync the folders        from here on it happened
//	Complete                         durable: the row in the workspace's sequence
//	unlock, answer
//
// The lock is held from the change on disk to the event's commit, so that the last event's author is the content's
// author. Once the intent is durable the client's going away changes nothing.
//
// # Agreement of disk and sequence
//
// Either both have an operation or neither. Recover asks for the intents that nobody completed and looks at the disk:
// the intent's inode at the operation's path, or for a delete the trash that bears the intent's id, says that it
// happened, and it is completed; anything else says that it did not: what it had already put aside is put back, and
// it is abandoned. This costs what was in flight and not the size of the drive. Opening a drive recovers it before it is
// touched, whichever process or machine left the intents.
//
// Where the journal does not answer, the outcome of an Intend or a Complete is unknown. The client gets unavailable,
// and the operation keeps its paths locked while it asks again, with growing pauses, until the outcome is known.
//
// # File descriptors
//
// An open drive holds a few descriptors, and an operation a few more. Both are counted against one bound: where it is
// reached the drive that was not used for the longest time is evicted, and where all are in use the operation waits its
// turn, and then is unavailable. A drive that is not open takes no memory; see cache. Walks through trees hold no
// descriptor for each level and do not recurse, so that the depth of what processes make does not matter; what the drive's
// operations make is bounded by MaxDepth.
//
// # Backups
//
// Export writes a drive as an archive while it is in use. Restore makes an archive's tree aside, has all of it verified,
// and swaps it with the drive's in one step, under a lock on the whole drive and with an intent like any operation. The
// restored tree's root bears the restore's name, so that a repetition after a crash finds it done.
//
// # Links
//
// Reading follows a symbolic link that stays inside the drive. Nothing is changed through a linked folder, and an
// operation on a link is on the link itself. Whatever would leave the drive is not found. Other special files are
// neither shown nor opened.
package drive
