package computer

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// A Host runs processes in computers that its Driver has provisioned. A computer is started by its first process, and
// stops by itself when it has had no process for some time. All methods may be called concurrently.
//
// Every computer has the running program, read-only, at ProgramPath, so that a process can be a command of it.
//
// Errors are the errors of package entity: Unavailable if the computer cannot run processes now, LimitReached if it may not because
// the drive or the disk is full, NotFound if the workspace has no computer, InvalidRequest if an argument is unusable, and Forbidden
// if this node must not run code, because it cannot isolate it.
type Host interface {
	// Start starts a process. The caller closes Stdin and reads Stdout and Stderr until they end, and calls Wait. If ctx ends
	// before Start returns, no process is left.
	Start(ctx context.Context, workspaceID string, s Spec) (Process, error)
	// Dial connects to a TCP port on the computer's loopback interface. It does not start the computer.
	Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error)
	// Listen listens on a TCP port of 127.0.0.1 in the computer, so that its processes reach the caller there even if the computer
	// has no network; without isolation, on the loopback interface of the machine. Port 0 is any free port, which Addr returns. It
	// starts the computer if it is not running. A listener does not keep the computer running, and ends with it: Accept then
	// returns an error. Connections that a listener has accepted end with it. At most MaxAccepted connections are open at the same
	// time; further ones wait. Close may be called twice. If the port is in use, the error is Unavailable.
	Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error)
	// Freeze suspends all processes of a computer, and starts none, until it is called with false.
	Freeze(ctx context.Context, workspaceID string, frozen bool) error
	// Stop ends all processes of a computer, and releases its resources of the machine besides its drive. It returns nil if the
	// computer is not running. A later Start starts the computer again.
	Stop(ctx context.Context, workspaceID string) error
	// Usage returns the use of the machine by each process group of a computer that has processes.
	Usage(ctx context.Context, workspaceID string) ([]Usage, error)
	// Memory returns the memory that a computer uses and the limit of its memory, in bytes. For an empty workspaceID, it returns the
	// memory and the limit of all computers together. Both are 0 if the computer does not run or its memory is not limited.
	Memory(ctx context.Context, workspaceID string) (used, limit uint64, err error)
	// StopUnused stops the computer that has been without a process for the longest time. It returns false if there is none.
	StopUnused(ctx context.Context) (stopped bool, err error)
	// OwnNetworks reports whether processes can have networks of their own (Spec.OwnNetwork). If not, Start refuses such a process
	// with InvalidRequest.
	OwnNetworks() bool
}

// ProgramPath is the path in every computer of the program that runs this process, also if its file was replaced or removed since the
// process was started (Program). The driver of processes that are not isolated replaces ProgramPath in the first argument of a Spec, and
// there only.
const ProgramPath = "/.atelier/atelier"

// MaxAccepted is the greatest number of open connections that a listener of Host has accepted.
const MaxAccepted = 256

// MaxOwnNetworks is the greatest number of processes of a computer with networks of their own. Start of a further one returns
// Unavailable.
const MaxOwnNetworks = 256

// A Spec describes a process to start.
type Spec struct {
	// ID identifies the process in the node. It consists of letters, digits and underscores.
	ID string
	// Group names the process group, the unit that Usage measures: "session:<id>", "app:<id>", or a value of
	// computerv1.Process for other processes. Processes of one group share its limits.
	Group string
	// Argv is the program and its arguments. A program without a slash is looked up in the PATH of Env.
	Argv []string
	// Cwd is the working directory, a path of the drive; empty: the drive's root.
	Cwd string
	// Env is added to the environment that the driver provides: HOME, PATH, LANG, TERM for a terminal, and the proxy's address
	// if the computer reaches the network through one. Nothing of the server's environment is passed.
	Env []string
	// Terminal makes the process the leader of a new session with a controlling terminal of this size; nil: it has pipes.
	Terminal *TerminalSize
	// Limits restrict this process and its descendants in addition to the limits of the computer.
	Limits Limits
	// Attribute is called with the process id of the process in the namespace of the server, before any of its code runs. 0
	// means that the id is unknown. If it fails, the process is not started. It may be nil.
	Attribute func(pid int) error
	// OwnNetwork gives the process and its descendants a network of their own: a loopback interface that they share with neither the
	// computer nor any other process, and the same reach to the outside as the computer has, within the computer's limits. So two
	// processes can listen on the same port. Listeners of Host.Listen are not reached from it; listeners of the process's Network are.
	OwnNetwork bool
	// Private hides the process and its descendants from all other processes of the computer, and all other processes from it, as far as
	// the driver can: none can list, trace, read or signal the other. It excludes OwnNetwork. A process that is not private may see other
	// processes that are not private.
	Private bool
	// Prepare is called with the network of the process after Attribute, before any of its code runs, so that the listeners that it
	// opens are there when the process looks for them. If it fails, the process is not started, and Start returns the error. It may be nil.
	Prepare func(context.Context, Network) error
}

