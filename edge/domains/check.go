package domains

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/mholt/acmez/v3/acme"
	"github.com/miekg/dns"
	"golang.org/x/net/publicsuffix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// maxName is the greatest length of a name without the trailing dot (RFC 1035, section 2.3.4).
const maxName = 253

// Check runs the task binding.CheckTask. The report has the records that the name needs, each with a reason if it was not found, and
// the records that conflict. It has a failure if too few resolvers answer, or if they do not agree.
func (d *Domains) Check(ctx context.Context, c *bindingv1.Check) (proto.Message, error) {
	report, err := d.check(ctx, c)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		d.metrics.checked("failed")
		d.o.Log.Info("a check of a domain has failed", slog.String("host", c.GetHostname()), slog.String("workspace", c.GetWorkspaceId()),
			slog.Any("error", err))
		report = &bindingv1.ReportCheck{Number: c.GetNumber(), Failure: "The check failed: " + err.Error() + "."}
	}
	d.suggest(ctx, c.GetHostname(), report)
	if report.GetFailure() != "" {
		return report, nil
	}
	outcome := "missing"
	switch {
	case len(report.GetConflicts()) > 0:
		outcome = "conflict"
	case report.GetOwned() && report.GetRouted():
		outcome = "found"
	}
	d.metrics.checked(outcome)
	return report, nil
}

func (d *Domains) check(ctx context.Context, c *bindingv1.Check) (*bindingv1.ReportCheck, error) {
	if d.o.Off {
		return nil, errors.New("this server requests no certificates, so that custom domains cannot be used")
	}
	host := c.GetHostname()
	if len(binding.RecordName(host)) > maxName {
		return nil, errors.New("the name is too long for the TXT record that proves it")
	}
	standard, err := d.o.Addresses.StandardAddress(ctx, c.GetWorkspaceId(), c.GetAppId())
	if err != nil {
		return nil, errors.New("the standard address of the app is not known")
	}
	permits, err := d.permits(ctx)
	if err != nil {
		return nil, err
	}
	views, err := d.resolvers.lookAll(ctx, binding.RecordName(host), host, permits)
	if err != nil {
		return nil, err
	}
	expected := expectation{host: host, token: binding.Token(c.GetWorkspaceId(), host), standard: standard, addresses: d.o.PublicAddresses}
	if err := expected.agree(views); err != nil {
		return nil, err
	}
	all := merge(views)
	report := &bindingv1.ReportCheck{
		Number: c.GetNumber(), Owned: expected.isOwned(all), Conflicts: expected.conflicts(all), Records: expected.records(all),
	}
	report.Routed = expected.isRouted(all) && len(report.GetConflicts()) == 0
	return report, nil
}

// permits returns the function that applies CAA records to the configured authority. If Options.CAAIdentities is not set, it uses the identities
// in the directory of the authority.
func (d *Domains) permits(ctx context.Context) (func([]*dns.CAA) bool, error) {
	identities := d.o.CAAIdentities
	if identities == nil {
		client := acme.Client{Directory: d.o.Directory, HTTPClient: d.httpClient(nil), UserAgent: userAgent}
		directory, err := client.GetDirectory(ctx)
		if err != nil {
			return nil, errors.New("the certificate authority does not answer")
		}
		if directory.Meta != nil {
			identities = directory.Meta.CAAIdentities
		}
	}
	if len(identities) == 0 { // the authority does not publish its identities, and checks the records itself
		return func([]*dns.CAA) bool { return true }, nil
	}
	return permitsAuthority(identities), nil
}

// An expectation has the values that the records of a name must have.
type expectation struct {
	host, token, standard string
	addresses             []netip.Addr
}

func (e expectation) isOwned(v *view) bool { return slices.Contains(v.texts, e.token) }

// isRouted reports whether the name leads to this server: by a CNAME record to the standard address of the app, which exists, or
// because each of its addresses is an address of this server.
func (e expectation) isRouted(v *view) bool {
	return v.chain.leadsTo(e.standard) || len(v.addresses) > 0 && len(e.foreign(v)) == 0
}

// foreign returns the addresses of a name that are not addresses of this server.
func (e expectation) foreign(v *view) []netip.Addr {
	var other []netip.Addr
	for _, a := range v.addresses {
		if !slices.Contains(e.addresses, a) {
			other = append(other, a)
		}
	}
	return other
}

