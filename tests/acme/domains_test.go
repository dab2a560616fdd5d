package acme

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const (
	pending = appv1.DomainStatus_DOMAIN_STATUS_PENDING
	active  = appv1.DomainStatus_DOMAIN_STATUS_ACTIVE
	failed  = appv1.DomainStatus_DOMAIN_STATUS_FAILED
)

// TestDomain follows a custom domain from its attachment to its removal, with a renewal, by each kind of challenge.
func TestDomain(t *testing.T) {
	for name, test := range map[string]struct{ overHTTP, overTLS bool }{"http-01": {overHTTP: true}, "tls-alpn-01": {overTLS: true}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, test.overHTTP, test.overTLS, own)
			if s.served(own, true).VerifyHostname(own) != nil {
				t.Error("the platform's own host has the certificate of another one")
			}
			s.app("one", &appv1.AttachDomain{DomainId: "dom_1", Hostname: "Shop.example.com."})
			d := s.until("one", "checked", func(d *appv1.Domain) bool { return d.GetLastCheckedAt() != 0 })
			if d.GetStatus() != pending || d.GetHostname() != host || len(d.GetRecords()) != 2 || d.GetRecords()[0].GetReason() == "" ||
				d.GetRecords()[1].GetValue() != standardOf("one") || s.certificate(host) != nil {
				t.Fatalf("the domain without records is %v", d)
			}
			s.point("one")
			s.app("one", &appv1.RecheckDomain{})
			d = s.becomes("one", active)
			if d.GetVerifiedAt() == 0 || d.GetRecords()[0].GetReason()+d.GetRecords()[1].GetReason()+d.GetLastError() != "" {
				t.Errorf("the active domain is %v", d)
			}
			first := s.served(host, true)
			if answered := [2]bool{s.answeredHTTP.Load() > 0, s.answeredTLS.Load() > 0}; answered != [2]bool{test.overHTTP, test.overTLS} {
				t.Errorf("answered over HTTP and TLS: %v", answered)
			}
			if s.recheck("one").GetStatus() != active {
				t.Error("a recheck has changed the status")
			}

			state := s.binding(&bindingv1.DescribeBinding{})
			s.binding(&bindingv1.IssueCertificate{At: state.GetIssueAt()})
			for again := s.served(host, true); again.SerialNumber.Cmp(first.SerialNumber) == 0; again = s.served(host, true) {
				if s.domain("one").GetStatus() != active {
					t.Fatal("the domain is not active while its certificate is renewed")
				}
			}

			s.stop() // the certificates last
			s.start()
			s.served(host, true)

			s.app("one", &appv1.RemoveDomain{})
			s.served(host, false)
			s.until("one", "removed", func(d *appv1.Domain) bool { return d == nil })
			if state := s.binding(&bindingv1.DescribeBinding{}); state.GetDomainId() != "" || len(binding.Tasks(state)) != 0 {
				t.Errorf("the binding after the removal is %v", state)
			}
			s.served(own, true)
		})
	}
}

// TestTakeover checks that no workspace gets the name of another workspace, nor a name that points here without the consent of
// the name's owner.
func TestTakeover(t *testing.T) {
	s := newSite(t, true, true)
	attach := func(name, id, hostname string) *appv1.App {
		t.Helper()
		s.app(name, &appv1.AttachDomain{DomainId: id, Hostname: hostname})
		s.settle(entity.KindBinding, hostname)
		return s.app(name, &appv1.DescribeApp{})
	}
	// A dangling name leads here, and has the TXT record that another workspace was asked for.
	s.point("one")
	attach("two", "dom_2", host)
	d := s.recheck("two")
	if d.GetStatus() != pending || d.GetRecords()[0].GetReason() == "" || d.GetRecords()[0].GetValue() == binding.Token(workspaceOf("one"), host) {
		t.Errorf("a name with the record of another workspace: %v", d)
	}
	s.dns.Set(t, "_atelier."+host)
	if d := s.recheck("two"); d.GetStatus() != pending {
		t.Errorf("a name without a TXT record: %v", d)
	}
	s.app("two", &appv1.RemoveDomain{})
	s.until("two", "removed", func(d *appv1.Domain) bool { return d == nil })

	s.point("one")
	attach("one", "dom_1", host)
	s.becomes("one", active)
	a := attach("two", "dom_3", host)
	if err := app.RefusalOf(a, "dom_3"); a.GetDomain() != nil || err == nil || err.(*entity.Error).Code != entity.HostnameInUse {
		t.Errorf("the name of another workspace: %v, %v", a.GetDomain(), err)
	}
	s.served(host, true)

	for _, hostname := range []string{"*.example.com", "ѕhop.example.com", "127.0.0.1", "example"} {
		if _, err := s.try(personOf("two"), entity.KindApp, workspaceOf("two")+"/"+appOf("two"), &appv1.AttachDomain{DomainId: "dom_4", Hostname: hostname}); err == nil {
			t.Errorf("%q was attached", hostname)
		}
	}
	// A name that looks like the other one is another name, which needs records of its own.
	const lookAlike = "xn--hop-ehd.example.com"
	attach("two", "dom_5", lookAlike)
	if d := s.recheck("two"); d.GetStatus() != pending || s.certificate(lookAlike) != nil || s.certificate(host) == nil {
		t.Errorf("the look-alike is %v", d)
	}
}

// TestAuthorityRefuses checks that a name fails for good if the authority rejects it, and waits while the authority is down.
func TestAuthorityRefuses(t *testing.T) {
	s := newSite(t, true, true)
	const blocked = "blocked.example.com"
	s.dns.Set(t, "_atelier."+blocked, "TXT "+binding.Token(workspaceOf("one"), blocked))
	s.dns.Set(t, blocked, "CNAME "+standardOf("one")+".")
	s.app("one", &appv1.AttachDomain{DomainId: "dom_1", Hostname: blocked})
	if d := s.becomes("one", failed); d.GetLastError() == "" {
		t.Errorf("the rejected domain is %v", d)
	}
	s.point("two")
	s.overHTTP.Store(false) // the records lead elsewhere in the view of the authority
	s.overTLS.Store(false)
	s.app("two", &appv1.AttachDomain{DomainId: "dom_2", Hostname: host})
	s.until("two", "refused", func(d *appv1.Domain) bool { return d.GetLastError() != "" })
	s.authority.Kill()
	state := s.binding(&bindingv1.DescribeBinding{})
	s.binding(&bindingv1.IssueCertificate{At: state.GetIssueAt()})
	d := s.until("two", "refused again", func(d *appv1.Domain) bool { return d.GetRevision() > state.GetRevision() })
	if state = s.binding(&bindingv1.DescribeBinding{}); d.GetLastError() == "" || state.GetIssueAttempts() != 2 || state.GetIssueAt() == 0 {
		t.Errorf("while the authority is down: %v, %v", d, state)
	}
	if s.certificate(host) != nil {
		t.Error("a name without a certificate is served")
	}
}