// A TerminalSize is the size of a terminal in characters, each from 1 to MaxTerminalSize.
type TerminalSize struct{ Columns, Rows uint16 }

// MaxTerminalSize is the greatest number of columns, and of rows, of a terminal.
const MaxTerminalSize = entity.MaxTerminalSize

// Limits restrict the use of the machine. 0 means no limit besides the limit of the computer.
type Limits struct {
	// MemoryBytes limits memory, including the memory of files in temporary file systems.
	MemoryBytes int64
	// Processors limits processor time, in processors; for example 0.5.
	Processors float64
	// Processes limits the number of processes and threads.
	Processes int
}

// A Network is the network of a process: its own, or the network of the computer. All methods may be called concurrently. They
// return Unavailable when the process has ended.
type Network interface {
	// Dial connects to a TCP port on the loopback interface, at 127.0.0.1 or, if nothing accepts the connection there, at ::1.
	// Unavailable means that nothing accepts it at either address.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Listen listens on a TCP port of 127.0.0.1, as Host.Listen does. The listener, and the connections that it has accepted, end
	// with the process.
	Listen(ctx context.Context, port int) (net.Listener, error)
}

// A Process is a running process with all its descendants. All methods may be called concurrently.
type Process interface {
	Network
	// Streams returns the process's ends of its standard streams. They do not change.
	Streams() Streams
	// Resize changes the size of the terminal. It does nothing if the process has pipes.
	Resize(TerminalSize) error
	// Signal sends a signal to the process, or to the foreground process group of its terminal. It does nothing if the process
	// has ended.
	Signal(syscall.Signal) error
	// OutOfMemory returns how many processes of its group (Spec.Group) the kernel has ended because memory was short; 0 if it is
	// unknown. It reads one counter, so that it may be called before and after each use of the process.
	OutOfMemory() uint64
	// End ends the process and all its descendants, and returns when none is left.
	End(ctx context.Context) error
	// Wait waits until the process has ended, ends the descendants that it has left, and returns how the process has ended. It
	// returns an error only if ctx ends first. Several callers get the same result.
	Wait(ctx context.Context) (Exit, error)
}

// Streams are the caller's ends of the standard streams of a process. Reads and writes block while the process neither
// produces nor consumes bytes; they do not wait for unrelated processes.
type Streams struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Stderr is nil for a process with a terminal: the terminal's output is all on Stdout.
	Stderr io.ReadCloser
}

// An Exit says how a process has ended.
type Exit struct {
	// Status is the exit status from 0 to 255, or 128 and the number of the signal that ended the process, as in a shell.
	Status int
	// Signal is the signal that ended the process; 0: none.
	Signal syscall.Signal
	// Reason says why the process was ended by the computer and not by itself or its user; empty if it was not.
	Reason EndReason
	At     time.Time
}

// An EndReason says why a computer has ended a process.
type EndReason string

// The reasons why a computer ends processes.
const (
	// EndedOutOfMemory: the kernel ended the process because a limit on memory was reached, or ended a descendant, and the process exited
	// with the descendant's status 137, as a shell does.
	EndedOutOfMemory EndReason = "out_of_memory"
	// EndedDiskFull: the drive has exceeded its quota.
	EndedDiskFull EndReason = "disk_full"
	// EndedStopped: the computer was stopped or replaced, or the node has shut down.
	EndedStopped EndReason = "stopped"
	// EndedLost: the computer or the node failed while the process ran.
	EndedLost EndReason = "lost"
)

// Usage is the use of the machine by one process group. A total of 0 means that it is not known.
type Usage struct {
	Group       string
	MemoryBytes uint64
	// Processor is the processor time used since the group's first process started.
	Processor time.Duration
	Processes int
}

// A Leftover is something that an earlier process of the node has left on the machine: a process, a mount, a control group, a
// container or a socket.
type Leftover struct {
	// Kind is one of "process", "mount", "cgroup", "namespace", "socket", "container".
	Kind string
	// Name is its process id, path or name.
	Name string
	// WorkspaceID is empty if it is not known.
	WorkspaceID string
}
