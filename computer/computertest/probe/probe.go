// Package probe has the commands that the program of a driver's test carries out in computers, where it is at
// computer.ProgramPath. It is apart from package computertest because a program that is no test must not have the flags of one.
package probe

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// Command is the first argument of a program that must call Run.
const Command = "computer-probe"

// Unreachable is the exit status of the command Send if nothing answers.
const Unreachable = 3

// The second argument of the program.
const (
	// Say prints the other arguments.
	Say = "say"
	// Send sends the standard input to a TCP address, and prints the answer.
	Send = "send"
)

// IsRequested reports whether the arguments of this process are those of a probe.
func IsRequested() bool { return len(os.Args) > 2 && os.Args[1] == Command }

// Run carries out the command of the arguments, and returns the exit status.
func Run() int {
	switch arguments := os.Args[3:]; {
	case os.Args[2] == Say:
		fmt.Println(strings.Join(arguments, " "))
		return 0
	case os.Args[2] == Send && len(arguments) == 1:
		return send(arguments[0])
	}
	fmt.Fprintf(os.Stderr, "unknown command %q\n", os.Args[2:])
	return 2
}

func send(address string) int {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return Unreachable
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(os.Stdout, conn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
