// Package sandbox runs processes in computers: sets of namespaces of the kernel, each with a process of this program as its
// first process, its init.
//
//	server                          init of a computer                   process
//	  Start ── clone ───────────────► buildComputer: mounts, loopback
//	    ◄────────────── ready ───────   gives up capabilities
//	  Computer.Start ── gate, streams ► own network, if Spec has one (networks.go)
//	                                  fork ─────────────────────────────► waits at its gate
//	    ◄───────────────────────────────────────────── process id ──────────
//	    Spec.Group ─────────────────────────────────────────────────────────► enters its control group
//	    Spec.Held: attribution, network
//	    ───────────────────────────────────────────── program ─────────────► gives up everything, opens a terminal
//	    ◄───────────────────────────────────────────── terminal ────────────
//	    ◄───────────────────────────────────────────── gate closed ───────── executes the program
//	    ◄────────────── exited ──────── wait
//
// # Roles
//
// The program is executed again for each of these: as the init of a computer (runInit), as a process before its program
// (runWorkload), as the monitor of a private process or of one without control groups (runPrivate, runMonitor), as the reaper of a
// computer (runReaper), as the keeper of the server (RunKeeper)
// and to make a user namespace (runMapping). The function init of this package recognizes them by the name under which
// the program was executed, and they end there. It does so rather than a function that main must call, because a test binary
// that did not call it would run its tests again in place of a computer, and because the packages that are
// initialized later are not initialized then, which saves most of the time of a start. So this package imports few others.
//
// # What isolates
//
//   - Namespaces for mounts, process ids, network, IPC, host name and control groups. The root of the file system is a read-only
//     temporary one with read-only mounts of the machine's programs and of this program, a /proc and a /dev of the computer's own,
//     and the drive. None of these mounts allows setuid programs or devices. A process that executes this program in one of the
//     roles has no more rights than with a program of its own.
//   - With a server that runs as root, processes have a user id that is unique to the computer, without capabilities. There is no
//     user namespace: nothing in the computer is root, limits of the kernel for each user are then separate for each
//     computer, which they are not for user namespaces of one owner, and it works where a container engine forbids user
//     namespaces. With another server, there is a user namespace in which only the server's user exists.
//   - no_new_privs, an empty bounding set of capabilities, a filter of system calls (newFilter), and Landlock if the kernel has
//     it. The init is not dumpable and has another user or more capabilities, so that processes cannot trace it.
//   - Control groups limit the use of the machine; Spec.Group names the control group of a process.
//   - Processes of one computer share a process namespace, but a private process and its descendants have their own (private.go):
//     private processes and the processes of the shared namespace do not see each other. With Landlock, each process has a domain of its
//     own, so that a process cannot trace or read even the processes that it sees.
//   - A process may have a network namespace of its own (networks.go). It keeps the ports of processes of one computer apart. The
//     isolation of a process from other computers, and from the machine, does not depend on it.
//
// # Files of the drive
//
// All files of a drive belong to the server's user on the disk. For a server that runs as root, the mount of the drive in the
// computer maps that user to the user of the processes (an idmapped mount, Linux 5.12), so that both can read, change and delete
// each other's files, and none has to be given away. The filter refuses to set the bits for running a file as another
// user, which on the disk would be the server's.
//
// The home folder, /tmp and /run are lost when the computer stops: files that must be kept belong on the drive, where they are part
// of backups and have a history. A home folder that is kept on the machine's disk would be lost with the machine.
package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// self is the file of this program, also if it was replaced or is not visible in a computer.
const self = "/proc/self/exe"

// The names under which this program is executed for a role.
const (
	roleInit    = "atelier-computer"
	roleProcess = "atelier-process"
	roleMonitor = "atelier-monitor"
	rolePrivate = "atelier-private"
	roleReaper  = "atelier-reaper"
	// roleSupervisor is the role of the monitor of an unisolated process.
	roleSupervisor = "atelier-supervisor"
	roleKeeper     = "atelier-keeper"
	roleMapping    = "atelier-mapping"
)

func init() {
	roles := map[string]func() error{
		roleInit: runInit, roleProcess: runWorkload, roleMonitor: runMonitor, rolePrivate: runPrivate,
		roleReaper: runReaper, roleSupervisor: runSupervisor, roleMapping: runMapping,
	}
	run, is := roles[filepath.Base(os.Args[0])]
	if !is {
		return
	}
	exit(run())
}

// roleEnv is the environment of a process in a role. One processor makes the runtime of Go start few threads, which count as processes
// of the computer.
var roleEnv = []string{"GOMAXPROCS=1"}

// exit ends the process of a role.
func exit(err error) {
	if err != nil {
		_, _ = fmt.Fprintf(os.NewFile(2, "stderr"), "%s: %v\n", os.Args[0], err)
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// A Config describes a computer.
type Config struct {
	// Node and Name are shown in the list of the machine's processes. Node identifies the server's data directory.
	Node, Name string
	// Files is the folder that is the drive.
	Files string
	// Program is a file of the machine that isolated processes may execute at ProgramPath. If the server cannot open it, they have
	// none.
	Program, ProgramPath string
	// Hostname is the name of the computer, and consists of letters, digits and hyphens.
	Hostname string
	// UID is the user and group of the processes. If Unprivileged, it is only known in the computer.
	UID int
	// Unprivileged is true if the server does not run as root.
	Unprivileged bool
	// Nested gives each process a process namespace of its own, which ends its descendants. Control groups do so otherwise, and only
	// private processes have one.
	Nested bool
	// Unisolated makes the processes plain descendants of the init, which has no namespaces. Nested then means that descendants
	// of a process are looked for to end them.
	Unisolated bool
	// Home is the home folder of unisolated processes.
	Home string
	// ScratchBytes and ScratchFiles limit the folders that are lost when the computer stops.
	ScratchBytes, ScratchFiles int64
	// MaxProcesses limits the processes of the computer's user, where no control group does; 0: no limit.
	MaxProcesses int
	// Link is the computer's link to the network. Computer.LinkFiles returns the files of the link.
	Link guest.Link
	// Resolver is the content of /etc/resolv.conf.
	Resolver string
}
