package domains

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
)

// authorities counts the authorities of all tests: the ACME library caches directories by their URL, and ports are used again.
var authorities atomic.Int64

// A refusingAuthority registers accounts and refuses each order with an answer.
type refusingAuthority struct {
	*httptest.Server
	directory string

	mu       sync.Mutex
	answer   func(w http.ResponseWriter)
	accounts int
	orders   int
	// deactivated is the number of the last deactivated account; 0: no account is deactivated. Its orders are refused with status.
	deactivated, status int
	// replaced has the certificate that each order replaces.
	replaced []string
	// renewalInfo has the renewal information of certificates; nil: the authority has none. questions counts the requests for it.
	renewalInfo http.HandlerFunc
	questions   int
}

func newRefusingAuthority(t *testing.T) *refusingAuthority {
	a := &refusingAuthority{directory: fmt.Sprintf("/directory/%d", authorities.Add(1))}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	return a
}

// refuse makes the authority answer orders with a problem.
func (a *refusingAuthority) refuse(status int, kind, extra, retryAfter string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = func(w http.ResponseWriter) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		refuse(w, status, kind, extra)
	}
}

func (a *refusingAuthority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Replay-Nonce", "nonce")
	switch r.URL.Path {
	case "/nonce":
	case a.directory:
		w.Header().Set("Content-Type", "application/json")
		renewals := ""
		if a.renewalInfo != nil {
			renewals = `"renewalInfo":"` + a.URL + `/renewals",`
		}
		fmt.Fprintf(w, `{%[2]s"newNonce":"%[1]s/nonce","newAccount":"%[1]s/account","newOrder":"%[1]s/order"}`, a.URL, renewals)
	case "/account":
		payload, _ := readSigned(r)
		if payload.OnlyReturnExisting && a.deactivated == a.accounts {
			refuse(w, a.status, "unauthorized", "")
			return
		}
		if !payload.OnlyReturnExisting {
			a.accounts++
		}
		w.Header().Set("Location", fmt.Sprintf("%s/account/%d", a.URL, a.accounts))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"status":"valid"}`)
	case "/order":
		a.orders++
		payload, account := readSigned(r)
		a.replaced = append(a.replaced, payload.Replaces)
		if account == fmt.Sprintf("%s/account/%d", a.URL, a.deactivated) {
			refuse(w, a.status, "unauthorized", "")
			return
		}
		a.answer(w)
	default:
		a.questions++
		a.renewalInfo(w, r)
	}
}

type signedPayload struct {
	OnlyReturnExisting bool
	Replaces           string
}

// readSigned returns the payload of a request to an authority, and the account that has signed it.
func readSigned(r *http.Request) (payload signedPayload, account string) {
	var signed struct{ Protected, Payload string }
	var protected struct{ Kid string }
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &signed)
	for text, to := range map[string]any{signed.Protected: &protected, signed.Payload: &payload} {
		decoded, _ := base64.RawURLEncoding.DecodeString(text)
		_ = json.Unmarshal(decoded, to)
	}
	return payload, protected.Kid
}

func refuse(w http.ResponseWriter, status int, kind, extra string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"urn:ietf:params:acme:error:%s","detail":"no %s","status":%d%s}`, kind, kind, status, extra)
}

// useAuthority makes the site order at an authority.
func (s *site) useAuthority(a *refusingAuthority) {
	s.o.Directory = a.URL + a.directory
	s.o.Roots = x509.NewCertPool()
	s.o.Roots.AddCert(a.Certificate())
}

func (s *site) issue() *bindingv1.ReportIssueFailed {
	s.Helper()
	report, err := s.Issue(s.Context(), &bindingv1.Issue{Number: 3, Hostname: host})
	failed, ok := report.(*bindingv1.ReportIssueFailed)
	if err != nil || !ok || failed.GetNumber() != 3 || failed.GetReason() == "" {
		s.Fatalf("the report is %v, %v", report, err)
	}
	return failed
}

