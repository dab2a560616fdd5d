// Package loopback gives tests the addresses for programs that cannot be told to listen at port 0 and to print the port.
//
// An address that a test finds by listening and closing the listener may belong to another process before the program listens.
// Each process of tests has a loopback address of its own, below 127.64.0.0/10, and uses ports that the kernel gives to no socket
// that asks for any port.
package loopback

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// The kernel's ports for sockets that ask for any port begin at a number of ip_local_port_range, 32768 by default.
const (
	firstPort = 12_000
	lastPort  = 31_999
)

var count atomic.Uint32

// Address returns an IP address and a port that no other process uses, and no earlier call returned.
func Address(t testing.TB) string {
	t.Helper()
	if first := firstEphemeral(t); first <= lastPort {
		t.Fatalf("the kernel may give the ports %d to %d to any socket: net.ipv4.ip_local_port_range begins at %d", firstPort, lastPort, first)
	}
	port := firstPort + count.Add(1) - 1
	if port > lastPort {
		t.Fatalf("this process has used all ports from %d to %d", firstPort, lastPort)
	}
	return netip.AddrPortFrom(addressOf(os.Getpid()), uint16(port)).String()
}

// addressOf returns the loopback address of a process. Process ids have 22 bits at most (proc(5), pid_max).
func addressOf(pid int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 | byte(pid>>16)&0x3f, byte(pid >> 8), byte(pid)})
}

func firstEphemeral(t testing.TB) (port int) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(strings.TrimSpace(string(text)), &port)
	}
	if err != nil {
		t.Fatal(err)
	}
	return port
}
