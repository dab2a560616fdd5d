package acme

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/certificates"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// renew requests another certificate of a host name as operators do, and expects a status and a part of the answer.
func (s *site) renew(hostname string, status int, want string) {
	s.Helper()
	answer := httptest.NewRecorder()
	s.node.Server.Admin().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/admin/domains/"+hostname+"/renew", nil))
	if answer.Code != status || !strings.Contains(answer.Body.String(), want) {
		s.Errorf("renewing %s: %d %s, want %d %s", hostname, answer.Code, answer.Body, status, want)
	}
}

// account returns the account of the node at the authority, and the time at which the node registered it.
func (s *site) account() (acme.Account, time.Time) {
	s.Helper()
	return s.storedAccount("account.json")
}

// storedAccount returns the account in a file of the node's store, and the time of the file.
func (s *site) storedAccount(name string) (acme.Account, time.Time) {
	s.Helper()
	page := s.ask(entity.Platform(), entity.KindCertificates, certificates.Identity, &wirev1.List{
		Name: certificates.FileList, Prefix: []byte("accounts/"), Limit: 100,
	}).(*wirev1.Page)
	secret, err := datadir.Check(s.dir, func(f persistence.Fault) { s.Error(f) })
	s.check(err)
	key, err := datadir.CertificatesKey(secret)
	s.check(err)
	for _, row := range page.GetRows() {
		file := &certificatesv1.File{}
		s.check(proto.Unmarshal(row, file))
		if !strings.HasSuffix(file.GetName(), "/"+name) {
			continue
		}
		content, err := domains.Decrypt(key, file)
		s.check(err)
		var stored struct {
			Account acme.Account `json:"account"`
			Key     []byte       `json:"key"`
		}
		s.check(json.Unmarshal(content, &stored))
		stored.Account.PrivateKey, err = certmagic.PEMDecodePrivateKey(stored.Key)
		s.check(err)
		return stored.Account, time.UnixMilli(file.GetModifiedAt())
	}
	s.Fatalf("the store has no file %s", name)
	return acme.Account{}, time.Time{}
}

// client returns a client of the authority, and a context for its requests.
func (s *site) client() (*acme.Client, context.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	s.Cleanup(cancel)
	return &acme.Client{Directory: s.authority.Directory, HTTPClient: s.authority.client()}, ctx
}

// TestRenewalForAnOperator replaces the certificates of a host of the node and of a custom domain by the operation of operators.
func TestRenewalForAnOperator(t *testing.T) {
	s := newSite(t, true, true, own)
	s.app("one", &appv1.AttachDomain{DomainId: "dom_1", Hostname: host})
	s.until("one", "checked", func(d *appv1.Domain) bool { return d.GetLastCheckedAt() != 0 })
	s.renew(host, http.StatusBadRequest, "the custom domain is not active")
	s.point("one")
	s.app("one", &appv1.RecheckDomain{})
	s.becomes("one", active)

	present := s.served(host, true)
	s.renew(host, http.StatusOK, fmt.Sprintf(`{"hostname":"%s","status":"renewing","serial":"%x","notAfter":%d}`, host, present.SerialNumber, present.NotAfter.UnixMilli()))
	s.replaced(host, present)
	if d := s.domain("one"); d.GetStatus() != active {
		t.Errorf("the domain with another certificate is %v", d)
	}
	present = s.served(own, true)
	s.renew(own, http.StatusOK, fmt.Sprintf(`{"hostname":"%s","status":"renewing"}`, own))
	s.replaced(own, present)

	s.renew("elsewhere.example.org", http.StatusBadRequest, "neither the host name of a custom domain nor a host of the node")
}

// TestDeactivatedAccount deactivates the account of the node at the authority. The node registers a new account and renews with it, unless
// the account is younger than a day.
func TestDeactivatedAccount(t *testing.T) {
	s := newSite(t, true, true, own)
	present, presentOwn := s.activate("one"), s.served(own, true)
	first, _ := s.account()
	client, ctx := s.client()
	deactivated := first
	deactivated.Status = acme.StatusDeactivated
	_, err := client.UpdateAccount(ctx, deactivated)
	s.check(err)

	s.renew(host, http.StatusOK, "renewing")
	if d := s.until("one", "refused", func(d *appv1.Domain) bool { return d.GetLastError() != "" }); d.GetStatus() != active || !strings.Contains(d.GetLastError(), "deactivated") {
		t.Errorf("with an account of less than a day: %v", d)
	}
	if again, _ := s.account(); again.Location != first.Location {
		t.Errorf("the account of less than a day is replaced by %s", again.Location)
	}
	s.ahead.Add(int64(25 * time.Hour))
	s.renew(host, http.StatusOK, "renewing")
	s.replaced(host, present)
	second, _ := s.account()
	if aside, _ := s.storedAccount("refused.json"); aside.Location != first.Location || second.Location == first.Location {
		t.Errorf("the account %s was replaced by %s, and %s was set aside", first.Location, second.Location, aside.Location)
	}
	s.renew(own, http.StatusOK, "renewing")
	s.replaced(own, presentOwn)
	if last, _ := s.account(); last.Location != second.Location {
		t.Errorf("the account %s was replaced by %s", second.Location, last.Location)
	}
}

// TestSuggestedRenewal has the authority suggest to replace certificates at once (RFC 9773), as authorities do before they revoke
// certificates. The node does so when it asks again, by orders that name the certificates that they replace.
func TestSuggestedRenewal(t *testing.T) {
	s := newSite(t, true, true, own)
	present := map[string]*x509.Certificate{host: s.activate("one"), own: s.served(own, true)}
	account, registered := s.account()
	for name, c := range present {
		for !registered.Before(c.NotBefore) { // an earlier account could have ordered it; the times in certificates are whole seconds
			s.renew(name, http.StatusOK, "renewing")
			c = s.replaced(name, c)
		}
		present[name] = c
	}
	s.recheck("one")
	if at := s.renewalTime(); at.Before(s.now().Add(24 * time.Hour)) {
		t.Errorf("without a special suggestion the certificate is replaced at %s", at)
	}

	for _, c := range present {
		s.authority.suggest(t, c, time.Now().Add(-time.Hour), time.Now().Add(-30*time.Minute))
	}
	s.ahead.Add(int64(25 * time.Hour)) // the authority wants to be asked each six hours, and the node asks once a day at least
	s.recheck("one")
	if at := s.renewalTime(); at.After(s.now().Add(time.Minute)) {
		t.Errorf("the certificate is replaced at %s", at)
	}
	s.binding(&bindingv1.IssueCertificate{At: s.renewalTime().UnixMilli()}) // as the timer does
	s.replaced(host, present[host])
	if _, err := s.node.Domains.Obtain(t.Context(), own); err != nil {
		t.Error(err)
	}
	s.replaced(own, present[own])

	client, ctx := s.client()
	for name, c := range present {
		id, err := acme.ARIUniqueIdentifier(c)
		s.check(err)
		_, err = client.NewOrder(ctx, account, acme.Order{Identifiers: []acme.Identifier{{Type: "dns", Value: name}}, Replaces: id})
		if problem, is := errors.AsType[acme.Problem](err); !is || problem.Type != acme.ProblemTypeAlreadyReplaced {
			t.Errorf("another order that replaces the certificate of %s: %v", name, err)
		}
	}
}

// renewalTime returns the time at which the certificate of the host is renewed.
func (s *site) renewalTime() time.Time {
	s.Helper()
	return time.UnixMilli(s.binding(&bindingv1.DescribeBinding{}).GetIssueAt())
}
