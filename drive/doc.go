// Package drive stores the drives of workspaces: plain files below a data directory.
//
//	<dir>/<workspace>/files/   the drive itself; the workspace's computer mounts it
//	<dir>/<workspace>/tmp/     the staging folder, on the same file system: new content ("<id>") and trash ("<id>.trash")
//	<dir>/<workspace>/images/  images of the inputs of sessions, which are not files of the drive; see images.go
//	<dir>/<workspace>/<name>   small protocol state, such as locks.json
//
// # The life of a change
//
// Every change of a drive is prepared in the staging folder and becomes visible by one rename. This is the flow of a PUT;
// the other changes stage and rename other entries.
//
//  1. drive.serve in package http/api gets the request after authentication, authorizes it for writing and calls webdav's
//     Handler.ServeDrive.
//  2. webdav's call.serve decodes the path, opens the drive with Drives.Open, and calls call.put. That builds the Change: the
//     author, the principal, the lock tokens of the request, and a Guard that checks conditional headers.
//  3. Drive.Put calls begin, which admits the operation and creates its id. preflightPut calls Guard and checks the locks a first time,
//     to refuse before the body is read; for a small body it leaves the checks that read the disk to step 6.
//  4. Drive.receive streams the body to tmp/<id> and syncs it. No path is locked, however long the upload takes.
//  5. attempt.lock locks the path. A path conflicts with itself, its ancestors and its descendants.
//  6. attempt.checkGuard calls Guard again and checks the locks (see Locks). From here to step 10 no other operation can change the path.
//  7. attempt.commit calls Change.Authenticate, which verifies that the caller's credential is still valid, and
//     attempt.intend: the activity entity authorizes the operation for Change.Principal and makes an intent durable. The intent holds the operation, its
//     author, and the inode that will appear. After this step a client that disconnects no longer stops the operation.
//  8. attempt.commit renames tmp/<id> to the path and syncs both folders. Now the operation has happened. Operations that run at
//     the same time share the syncs of the staging folder (sharedSync).
//  9. attempt.commit sends Complete. The activity entity appends the operation's row to the workspace's sequence and removes
//     the intent, in one batch of the journal.
//  10. attempt.end unlocks the path, and call.put answers 201 or 204 with the new ETag.
//
// The paths stay locked from the change on disk to the commit of its row, so that the author of a path's last row is
// the author of its content.
//
// # Agreement of disk and sequence
//
// Either both the disk and the sequence have an operation or neither has it. Drive.recover lists the intents that were
// not completed and examines the disk: if the intent's inode is at the operation's path (for a delete: if the trash has
// an entry with the intent's id), the operation has happened and recovery completes the intent. Otherwise it has not
// happened: recovery moves an entry that the operation had already put in the trash back to its path, and abandons the
// intent. The cost grows with the operations that were in flight, not with the size of the drive. Drives.Open recovers a
// drive before its first use, whichever process or machine left the intents.
//
// If the journal does not answer, the outcome of an Intend or a Complete is unknown. The client gets Unavailable, and the
// operation keeps its paths locked while attempt.retryOutcome sends the command again in the background, with exponential
// backoff, until the outcome is known.
//
// # Rename
//
// A MOVE follows the steps above through call.move and Drive.Move. It stages nothing, so step 4 is missing, and it locks
// both paths. The locks of the whole source tree and of the destination can refuse it. In step 8 attempt.install moves
// a replaced entry to the trash first, unless one rename can replace it (a file by another file); if the second rename
// fails, it moves the replaced entry back, and if that fails too, recovery does it at the next start. The row has both
// paths. Locks are on paths and do not move: the locks of the source end. Drive.sweep deletes the trash.
//
// # Locks
//
// The locks of WebDAV clients (package locks) hold for every change through a drive's operations, whichever door it comes through:
// attempt.checkGuard checks them where the change is made. Only Change.Submits lets a caller pass its own locks. They do not hold for
// Restore, which replaces the drive as a whole, and for the processes of computers, which write the files themselves.
//
// # File descriptors
//
// An open drive holds a few descriptors, and an operation a few more. One limit covers both: at the limit, the least
// recently used idle drive is evicted; if no drive is idle, the operation waits in a queue and fails with Unavailable after
// a timeout. A drive that is not open uses no memory (see cache). Traversing a tree takes one descriptor at
// any depth and does not recurse, so that folders nested by processes do no harm; MaxDepth bounds the paths that the
// drive's own operations create.
//
// # Backups
//
// Export writes a drive as an archive while the drive is in use. Restore unpacks an archive in the staging folder, verifies
// all of it, and exchanges it with the drive's tree in one step, under a lock on the whole drive and with an intent like any
// other change. The root folder of the restored tree is marked with the id of the restore, so that a restore that is
// repeated after a crash is recognized as done.
//
// # Links
//
// Reads follow a symbolic link that stays inside the drive. Changes never go through a linked folder, and an operation on
// a link changes the link itself. A path that leads out of the drive is not found. Pipes, sockets and devices are
// neither listed nor opened.
package drive
