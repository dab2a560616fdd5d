package domains_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity/binding"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const (
	host     = "shop.example.com"
	standard = "app--ws.apps.example.net"
)

// addresses implements domains.Addresses.
type addresses struct{ own string }

func (a addresses) StandardAddress(context.Context, string, string) (string, error) {
	return standard, nil
}

func (a addresses) IsOwn(_ context.Context, host string) (bool, error) { return host == a.own, nil }

// A world has entities in memory, a DNS server and Domains.
type world struct {
	testing.TB
	entities *domainstest.Entities
	dns      *domainstest.DNS
	*domains.Domains
}

// newWorld returns a world; change sets further options.
func newWorld(t testing.TB, change func(*domains.Options)) *world {
	t.Helper()
	w := &world{TB: t, dns: domainstest.NewDNS(t)}
	w.entities = domainstest.NewEntities(time.Now)
	w.Domains = w.member(change)
	return w
}

// member returns another member over the same entities.
func (w *world) member(change func(*domains.Options)) *domains.Domains {
	w.Helper()
	o := domains.Options{
		Asker: w.entities, Addresses: addresses{"platform.example.net"}, Key: make([]byte, domains.KeyBytes),
		Resolvers: []string{w.dns.Address}, PublicAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
		CAAIdentities: []string{"ca.example.org"}, Directory: "https://127.0.0.1:1/directory",
	}
	if change != nil {
		change(&o)
	}
	d, err := domains.New(o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(d.Close)
	return d
}

// point sets the records that a name needs.
func (w *world) point(workspace string) {
	w.Helper()
	w.dns.Set(w, "_atelier."+host, "TXT "+binding.Token(workspace, host))
	w.dns.Set(w, host, "CNAME "+standard+".")
	w.dns.Set(w, standard, "A 192.0.2.10")
}

// look runs a check of the host for a workspace.
func (w *world) look(workspace string) *bindingv1.ReportCheck {
	w.Helper()
	return lookWith(w, w.Domains, workspace)
}

func lookWith(w *world, d *domains.Domains, workspace string) *bindingv1.ReportCheck {
	w.Helper()
	report, err := d.Check(w.Context(), &bindingv1.Check{Number: 7, Hostname: host, WorkspaceId: workspace, AppId: "app"})
	if err != nil {
		w.Fatal(err)
	}
	return report.(*bindingv1.ReportCheck)
}
