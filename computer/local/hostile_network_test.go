package local_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// ofEachNetwork tests processes in the network of their computer, and in networks of their own.
func ofEachNetwork(t *testing.T, test func(t *testing.T, own bool)) {
	for name, own := range map[string]bool{"of the computer": false, "of the process": true} {
		t.Run(name, func(t *testing.T) { test(t, own) })
	}
}

func TestHostileNetwork(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	ofEachNetwork(t, testHostileNetwork)
}

func testHostileNetwork(t *testing.T, own bool) {
	d, files := openHost(t, nil)
	e, other := provision(t, d, files, "ws_1"), provision(t, d, files, "ws_2")
	e.ownNetworks = own
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	// Linux removes an abstract socket with its last descriptor.
	abstract, err := net.Listen("unix", "@atelier-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	// The address of the administrators' socket is beside the drives.
	admin, err := net.Listen("unix", filepath.Join(files.dir, "atelier.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, one := range []struct {
		listener net.Listener
		want     string
	}{{port, "ECONNREFUSED"}, {abstract, "ECONNREFUSED"}, {admin, "ENOENT"}} {
		address := one.listener.Addr()
		works(t, "dial", address.Network(), address.String())
		e.refuses(one.want, "dial", address.Network(), address.String())
	}
	for _, address := range append(ownAddresses(t), "169.254.169.254:80", "[fd00:ec2::254]:80", "10.0.0.1:80") {
		e.refuses("ENETUNREACH|ECONNREFUSED|EACCES", "dial", "tcp", address)
	}
	server := other.start(t, fmt.Sprintf("exec perl -e '%s'", fmt.Sprintf(listen, 8123)))
	server.expect(t, "ready")
	e.refuses("ECONNREFUSED", "dial", "tcp", "127.0.0.1:8123")
	if own {
		e.refuseNeighbor(t)
	}
	e.settle(t)
	if got := other.attack(t, "dial", "tcp", "127.0.0.1:8123"); got != "succeeded" {
		t.Errorf("the other computer's own process: %q", got)
	}
}

// neighbor is a Perl program that listens on port 8125 and on an abstract socket.
const neighbor = `use IO::Socket; $|=1; my $u=IO::Socket::UNIX->new(Local=>"\0atelier-neighbor",Listen=>1) or die $!;
my $s=IO::Socket::INET->new(LocalAddr=>"127.0.0.1",LocalPort=>8125,Listen=>5,ReuseAddr=>1) or die $!; print "$$\n"; while ($s->accept) {}`

// refuseNeighbor plans attacks on a process of the same computer that has another network of its own.
func (e *enemy) refuseNeighbor(t *testing.T) {
	t.Helper()
	process := e.start(t, "exec perl -e '"+neighbor+"'")
	pid, err := process.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c, err := process.Dial(t.Context(), 8125)
	if err != nil {
		t.Fatalf("the server does not reach the neighbor: %v", err)
	}
	_ = c.Close()
	if _, err := e.driver.Listen(t.Context(), e.id, 8126); err != nil {
		t.Fatal(err)
	}
	e.refuses("ECONNREFUSED", "dial", "tcp", "127.0.0.1:8125")
	e.refuses("ECONNREFUSED", "dial", "tcp", "127.0.0.1:8126") // which the computer's own network has
	e.refuses("ECONNREFUSED", "dial", "unix", "@atelier-neighbor")
	e.refuses("EPERM", "loopback_down")
	e.refuses("EPERM|EACCES", "enter_namespace", "/proc/"+strings.TrimSpace(pid)+"/ns/net") // EACCES with Landlock
	e.refuses("EACCES", "enter_namespace", "/proc/1/ns/net")
}

// ownAddresses returns the machine's addresses, with a port on which a process listens on all of them.
func ownAddresses(t *testing.T) (all []string) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, is := a.(*net.IPNet); is && ip.IP.IsGlobalUnicast() {
			all = append(all, net.JoinHostPort(ip.IP.String(), strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
		}
	}
	return all
}

// TestHostileEgress verifies that a computer with a way to the internet reaches neither the machine nor its neighbors through it.
func TestHostileEgress(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	ofEachNetwork(t, testHostileEgress)
}

func testHostileEgress(t *testing.T, inOwn bool) {
	network, err := egress.New(egress.Options{Mode: egress.On})
	if err != nil {
		t.Fatal(err)
	}
	d, files := openHost(t, func(o *local.Options) { o.Network = network })
	e, other := provision(t, d, files, "ws_1"), provision(t, d, files, "ws_2")
	e.ownNetworks = inOwn
	server := other.start(t, fmt.Sprintf("exec perl -e '%s'", strings.Replace(fmt.Sprintf(listen, 8124), "127.0.0.1", "0.0.0.0", 1)))
	server.expect(t, "ready")
	own := ownAddresses(t)
	targets := append(slices.Clone(own), "169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "169.254.1.1:80", "10.0.0.1:80", "192.168.0.1:80",
		"[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "127.0.0.1:8124")
	port := ""
	if len(own) > 0 {
		_, port, _ = net.SplitHostPort(own[0])
		targets = append(targets, "0.0.0.0:"+port, "127.0.0.1:"+port, "[::1]:"+port)
	}
	// The addresses of the computers' links, which are the same in each.
	for _, address := range strings.Fields(other.run(t, "perl -ne 'print qq($1 ) if /(\\d+\\.\\d+\\.\\d+\\.\\d+)/' /proc/net/fib_trie /etc/resolv.conf")) {
		for _, port := range []string{"8124", port} {
			if port != "" {
				targets = append(targets, net.JoinHostPort(address, port))
			}
		}
	}
	var attacks []string
	for _, address := range targets {
		attacks = append(attacks, strings.Join([]string{"dial", "tcp", address}, separator))
	}
	for i, result := range strings.Split(e.attack(t, "batch", attacks...), "\n") {
		if result == "succeeded" {
			t.Errorf("a process has connected to %s", targets[i])
		}
	}
	if len(own) == 0 {
		testmachine.Lacks(t, "this machine has no address")
	}
	// With a policy that allows it, the machine is reached: the network works.
	host, _, err := net.SplitHostPort(own[0])
	if err != nil {
		t.Fatal(err)
	}
	policy, err := egress.ParsePolicy([]string{host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if network, err = egress.New(egress.Options{Mode: egress.On, Policy: policy}); err != nil {
		t.Fatal(err)
	}
	open, files := openHost(t, func(o *local.Options) { o.Network = network })
	e = provision(t, open, files, "ws_1")
	e.ownNetworks = inOwn
	if got := e.attack(t, "dial", "tcp", own[0]); got != "succeeded" {
		t.Errorf("with a policy that allows %s: %q", own[0], got)
	}
}
