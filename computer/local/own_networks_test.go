package local_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// namespaceOf returns the network namespace of a process, as the kernel names it.
func namespaceOf(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) }

// networkNamespaces returns the network namespaces of the descendants of an init, and its own.
func networkNamespaces(t *testing.T, init *os.File) (all []string) {
	t.Helper()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", init.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(info), "\nPid:\t")
	number, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range append(descendantsOf(pid), pid) {
		if name, err := namespaceOf(one); err == nil && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func descendantsOf(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // each thread has its own
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendantsOf(child)...)
			}
		}
	}
	return all
}

// namespaceUsers returns the users of a network namespace besides sockets: threads that are in it and open files.
func namespaceUsers(namespace string) (found []string) {
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if target, err := os.Readlink(path); err == nil && target == namespace {
				found = append(found, path)
			}
		}
	}
	return found
}

// awaitUnused waits until nothing uses network namespaces any more.
func awaitUnused(t *testing.T, namespaces []string) {
	t.Helper()
	for _, one := range namespaces {
		eventually(t, func() string {
			if users := namespaceUsers(one); len(users) > 0 {
				return fmt.Sprintf("the network namespace %s is used by %q", one, users)
			}
			return ""
		})
	}
}

// eventually waits until a condition holds. No event announces the change of the condition. explain returns why it does not
// hold; empty: it holds.
func eventually(t *testing.T, explain func() string) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for reason := explain(); reason != ""; reason = explain() {
		select {
		case <-again.C:
		case <-late:
			t.Fatal(reason)
		}
	}
}

// openFiles returns the number of open files of this process that have to do with computers.
func openFiles(t *testing.T) (number int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		target, err := os.Readlink(path)
		if err == nil && (strings.HasPrefix(target, "net:") || strings.HasPrefix(target, "socket:") || strings.HasSuffix(target, "/net/tun")) {
			number++
		}
	}
	return number
}

// TestOwnNetworkLeavesNothing ends processes with networks of their own in several ways, and looks for remains of the networks.
func TestOwnNetworkLeavesNothing(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	for name, mode := range map[string]egress.Mode{"on": egress.On, "off": egress.Off} {
		t.Run(name, func(t *testing.T) { testOwnNetworkLeavesNothing(t, mode) })
	}
}

func testOwnNetworkLeavesNothing(t *testing.T, mode egress.Mode) {
	network, err := egress.New(egress.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := openHost(t, func(o *local.Options) { o.Network = network })
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	first, _ := start(t, d, "first", "read x") // starts the computer, which stays
	before := openFiles(t)
	for i, how := range []string{"program that does not exist", "preparation that fails", "end", "exit"} {
		var namespace string
		s := computer.Spec{
			ID: fmt.Sprintf("p%d", i), Group: "app:app_1", Argv: []string{"sh", "-c", "read x"}, OwnNetwork: true,
			Attribute: func(pid int) (err error) { namespace, err = namespaceOf(pid); return err },
			Prepare: func(ctx context.Context, n computer.Network) error {
				if users := namespaceUsers(namespace); len(users) < 2 { // the process and the server
					t.Errorf("the test does not see the users of the namespace %s: %q", namespace, users)
				}
				_, err := n.Listen(ctx, 0)
				if err == nil && how == "preparation that fails" {
					err = os.ErrInvalid
				}
				return err
			},
		}
		if how == "program that does not exist" {
			s.Argv = []string{"/nowhere"}
		}
		p, err := d.Start(t.Context(), "ws_1", s)
		switch {
		case (err == nil) != (how == "end" || how == "exit"):
			t.Fatalf("%s: Start returned %v", how, err)
		case how == "end":
			err = p.End(t.Context())
		case how == "exit":
			err = p.Streams().Stdin.Close()
		default:
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if p != nil {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, stream := range []io.Closer{p.Streams().Stdin, p.Streams().Stdout, p.Streams().Stderr} {
				_ = stream.Close()
			}
		}
		awaitUnused(t, []string{namespace})
		eventually(t, func() string {
			if now := openFiles(t); now > before {
				return fmt.Sprintf("%s: %d open files, before there were %d", how, now, before)
			}
			return ""
		})
	}
	if err := first.End(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOwnNetworksAreLimited has as many networks as a computer may have.
func TestOwnNetworksAreLimited(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	if err := local.PretendOwnNetworks(d, "ws_1", computer.MaxOwnNetworks); err != nil {
		t.Fatal(err)
	}
	s := computer.Spec{ID: "p1", Group: "app:app_1", Argv: []string{"true"}, OwnNetwork: true}
	if _, err := d.Start(t.Context(), "ws_1", s); code(err) != entity.Unavailable {
		t.Errorf("one network too many: %v", err)
	}
	common := s
	common.OwnNetwork = false
	p, err := d.Start(t.Context(), "ws_1", common)
	if err != nil {
		t.Fatalf("a process in the network of the computer: %v", err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := local.ForgetPretended(d, "ws_1"); err != nil {
		t.Fatal(err)
	}
	if p, err = d.Start(t.Context(), "ws_1", s); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestProcessReachesOutsideFromOwnNetwork connects to the machine through the link of an own network, through which a policy
// allows it, and through a proxy. With the mode off nothing is reached.
func TestProcessReachesOutsideFromOwnNetwork(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	addresses := ownAddresses(t)
	if len(addresses) == 0 {
		testmachine.Lacks(t, "this machine has no address")
	}
	host, _, err := net.SplitHostPort(addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "outside")
			_ = c.Close()
		}
	}()
	policy, err := egress.ParsePolicy([]string{host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxied, err := egress.Parse("http://" + server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		options egress.Options
		address string
		want    string
	}{
		"allowed": {egress.Options{Mode: egress.On, Policy: policy}, server.Addr().String(), "outside"},
		"refused": {egress.Options{Mode: egress.On}, server.Addr().String(), ""},
		"proxy":   {egress.Options{Mode: proxied}, "127.0.0.1:3128", "outside"},
		"off":     {egress.Options{Mode: egress.Off, Policy: policy}, server.Addr().String(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			network, err := egress.New(one.options)
			if err != nil {
				t.Fatal(err)
			}
			d, _ := openHost(t, func(o *local.Options) { o.Network = network })
			if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
				t.Fatal(err)
			}
			p, err := d.Start(t.Context(), "ws_1", computer.Spec{
				ID: "p1", Group: "app:app_1", Argv: []string{computer.ProgramPath, probe.Command, probe.Send, one.address}, OwnNetwork: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(p.Streams().Stdout)
			if err != nil || string(got) != one.want {
				t.Errorf("received %q, %v, want %q", got, err, one.want)
			}
			exit, err := p.Wait(t.Context())
			if err != nil || (exit.Status == probe.Unreachable) != (one.want == "") {
				t.Errorf("ended with %+v, %v", exit, err)
			}
		})
	}
}
