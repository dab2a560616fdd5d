// Command agent is the agent of containers in tests. It is a program of its own because tests with the race detector are not
// static.
package main

import (
	"fmt"
	"io"
	"net"
	"os"

	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/docker/agent"
)

func main() {
	if probe.IsRequested(os.Args) {
		os.Exit(probe.Run(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		serve(os.Args[2])
		return
	}
	arguments := os.Args[1:]
	if len(arguments) > 0 && arguments[0] == agent.Command { // as a node starts it
		arguments = arguments[1:]
	}
	os.Exit(agent.Main(arguments, os.Stdin, os.Stdout, os.Stderr))
}

// serve copies the bytes of the first connection to a port to the standard output, and then answers "bye".
func serve(port string) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	conn, err := listener.Accept()
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(os.Stdout, conn)
	_, _ = io.WriteString(conn, "bye")
	_ = conn.Close()
}
