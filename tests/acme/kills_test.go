package acme

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

var errKilled = errors.New("the member was killed")

// A mortal member sends a number of commands. Then it is dead: the next one may still be applied, and no answer arrives any more.
type mortal struct {
	entities *domainstest.Entities
	left     atomic.Int64
	// applied is set if the command during which the member dies is applied.
	applied bool
}

func (m *mortal) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	left := m.left.Add(-1)
	if left < -1 || left == -1 && !m.applied {
		return nil, errKilled
	}
	reply, err := m.entities.Ask(ctx, c)
	if left == -1 {
		return nil, errKilled
	}
	return reply, err
}

type noAddresses struct{}

func (noAddresses) StandardAddress(context.Context, string, string) (string, error) {
	return standardOf("one"), nil
}
func (noAddresses) IsOwn(context.Context, string) (bool, error) { return true, nil }

// TestKilledWhileIssuing kills a member after each of its commands that obtain, renew and remove a certificate. The next member completes
// the task after the leases of the dead one, and at no time does the store have a certificate without its key.
func TestKilledWhileIssuing(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dns := domainstest.NewDNS(t)
	dns.Set(t, host, "A 127.0.0.1")
	authority := Start(t, Options{DNS: dns.Address, HTTPPort: portOf(plain), TLSPort: 1})
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	entities := domainstest.NewEntities(clock)
	member := func(asker entity.Asker) *domains.Domains {
		d, err := domains.New(domains.Options{
			Asker: asker, Addresses: noAddresses{}, Key: make([]byte, domains.KeyBytes), Directory: authority.Directory, Roots: authority.Roots,
			Resolvers: []string{dns.Address}, Clock: clock, Orders: 1000, OrdersPeriod: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	survivor := member(entities)
	server := &http.Server{Handler: survivor.HTTPChallengeHandler(http.NotFoundHandler())}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(plain) }()
	t.Cleanup(func() { server.Close(); <-done })

	serial := ""
	// obtain runs the task on a member, and reports whether it was completed.
	obtain := func(d *domains.Domains) bool {
		report, err := d.Issue(t.Context(), &bindingv1.Issue{Number: 1, Hostname: host, Renews: serial})
		issued, ok := report.(*bindingv1.ReportIssued)
		if err != nil || !ok {
			return false
		}
		if issued.GetCertificate().GetSerial() == serial {
			t.Fatalf("the certificate %s was not renewed", serial)
		}
		serial = issued.GetCertificate().GetSerial()
		return true
	}
	remove := func(d *domains.Domains) bool {
		report, err := d.CleanUp(t.Context(), &bindingv1.CleanUp{Number: 1, Hostname: host})
		_, ok := report.(*bindingv1.ReportCleanedUp)
		return err == nil && ok
	}
	for _, task := range []struct {
		name string
		run  func(*domains.Domains) bool
	}{{"issue", obtain}, {"clean_up", remove}} {
		name, run := task.name, task.run
		for kill := int64(0); ; kill++ {
			m := &mortal{entities: entities, applied: kill%2 == 1}
			m.left.Store(kill / 2)
			if run(member(m)) && m.left.Load() >= 0 {
				t.Logf("%s: killed at %d points", name, kill)
				break
			}
			ahead.Add(int64(time.Minute)) // the leases of the dead member end
			if name == "issue" && serial != "" && !servesPair(t, member(entities)) {
				t.Errorf("killed after %d commands: the store has a certificate without its key", kill)
			}
			if !run(survivor) {
				t.Fatalf("%s: killed after %d commands: the next member did not complete the task", name, kill/2)
			}
			if name == "clean_up" && len(entities.Names()) != 1 { // the account
				t.Fatalf("killed after %d commands: left are %v", kill/2, entities.Names())
			}
			if name == "clean_up" {
				serial = ""
				if !obtain(survivor) {
					t.Fatal("no certificate to remove")
				}
			}
		}
	}
}

// servesPair reports whether a handshake ends with a certificate of the store.
func servesPair(t *testing.T, d *domains.Domains) bool {
	t.Helper()
	server, client := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		_ = tls.Server(server, &tls.Config{GetCertificate: d.Certificates.Certificate}).HandshakeContext(t.Context())
	}()
	return tls.Client(client, &tls.Config{ServerName: host, InsecureSkipVerify: true}).HandshakeContext(t.Context()) == nil
}
