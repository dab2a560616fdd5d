package main

import (
	"net"
	"testing"
)

// TestListenAtIPv4 listens at all addresses of IPv4, and at no address of IPv6.
func TestListenAtIPv4(t *testing.T) {
	for address, want := range map[string]bool{"0.0.0.0:0": false, "127.0.0.1:0": false, "[::1]:0": true, "[::]:0": true, ":0": true} {
		l, err := listen(address)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c, err := net.Dial("tcp6", "[::1]:"+port)
		if err == nil {
			c.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: a connection to ::1: %v", address, err)
		}
		l.Close()
	}
}