func TestRefusals(t *testing.T) {
	a := newRefusingAuthority(t)
	for _, test := range []struct {
		name       string
		status     int
		kind       string
		extra      string
		retryAfter string
		final      bool
		retry      time.Duration
		reason     string
	}{
		{"name_is_rejected", 400, "rejectedIdentifier", "", "", true, 0, "no rejectedIdentifier"},
		{"kind_of_name_is_unsupported", 400, "unsupportedIdentifier", "", "", true, 0, "no unsupportedIdentifier"},
		{"part_of_several", 400, "compound", `,"subproblems":[{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"on a list"}]`, "", true, 0, "no compound on a list"},
		{"limit_with_a_time", 429, "rateLimited", "", "7200", false, 2 * time.Hour, "no rateLimited"},
		{"limit_without_a_time", 429, "rateLimited", "", "", false, time.Hour, "no rateLimited"},
		{"limit_with_an_invalid_time", 429, "rateLimited", "", "soon", false, time.Hour, "no rateLimited"},
		{"busy", 503, "serverInternal", "", "60", false, time.Minute, "no serverInternal"},
		{"cannot_connect", 400, "connection", "", "", false, 0, "no connection"},
		{"forbidden_by_CAA", 403, "caa", "", "", false, 0, "no caa"},
		{"not_authorized", 403, "unauthorized", "", "", false, 0, "no unauthorized"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.useAuthority(a)
			a.refuse(test.status, test.kind, test.extra, test.retryAfter)
			failed := s.issue()
			retry := int64(0)
			if test.retry != 0 {
				retry = s.now.Add(test.retry).UnixMilli()
			}
			if failed.GetFinal() != test.final || failed.GetRetryAt() != retry || !strings.HasSuffix(failed.GetReason(), test.reason) {
				t.Errorf("the report is %v, want retry at %d", failed, retry)
			}
		})
	}
}

func TestAuthorityIsDown(t *testing.T) {
	s := newSite(t) // nothing listens at its directory
	if failed := s.issue(); failed.GetFinal() || failed.GetRetryAt() != 0 || !strings.Contains(failed.GetReason(), "could not be reached") || strings.Contains(failed.GetReason(), "127.0.0.1") {
		t.Errorf("the report is %v", failed)
	}
}

// TestAccount checks that one account is registered, and another account when the authority has forgotten it.
func TestAccount(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	a.refuse(403, "unauthorized", "", "")
	s.issue()
	s.issue()
	if a.accounts != 1 || a.orders != 2 {
		t.Errorf("%d accounts, %d orders", a.accounts, a.orders)
	}
	a.refuse(400, strings.TrimPrefix(acme.ProblemTypeAccountDoesNotExist, acme.ProblemTypeNamespace), "", "")
	s.issue()
	if a.accounts != 2 || a.orders != 4 {
		t.Errorf("%d accounts, %d orders", a.accounts, a.orders)
	}
}

// TestDeactivatedAccount checks that an account that the authority has deactivated is set aside, and another account is registered, at most
// one each day.
func TestDeactivatedAccount(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		a, s := newRefusingAuthority(t), newSite(t)
		s.useAuthority(a)
		a.refuse(400, "connection", "", "")
		s.issue()
		old, err := s.files.begin().Load(t.Context(), (&authority{d: s.Domains}).accountFile())
		check(t, err)
		s.now = s.now.Add(accountAge)
		a.deactivated, a.status = 1, status
		if failed := s.issue(); a.accounts != 2 || a.orders != 3 || !strings.Contains(failed.GetReason(), "no connection") {
			t.Errorf("%d: %d accounts, %d orders, %v", status, a.accounts, a.orders, failed)
		}
		aside, err := s.files.begin().Load(t.Context(), (&authority{d: s.Domains}).refusedFile())
		if err != nil || string(aside) != string(old) {
			t.Errorf("%d: the account that is set aside is %s, %v", status, aside, err)
		}
		s.issue()
		if a.accounts != 2 || a.orders != 4 {
			t.Errorf("%d: %d accounts, %d orders", status, a.accounts, a.orders)
		}
		a.deactivated = 2
		if failed := s.issue(); a.accounts != 2 || a.orders != 5 || !strings.Contains(failed.GetReason(), "no unauthorized") {
			t.Errorf("%d: %d accounts, %d orders, %v", status, a.accounts, a.orders, failed)
		}
		s.now = s.now.Add(accountAge)
		if s.issue(); a.accounts != 3 {
			t.Errorf("%d: %d accounts after a day", status, a.accounts)
		}
	}
}

// TestAccountOfAClockThatWasAhead checks that an account that was registered while the clock was ahead is replaced at once when the clock is
// right, after the authority has deactivated it.
func TestAccountOfAClockThatWasAhead(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	a.refuse(400, "connection", "", "")
	s.now = s.now.Add(365 * 24 * time.Hour)
	s.issue()
	s.now = s.now.Add(-365 * 24 * time.Hour)
	a.deactivated, a.status = 1, http.StatusForbidden
	if s.issue(); a.accounts != 2 {
		t.Errorf("%d accounts", a.accounts)
	}
}

