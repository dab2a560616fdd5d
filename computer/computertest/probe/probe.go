// Package probe has the commands that the program of a driver's test carries out in computers, where it is at
// computer.ProgramPath. It is apart from package computertest because a program that is no test must not have the flags of one.
package probe

import (
	"fmt"
	"io"
	"net"
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
	// Serve listens on a TCP address, prints "ready", and answers each connection with its last argument, a colon and the bytes that it
	// has received. It ends only when it is ended.
	Serve = "serve"
	// Greet is as Serve, but sends its last argument to each connection at once, and closes its own direction. It does not wait for the
	// client.
	Greet = "greet"
	// App is the process of an app, which answers requests with the other arguments.
	App = "app"
	// Spy looks for the secret on its standard input in the process with an id, or in "all" processes.
	Spy = "spy"
)

// IsRequested reports whether the arguments of a program, as in os.Args, request a probe.
func IsRequested(arguments []string) bool { return len(arguments) > 2 && arguments[1] == Command }

// Run carries out the command of the arguments with the standard streams of the program, and returns the exit status.
func Run(arguments []string, in io.Reader, out, errors io.Writer) int {
	switch command, rest := arguments[2], arguments[3:]; {
	case command == Say:
		fmt.Fprintln(out, strings.Join(rest, " "))
		return 0
	case command == App:
		return serveApp(rest, out, errors)
	case command == Spy && len(rest) == 1:
		return spy(rest[0], in, out, errors)
	case command == Send && len(rest) == 1:
		return send(rest[0], in, out, errors)
	case command == Serve && len(rest) == 2:
		return serve(rest[0], out, errors, func(conn net.Conn) {
			all, _ := io.ReadAll(conn)
			_, _ = io.WriteString(conn, rest[1]+":"+string(all))
		})
	case command == Greet && len(rest) == 2:
		return serve(rest[0], out, errors, func(conn net.Conn) {
			_, _ = io.WriteString(conn, rest[1])
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	fmt.Fprintf(errors, "unknown command %q\n", arguments[2:])
	return 2
}

func serve(address string, out, errors io.Writer, answer func(net.Conn)) int {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(errors, err)
		return 1
	}
	fmt.Fprintln(out, "ready")
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(errors, err)
			return 1
		}
		go func() {
			defer conn.Close()
			answer(conn)
		}()
	}
}

func send(address string, in io.Reader, out, errors io.Writer) int {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(errors, err)
		return Unreachable
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, in)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(out, conn); err != nil {
		fmt.Fprintln(errors, err)
		return 1
	}
	return 0
}
