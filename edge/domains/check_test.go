package domains_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity/binding"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// summary describes a report: "owned", "routed", the conflicts, and the types of the records that were not found.
func summary(r *bindingv1.ReportCheck) string {
	var parts []string
	if r.GetFailure() != "" {
		return "failed"
	}
	if r.GetOwned() {
		parts = append(parts, "owned")
	}
	if r.GetRouted() {
		parts = append(parts, "routed")
	}
	for _, c := range r.GetConflicts() {
		parts = append(parts, "!"+c.GetName()+" "+c.GetType()+" "+c.GetValue())
	}
	for _, record := range r.GetRecords() {
		if record.GetReason() != "" {
			parts = append(parts, "-"+record.GetType())
		}
	}
	return strings.Join(parts, " ")
}

func TestCheck(t *testing.T) {
	txt := "_atelier." + host
	token := "TXT " + binding.Token("ws", host)
	for name, test := range map[string]struct {
		records map[string][]string
		want    string
	}{
		"nothing":                          {nil, "-TXT -CNAME"},
		"all_records":                      {map[string][]string{txt: {token}, host: {"CNAME " + standard + "."}}, "owned routed"},
		"CNAME_without_TXT":                {map[string][]string{host: {"CNAME " + standard + "."}}, "routed -TXT"},
		"TXT_of_another_workspace":         {map[string][]string{txt: {"TXT " + binding.Token("ws2", host)}, host: {"CNAME " + standard + "."}}, "routed -TXT"},
		"TXT_of_another_name":              {map[string][]string{txt: {"TXT " + binding.Token("ws", "shop.example.org")}}, "-TXT -CNAME"},
		"TXT_at_the_name_itself":           {map[string][]string{host: {token, "A 192.0.2.10"}}, "routed -TXT"},
		"TXT_in_parts":                     {map[string][]string{txt: {`TXT "` + token[4:20] + `" "` + token[20:] + `"`}}, "owned -CNAME"},
		"several_TXT":                      {map[string][]string{txt: {"TXT other", token}}, "owned -CNAME"},
		"TXT_without_route":                {map[string][]string{txt: {token}}, "owned -CNAME"},
		"flattened_CNAME":                  {map[string][]string{txt: {token}, host: {"A 192.0.2.10", "AAAA 2001:db8::10"}}, "owned routed"},
		"chain":                            {map[string][]string{txt: {token}, host: {"CNAME a.example.com."}, "a.example.com": {"CNAME " + standard + "."}}, "owned routed"},
		"CNAME_elsewhere":                  {map[string][]string{txt: {token}, host: {"CNAME www.example.org."}}, "owned !" + host + " CNAME www.example.org -CNAME"},
		"CNAME_to_no_name":                 {map[string][]string{txt: {token}, host: {"CNAME a.example.com."}, "a.example.com": {"CNAME gone.example.com."}}, "owned !" + host + " CNAME a.example.com -CNAME"},
		"TXT_behind_CNAME":                 {map[string][]string{txt: {"CNAME proof.example.com."}, "proof.example.com": {token}}, "owned -CNAME"},
		"TXT_behind_CNAME_to_no_name":      {map[string][]string{txt: {"CNAME proof.example.com."}, host: {"CNAME " + standard + "."}}, "routed -TXT"},
		"CNAME_to_another_app_of_platform": {map[string][]string{txt: {token}, host: {"CNAME b.apps.example.net."}, "b.apps.example.net": {"A 192.0.2.10"}}, "owned routed"},
		"other_address":                    {map[string][]string{txt: {token}, host: {"A 192.0.2.99"}}, "owned !" + host + " A 192.0.2.99 -CNAME"},
		"second_address_elsewhere":         {map[string][]string{txt: {token}, host: {"A 192.0.2.10", "AAAA 2001:db8::99"}}, "owned !" + host + " AAAA 2001:db8::99 -CNAME"},
		"CAA_permits":                      {map[string][]string{txt: {token}, host: {"A 192.0.2.10"}, "example.com": {`CAA 0 issue "ca.example.org"`}}, "owned routed"},
		"CAA_of_parent_forbids":            {map[string][]string{txt: {token}, host: {"A 192.0.2.10"}, "com": {`CAA 0 issue "other.example"`}}, `owned !com CAA issue "other.example"`},
		"CAA_of_closest_name_counts": {map[string][]string{
			txt: {token}, host: {"A 192.0.2.10", `CAA 0 issue "ca.example.org"`}, "example.com": {`CAA 0 issue ";"`},
		}, "owned routed"},
		"CAA_of_CNAME_target_counts": {map[string][]string{
			txt: {token}, host: {"CNAME " + standard + "."}, standard: {"A 192.0.2.10", `CAA 0 issue ";"`},
		}, `owned !` + host + ` CAA issue ";"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.dns.Set(t, standard)
			for name, records := range test.records {
				w.dns.Set(t, name, records...)
			}
			report := w.look("ws")
			if got := summary(report); got != test.want || report.GetNumber() != 7 {
				t.Errorf("the report is %q, want %q: %v", got, test.want, report)
			}
		})
	}
}

func TestCheckOfApex(t *testing.T) {
	apex := func(d *domains.Domains, w *world) *bindingv1.ReportCheck {
		report, err := d.Check(t.Context(), &bindingv1.Check{Hostname: "example.com", WorkspaceId: "ws", AppId: "app"})
		if err != nil {
			t.Fatal(err)
		}
		return report.(*bindingv1.ReportCheck)
	}
	w := newWorld(t, nil)
	if got := summary(apex(w.Domains, w)); got != "-TXT -A -AAAA" {
		t.Errorf("the report is %q", got)
	}
	w.dns.Set(t, "example.com", "A 192.0.2.10")
	if got := summary(apex(w.Domains, w)); got != "routed -TXT" {
		t.Errorf("the report is %q", got)
	}
	// Without addresses, the records of the provider must follow the standard address.
	without := w.member(func(o *domains.Options) { o.PublicAddresses = nil })
	if got := summary(apex(without, w)); got != "!example.com A 192.0.2.10 -TXT -ALIAS" {
		t.Errorf("the report is %q", got)
	}
	// The apex of a delegated zone is known by its SOA record.
	w.dns.Set(t, host, "SOA ns.example.com. root.example.com. 1 2 3 4 5")
	if got := summary(w.look("ws")); got != "-TXT -A -AAAA" {
		t.Errorf("the report is %q", got)
	}
}

func TestNameIsTooLongForItsRecord(t *testing.T) {
	w := newWorld(t, nil)
	report, err := w.Check(t.Context(), &bindingv1.Check{Hostname: strings.Repeat("a.", 125) + "com", WorkspaceId: "ws", AppId: "app"})
	if err != nil || !strings.Contains(report.(*bindingv1.ReportCheck).GetFailure(), "too long for the TXT record") || w.dns.Queries() != 0 {
		t.Errorf("the report is %v, %v", report, err)
	}
}

func TestReasonsSayExpectedAndFound(t *testing.T) {
	w := newWorld(t, nil)
	w.dns.Set(t, "_atelier."+host, "TXT one", "TXT two", "TXT three", "TXT four")
	w.dns.Set(t, host, "A 192.0.2.99")
	records := w.look("ws").GetRecords()
	if reason := records[0].GetReason(); reason != "Expected a TXT record with this value, found four, one, three and 1 more." {
		t.Errorf("reason %q", reason)
	}
	if reason := records[1].GetReason(); reason != "Expected a CNAME record to this name, found 192.0.2.99." || records[1].GetValue() != standard {
		t.Errorf("record %v", records[1])
	}
}

// A resolver answers with NXDOMAIN where the target of a CNAME record does not exist (RFC 2308, section 2.1). The reasons name the record
// nevertheless.
func TestReasonsNameTheTargetsOfCNAME(t *testing.T) {
	txt := "_atelier." + host
	for name, test := range map[string]struct {
		records map[string][]string
		want    []string
	}{
		"no_records": {nil, []string{"none", "none"}},
		"other_type": {map[string][]string{txt: {"A 192.0.2.1"}, host: {"TXT x"}}, []string{"none", "none"}},
		"no_target": {
			map[string][]string{txt: {"CNAME proof.example.org."}, host: {"CNAME Gone.example.org."}},
			[]string{"a CNAME record to proof.example.org, which does not exist", "a CNAME record to gone.example.org, which does not exist"},
		},
		"no_target_of_a_target": {
			map[string][]string{
				txt: {"CNAME b.example.org."}, host: {"CNAME a.example.org."}, "a.example.org": {"CNAME b.example.org."}, "b.example.org": {"CNAME gone.example.org."},
			},
			[]string{"a CNAME record to b.example.org, which leads to gone.example.org, which does not exist", "a CNAME record to a.example.org, which leads to gone.example.org, which does not exist"},
		},
		"target_of_other_type": {
			map[string][]string{txt: {"CNAME proof.example.org."}, "proof.example.org": {"A 192.0.2.1"}, host: {"CNAME www.example.org."}, "www.example.org": {"A 192.0.2.99"}},
			[]string{"a CNAME record to proof.example.org", "a CNAME record to www.example.org"},
		},
		"TXT_of_a_target": {
			map[string][]string{txt: {"CNAME proof.example.org."}, "proof.example.org": {"TXT one"}},
			[]string{"one", "none"},
		},
		// The record is right; the server's own names are not in DNS.
		"no_standard_address": {map[string][]string{host: {"CNAME " + standard + "."}}, []string{"none", "a CNAME record to " + standard + ", which does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			for name, records := range test.records {
				w.dns.Set(t, name, records...)
			}
			report := w.look("ws")
			for i, record := range report.GetRecords() {
				if _, got, _ := strings.Cut(record.GetReason(), ", found "); got != test.want[i]+"." {
					t.Errorf("%s: %q, want %q", record.GetType(), record.GetReason(), test.want[i])
				}
			}
			if report.GetOwned() || report.GetRouted() {
				t.Errorf("%v", report)
			}
			if name == "no_standard_address" && len(report.GetConflicts()) > 0 {
				t.Errorf("%v", report.GetConflicts())
			}
		})
	}
}

// Some servers deny that a name exists which has addresses of the other kind only (RFC 4074, section 4.2).
func TestCheckOfDeniedAddresses(t *testing.T) {
	for _, denied := range []uint16{dns.TypeA, dns.TypeAAAA} {
		w := newWorld(t, nil)
		w.point("ws")
		if denied == dns.TypeA {
			w.dns.Set(t, standard, "AAAA 2001:db8::10")
		}
		w.dns.Deny(host, denied)
		without := w.member(func(o *domains.Options) { o.PublicAddresses = nil }) // the CNAME record alone is the way
		if got := summary(lookWith(w, without, "ws")); got != "owned routed" {
			t.Errorf("without %s: the report is %q", dns.TypeToString[denied], got)
		}
	}
}

func TestResolvers(t *testing.T) {
	w := newWorld(t, nil)
	w.point("ws")
	other := domainstest.NewDNS(t)
	broken := domainstest.NewDNS(t)
	broken.Fail("_atelier."+host, dns.RcodeServerFailure)
	copyTo := func(s *domainstest.DNS) {
		s.Set(t, "_atelier."+host, "TXT "+binding.Token("ws", host))
		s.Set(t, host, "CNAME "+standard+".")
		s.Set(t, standard)
	}
	with := func(resolvers ...string) *bindingv1.ReportCheck {
		return lookWith(w, w.member(func(o *domains.Options) { o.Resolvers = resolvers }), "ws")
	}
	if r := with(w.dns.Address, other.Address); !strings.Contains(r.GetFailure(), "do not agree on the TXT record of _atelier."+host) {
		t.Errorf("resolvers that differ: %v", r)
	}
	copyTo(other)
	if r := with(w.dns.Address, other.Address); summary(r) != "owned routed" {
		t.Errorf("resolvers that agree: %v", r)
	}
	if r := with(w.dns.Address, broken.Address, other.Address); summary(r) != "owned routed" {
		t.Errorf("two of three resolvers answer: %v", r)
	}
	if r := with(w.dns.Address, broken.Address); !strings.Contains(r.GetFailure(), "with SERVFAIL") {
		t.Errorf("one of two resolvers answers: %v", r)
	}
	other.Set(t, host, "A 192.0.2.99")
	if r := with(w.dns.Address, other.Address); !strings.Contains(r.GetFailure(), "do not agree on the addresses of "+host) {
		t.Errorf("resolvers with other addresses: %v", r)
	}
	w.dns.Fail("example.com", dns.RcodeServerFailure)
	if r := w.look("ws"); !strings.Contains(r.GetFailure(), "CAA example.com with SERVFAIL") {
		t.Errorf("CAA records cannot be looked up: %v", r)
	}
}

// TestLargeAnswers checks that truncated answers are read over TCP, and that the report of a large answer is bounded.
func TestLargeAnswers(t *testing.T) {
	w := newWorld(t, nil)
	many := []string{}
	for i := range 100 {
		many = append(many, `TXT "`+strings.Repeat("x", 250)+string(rune('a'+i%26))+string(rune('a'+i/26))+`"`)
	}
	w.dns.Set(t, "_atelier."+host, append(many, "TXT "+binding.Token("ws", host))...)
	report := w.look("ws")
	if summary(report) != "owned -CNAME" {
		t.Errorf("the report is %q", summary(report))
	}
	var addresses []string
	for i := range 100 {
		addresses = append(addresses, "A "+netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 100)}).String())
	}
	w.dns.Set(t, host, addresses...)
	if n := len(w.look("ws").GetConflicts()); n != 32 {
		t.Errorf("%d conflicts", n)
	}
}
