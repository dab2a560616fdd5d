package loopback

import (
	"net"
	"testing"
)

// TestAddress listens at addresses while they are in use on 127.0.0.1 and at ports that the kernel chose.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address := Address(t)
		if seen[address] {
			t.Fatalf("%s was returned twice", address)
		}
		seen[address] = true
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{address, "127.0.0.1:0", "127.0.0.1:" + port} {
			l, err := net.Listen("tcp", at)
			if err != nil {
				if at == "127.0.0.1:"+port {
					continue // another process uses it, which is no hindrance
				}
				t.Fatal(err)
			}
			defer l.Close()
		}
	}
}

// TestAddressesOfProcesses has no address that two processes share.
func TestAddressesOfProcesses(t *testing.T) {
	seen := map[string]int{}
	for pid := 1; pid < 1<<22; pid += 61 {
		address := addressOf(pid).String()
		if other, ok := seen[address]; ok {
			t.Fatalf("the processes %d and %d have the address %s", other, pid, address)
		}
		seen[address] = pid
	}
}
