// Package observe turns the changes that processes make to drives into rows of activity, with the author of each process.
//
// # The life of a change
//
//  1. Before a process starts, its author's watch begins with Observer.Begin. The first watch of a drive stores a mark beside
//     the drive (state.go), and the first one of the node opens a fanotify group with a mark on the file system of the drives,
//     and the kernel's process connector (reader.go).
//  2. Watch.Attribute registers the process before its code runs. A process belongs to the watch of its parent at the time of
//     its fork (processes.go).
//  3. The kernel queues an event for each created, written, renamed and removed entry of the file system. reader.drain reads
//     them in batches, then the forks that were reported until then, so that the process of each event is known.
//  4. batch.locate finds the path that each event's folder had at that time (folders.go, batch.go). Events of other folders, of
//     drives that are not watched and of this process are dropped: changes through the drive's routes have rows already.
//  5. table folds the changes of a drive for Window (fold.go).
//  6. flight.record locks the paths of up to 512 changes, as operations of the drive's routes do, compares each change with the
//     disk (verify.go), and sends the operations to the activity entity. So the rows of a path are in the order of its changes
//     by all authors. A change that does not agree with the disk waits for the event that explains it, once (refold.go);
//     then it is dropped, because another author has replaced it and has the later row.
//  7. Watch.End reads all events that are queued and returns when their rows are durable. The last watch of a drive removes
//     the mark; the last one of the node closes the group and the connector, so that idle nodes observe nothing.
//
// # Rows
//
// A row is one file, author and window of two seconds, with a count of the writes above one. These are decisions:
//
//   - A file that is created and removed within the window, such as a temporary file, has no row; nor has a version of a file that
//     is replaced within the window.
//   - Saving through a temporary file and a rename, or with a backup that is removed, is a write of the file, and a create if the
//     file did not exist. Events do not report whether a rename replaced a file; if the other events of the window do not show
//     it, the observer looks the path up in the sequence.
//   - A folder that is moved onto the drive is one create with the number of its entries, one that is moved away one delete.
//     Every entry of a tree that is created or removed piece by piece has a row.
//   - A write needs an event for a modification, because programs open files for writing without changing them. Writes
//     through a memory mapping have none; when the file is closed, its modification time tells.
//   - Changes of permissions, times and attributes, and pipes, sockets and devices have no rows. Nor have names that
//     entity.CheckPath refuses; a rename between such a name and a path is a create or a delete.
//   - Below a generated folder, operations have the folder as their tree, and the activity folds them into summaries.
//   - Reads have no rows: see ADR 19.
//
// A process that belongs to no watch, such as an administrator's shell, is the author "system".
//
// # Scans find missed changes
//
// Some changes are not seen: if the kernel's queue is too long, if more changes wait for the journal than may wait, if a folder
// moves to and fro faster than events are read, or if the node crashes. Then a scan compares the drive with its sequence (scan.go).
// The mark says since when changes may be missing after a crash: Observer.Recover scans the drives that have a mark, and no
// others. It is updated once a minute while the drive changes.
//
// A scan finds created, written and moved entries exactly. It attributes them to the drive's only author, or else to the
// system. A removed entry is found if the sequence knows its name; otherwise its folder gets a summary row.
//
// The time of a folder is the time of its last change, which may be later than the scan's time and hide a removal before that. A name of
// such a folder that is missing is compared with the sequence again after the next flight, which has the rows of all events that
// were queued (suspects.go).
//
// # Modes
//
// The mode Events needs root in the first process and user namespace, Linux 5.17, and a file system with handles, such as
// ext4, XFS, Btrfs or tmpfs; not overlayfs. Otherwise the mode is Scans: changes of folders are noticed with inotify, which alone
// would miss many, and lead to a scan; so does the end of each watch. Rows then come later, renames are a create and a delete,
// and with several authors at once, they are the system's. Observer.Mode says which mode is used and why.
package observe