// TestDeactivatedAccountOfMembers checks that a member uses the new account after another member has replaced its account.
func TestDeactivatedAccountOfMembers(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	a.refuse(400, "connection", "", "")
	s.issue()
	session := s.files.begin()
	defer session.end(t.Context())
	member := &authority{d: s.Domains, session: session}
	refused, err := member.storedAccount(t.Context())
	check(t, err)
	client := &acme.Client{Directory: s.o.Directory, HTTPClient: s.httpClient(nil)}
	for range 2 {
		account, err := member.account(t.Context(), client, refused.Location)
		if err != nil || account.Location != a.URL+"/account/2" || a.accounts != 2 {
			t.Errorf("%d accounts, %v, %v", a.accounts, account.Location, err)
		}
	}
}

// TestBudget checks that the authority is not asked when the budget is used up.
func TestBudget(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	s.o.Orders, s.o.OrdersPeriod = 2, 2*time.Hour
	a.refuse(403, "unauthorized", "", "")
	s.issue()
	s.issue()
	failed := s.issue()
	if a.orders != 2 || failed.GetFinal() || failed.GetRetryAt() != s.now.Add(time.Hour).UnixMilli() {
		t.Errorf("%d orders, then %v", a.orders, failed)
	}
	s.now = s.now.Add(time.Hour)
	s.issue()
	if a.orders != 3 {
		t.Errorf("%d orders after an hour", a.orders)
	}
}

// TestStoredCertificateIsReported checks that the result of an attempt that was not reported is used, and not the certificate that is to be renewed.
func TestStoredCertificateIsReported(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	a.refuse(400, "connection", "", "")
	s.store(host, 10)
	report, err := s.Issue(t.Context(), &bindingv1.Issue{Number: 3, Hostname: host, Renews: "9"})
	if issued, ok := report.(*bindingv1.ReportIssued); err != nil || !ok || issued.GetCertificate().GetSerial() != "a" || issued.GetNumber() != 3 {
		t.Errorf("the report is %v, %v", report, err)
	}
	if report, err := s.Issue(t.Context(), &bindingv1.Issue{Number: 3, Hostname: host, Renews: "a"}); err != nil || report.(*bindingv1.ReportIssueFailed) == nil {
		t.Errorf("the report is %v, %v", report, err)
	}
	s.now = s.now.Add(61 * 24 * time.Hour) // after two thirds of the lifetime
	s.issue()
}

// TestStoreIsDown checks that no order is made when its certificate could not be stored.
func TestStoreIsDown(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	s.useAuthority(a)
	s.entities.Fail(func(m proto.Message) error {
		if _, locks := m.(*certificatesv1.AcquireLock); locks {
			return entity.Errorf(entity.Unavailable, "no answer from 10.0.0.1")
		}
		return nil
	})
	if failed := s.issue(); a.orders != 0 || failed.GetFinal() || strings.Contains(failed.GetReason(), "10.0.0.1") {
		t.Errorf("%d orders, %v", a.orders, failed)
	}
}

// TestNextObtain has authorities that ask for pauses, after which the certificate of a host of the node would have ended.
func TestNextObtain(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		name     string
		due      time.Duration
		failures int
		err      error
		want     time.Duration
	}{
		{"renewal_is_far", 60 * 24 * time.Hour, 0, nil, longestCheck},
		{"renewal_is_near", 10 * time.Minute, 0, nil, 10 * time.Minute},
		{"renewal_is_overdue", -time.Hour, 0, nil, obtaining.First},
		{"first_failure", time.Until(time.Time{}), 0, refused, obtaining.First},
		{"third_failure", time.Until(time.Time{}), 2, refused, 4 * obtaining.First},
		{"many_failures", time.Until(time.Time{}), 1 << 40, refused, longestCheck},
		{"authority_asks_for_a_day", 24 * time.Hour, 0, refused, 24 * time.Hour},
		{"authority_asks_for_ten_years", 87_600 * time.Hour, 0, refused, longestRetry},
	} {
		if got := nextObtain(test.due, test.failures, test.err); got > test.want || got < test.want/2 || got != test.want && test.failures == 0 {
			t.Errorf("%s: the pause is %v, want %v", test.name, got, test.want)
		}
	}
}