// agree returns an error if the views of two resolvers differ in the ownership, the route or the CAA records of the name.
func (e expectation) agree(views []*view) error {
	first := views[0]
	for _, v := range views[1:] {
		what := ""
		switch {
		case e.isOwned(v) != e.isOwned(first):
			what = "the TXT record of " + binding.RecordName(e.host)
		case e.isRouted(v) != e.isRouted(first):
			what = "the addresses of " + e.host
		case (len(v.forbids) == 0) != (len(first.forbids) == 0):
			what = "the CAA records of " + e.host
		}
		if what != "" {
			return fmt.Errorf("the resolvers %s and %s do not agree on %s, so a change of the records may not have reached both yet",
				first.resolver, v.resolver, what)
		}
	}
	return nil
}

// merge returns the union of views.
func merge(views []*view) *view {
	all := &view{}
	for _, v := range views {
		all.texts, all.addresses = append(all.texts, v.texts...), append(all.addresses, v.addresses...)
		if len(v.chain.targets) > 0 {
			all.chain = v.chain
		}
		if len(v.textChain.targets) > 0 {
			all.textChain = v.textChain
		}
		if len(v.forbids) > 0 {
			all.forbids, all.forbidsName = v.forbids, v.forbidsName
		}
		all.cut = all.cut || v.cut
	}
	slices.Sort(all.texts)
	all.texts = slices.Compact(all.texts)
	slices.SortFunc(all.addresses, netip.Addr.Compare)
	all.addresses = slices.Compact(all.addresses)
	return all
}

// conflicts returns the records that prevent the name from being used.
func (e expectation) conflicts(v *view) []*appv1.Conflict {
	var all []*appv1.Conflict
	add := func(name, kind, value string) {
		if len(all) < binding.MaxRecords {
			all = append(all, &appv1.Conflict{Name: name, Type: kind, Value: value})
		}
	}
	for _, forbids := range v.forbids {
		add(v.forbidsName, "CAA", forbids)
	}
	switch {
	case slices.Contains(v.chain.targets, e.standard), len(v.addresses) > 0 && len(e.foreign(v)) == 0:
	case len(v.chain.targets) > 0:
		add(e.host, "CNAME", v.chain.targets[0])
	default:
		for _, a := range e.foreign(v) {
			add(e.host, kindOf(a), a.String())
		}
	}
	return all
}

func kindOf(a netip.Addr) string {
	if a.Is4() {
		return "A"
	}
	return "AAAA"
}

// records returns the records that the name needs. The apex of a zone cannot have a CNAME record (RFC 1912, section 2.4): it needs
// the addresses of this server, or if none are configured the ALIAS record that some DNS providers offer.
func (e expectation) records(v *view) []*appv1.Record {
	text := &appv1.Record{Type: "TXT", Domain: binding.RecordName(e.host), Value: e.token}
	if !e.isOwned(v) {
		text.Reason = "Expected a TXT record with this value, found " + foundText(v) + "."
	}
	records := []*appv1.Record{text}
	kind := "CNAME"
	switch isApex := e.isApex(v); {
	case isApex && len(e.addresses) > 0:
		for _, a := range e.addresses {
			record := &appv1.Record{Type: kindOf(a), Domain: e.host, Value: a.String()}
			if !e.isRouted(v) {
				record.Reason = "Expected this address, found " + e.foundRoute(v) + "."
			}
			records = append(records, record)
		}
		return records
	case isApex:
		kind = "ALIAS"
	}
	route := &appv1.Record{Type: kind, Domain: e.host, Value: e.standard}
	if !e.isRouted(v) {
		route.Reason = "Expected a " + kind + " record to this name, found " + e.foundRoute(v) + "."
	}
	return append(records, route)
}

func (e expectation) isApex(v *view) bool {
	registered, err := publicsuffix.EffectiveTLDPlusOne(e.host)
	return v.cut || err == nil && registered == e.host
}

// foundText describes the TXT records that were found in place of the expected record.
func foundText(v *view) string {
	if len(v.texts) == 0 && len(v.textChain.targets) > 0 {
		return v.textChain.String()
	}
	return found(v.texts)
}

// foundRoute describes where a name leads.
func (e expectation) foundRoute(v *view) string {
	if len(v.chain.targets) > 0 {
		return v.chain.String()
	}
	var all []string
	for _, a := range v.addresses {
		all = append(all, a.String())
	}
	return found(all)
}

// found lists at most three values.
func found(values []string) string {
	const most = 3
	switch {
	case len(values) == 0:
		return "none"
	case len(values) > most:
		return strings.Join(values[:most], ", ") + fmt.Sprintf(" and %d more", len(values)-most)
	}
	return strings.Join(values, ", ")
}
