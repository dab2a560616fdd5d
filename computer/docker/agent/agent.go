// Package agent is the part of the driver computer/docker that runs inside a container. The driver mounts the server's own
// program in each container, read-only, and the program calls Main there. So a container's image needs nothing of the
// platform's, not even a shell.
//
// The agent has four commands:
//
//   - init is the first process of the container. It obeys Requests on its standard input, one JSON text a line, and writes
//     Replies to its standard output. When its input ends, because the server has closed it or was killed, it exits, and the
//     kernel ends all processes of the container.
//   - run is started by the engine for each process. It waits until the server knows its process id, and then replaces itself
//     by the program (run.go).
//   - dial makes connections to ports of the container's loopback interface for the server, over its standard streams (Mux).
//   - listen listens on a port of that interface, and passes the connections to the server in the same way.
//
// # How no descendant escapes
//
// run makes itself a subreaper (PR_SET_CHILD_SUBREAPER), a property that outlives execve: if a descendant of the program loses
// its parent, the program becomes its parent. When the program ends, the kernel gives the remaining descendants to init. A process
// below init is therefore the leftover of a program that has ended, and init kills it. Neither a new session, nor a double
// fork, nor an empty environment changes this. A program that takes the property back makes its own leftovers end earlier.
// The price is that a program that does not wait for unknown children gets zombies if its descendants turn into daemons.
package agent

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Version is the version of the protocol between the server and the agent. They differ if the server's program was replaced
// on disk while the server runs.
const Version = 3

// Command is the first argument of the server's program that makes it call Main.
const Command = "container-agent"

// DriveDir is where the workspace's drive is mounted.
const DriveDir = "/drive"

// MaxLine is the maximum length of a line of the protocols in bytes.
const MaxLine = 256 << 10

// Main runs a command of the agent in a container: "init", "run", "dial", or "listen". It returns the exit status of the program. The
// files are the program's standard streams.
func Main(arguments []string, in, out, errors *os.File) int {
	s := streams{in, out, errors}
	if len(arguments) == 0 {
		return s.fail("the agent of a container is started by the container engine, with a command")
	}
	command, rest := arguments[0], arguments[1:]
	switch {
	case command == "init" && len(rest) == 0:
		return runInit(s)
	case command == "run" && len(rest) >= 3:
		return run(s, rest[0], rest[1] == "terminal", rest[2:])
	case command == "dial" && len(rest) == 0:
		return dial(s)
	case command == "listen" && len(rest) == 1:
		return listen(s, rest[0])
	}
	return s.fail(fmt.Sprintf("the agent of a container does not know the command %q with %d arguments", command, len(rest)))
}

// streams are the standard streams of the agent.
type streams struct{ in, out, errors *os.File }

// failed is the exit status of an agent that cannot do its work.
const failed = 125

func (s streams) fail(message string) int {
	fmt.Fprintln(s.errors, "atelier: "+message)
	return failed
}

func (s streams) writeLine(kind string, text any) { fmt.Fprintln(s.out, kind, text) }

// protect makes the calling process inaccessible to other processes of the same user: they can neither trace it nor open its
// files through /proc. execve takes the protection away.
func protect() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// A Request asks init for something. Its reply has the same ID.
type Request struct {
	ID uint64 `json:"id"`
	// Watch, Signal and End name a process by its process id in the container.
	Watch  *Watch  `json:"watch,omitzero"`
	Signal *Signal `json:"signal,omitzero"`
	// End ends a process and its descendants, and the leftovers of processes that have ended.
	End int `json:"end,omitzero"`
	// Sweep ends the leftovers of processes that have ended.
	Sweep bool `json:"sweep,omitzero"`
	// Usage measures all watched processes.
	Usage bool `json:"usage,omitzero"`
}

// Watch reports the end of a process that "run" still holds, and enforces limits on it. Processes with the same group share
// the limits of the one watched last.
type Watch struct {
	PID         int    `json:"pid"`
	Group       string `json:"group"`
	MemoryBytes int64  `json:"memory,omitzero"`
	Processes   int    `json:"processes,omitzero"`
}

// Signal sends a signal to a process, or to the foreground process group of its terminal.
type Signal struct {
	PID        int            `json:"pid"`
	Number     syscall.Signal `json:"number"`
	IsTerminal bool           `json:"terminal,omitzero"`
}

// A Reply answers a Request, or reports an event if ID is 0.
type Reply struct {
	ID    uint64 `json:"id,omitzero"`
	Error string `json:"error,omitzero"`
	// Version is set in the first reply, which init sends when it is ready.
	Version int `json:"version,omitzero"`
	// Ended is a watched process that has ended.
	Ended int `json:"ended,omitzero"`
	// IsOutOfMemory is set, together with Ended, if a limit on memory was reached while the process ran.
	IsOutOfMemory bool    `json:"outOfMemory,omitzero"`
	Usage         []Usage `json:"usage,omitempty"`
}

// Usage is the use of the machine by a watched process and its descendants.
type Usage struct {
	PID int `json:"pid"`
	// MemoryBytes is the sum of the memory of the processes. Pages that several share count for each.
	MemoryBytes uint64 `json:"memory"`
	// Ticks is the processor time, in hundredths of a second.
	Ticks     uint64 `json:"ticks"`
	Processes int    `json:"processes"`
}

// Identity identifies a held process: its id in the container and the time at which it started, in clock ticks since boot.
type Identity struct {
	PID     int
	Started uint64
}

func (i Identity) String() string {
	return strconv.Itoa(i.PID) + " " + strconv.FormatUint(i.Started, 10)
}
