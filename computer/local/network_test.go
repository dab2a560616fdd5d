package local_test

import (
	"io"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/tests/race"
)

// TestNetwork verifies that computers, and processes with networks of their own, have the link of the driver's network, that it is
// attached, and that it is detached when the computer stops.
func TestNetwork(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	ofEachNetwork(t, testNetwork)
}

func testNetwork(t *testing.T, own bool) {
	proxied, err := egress.Parse("http://127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]egress.Mode{"on": egress.On, "proxy": proxied, "off": egress.Off} {
		t.Run(name, func(t *testing.T) {
			network, err := egress.New(egress.Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			d, _ := openHost(t, func(o *local.Options) { o.Network = network })
			if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
				t.Fatal(err)
			}
			for _, again := range []string{"p1", "p2"} {
				p, err := d.Start(t.Context(), "ws_1", computer.Spec{
					ID: again, Group: "terminal", Argv: []string{"sh", "-c", "cat /proc/net/dev /etc/resolv.conf; env"}, OwnNetwork: own,
				})
				if err != nil {
					t.Fatal(err)
				}
				output, err := io.ReadAll(p.Streams().Stdout)
				if err != nil {
					t.Fatal(err)
				}
				got := string(output)
				if strings.Contains(got, "net0:") != (name == "on") || strings.Contains(got, "https_proxy=") != (name == "proxy") {
					t.Errorf("got %s", got)
				}
				if !strings.Contains(got, string(network.ResolvConf())) {
					t.Errorf("got %s, want %s in it", got, network.ResolvConf())
				}
				if _, err := p.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := d.Stop(t.Context(), "ws_1"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
