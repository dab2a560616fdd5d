package domains

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	"github.com/atelier-run/atelier/retry"
)

const (
	// issueTimeout limits a request for a certificate.
	issueTimeout = 4 * time.Minute
	// unknownPause is the pause after a refusal because of a limit that does not say when it ends.
	unknownPause = time.Hour
	// longestCheck is the longest pause between two looks at the certificate of an own host, which another member may have renewed, or
	// an operator removed.
	longestCheck = time.Hour
	// longestRetry limits the pause that an authority may request. Package entity/binding has the same limit for custom domains.
	longestRetry = 7 * 24 * time.Hour
)

// obtaining has the pauses after a certificate of an own host was not obtained.
var obtaining = retry.Policy{First: 2 * time.Minute, Longest: longestCheck}

// slashes replaces the separators of a URL's path.
var slashes = strings.NewReplacer("/", "-")

// Issue runs the task binding.IssueTask. If the store has a usable certificate that is not to be renewed, Issue reports this certificate: it is
// the result of an earlier attempt, or of an earlier binding of the name.
func (d *Domains) Issue(ctx context.Context, issue *bindingv1.Issue) (proto.Message, error) {
	certificate, failure := d.obtain(ctx, issue.GetHostname(), issue.GetRenews())
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case failure == nil:
		return &bindingv1.ReportIssued{Number: issue.GetNumber(), Certificate: certificate}, nil
	}
	report := &bindingv1.ReportIssueFailed{Number: issue.GetNumber(), Reason: failure.reason, Final: failure.final}
	if !failure.retryAt.IsZero() {
		report.RetryAt = failure.retryAt.UnixMilli()
	}
	return report, nil
}

// Obtain makes sure that the store has a certificate of a host of the node itself, and returns the time of its renewal. An error says
// why the store has no certificate. Any number of members may call it; all members use a certificate that one member has obtained.
func (d *Domains) Obtain(ctx context.Context, host string) (time.Time, error) {
	certificate, failure := d.obtain(ctx, host, "")
	if failure != nil {
		return failure.retryAt, errors.New(failure.reason)
	}
	return renewalOf(certificate), nil
}

// Maintain obtains and renews the certificates of the node's own hosts until ctx ends. It returns at once. Every member may do so.
func (d *Domains) Maintain(ctx context.Context, hosts []string) {
	for _, host := range hosts {
		if binding.CheckHostname(host) != nil {
			d.o.Log.Warn("no certificate can be requested for this host of the node", slog.String("host", host))
			continue
		}
		d.maintained.Go(func() {
			wake := make(chan struct{}, 1)
			d.wakes.Store(host, wake)
			defer d.wakes.CompareAndDelete(host, wake)
			for failures := 0; ; {
				at, err := d.Obtain(ctx, host)
				wait := nextObtain(at.Sub(d.o.Clock()), failures, err)
				if failures++; err == nil {
					failures = 0
				}
				if !retry.PauseUnless(ctx, wait, wake) && ctx.Err() != nil {
					return
				}
			}
		})
	}
}

// nextObtain returns the pause after a call of Obtain that returned err, and a time that is due in the given duration, with the number
// of failures before it.
func nextObtain(due time.Duration, failures int, err error) time.Duration {
	wait := min(longestCheck, due)
	if err != nil {
		wait = max(obtaining.After(failures+1), min(due, longestRetry))
	}
	return max(wait, obtaining.First)
}

// A failure is the reason why there is no certificate.
type failure struct {
	reason string
	// final is set if the authority refuses the name for good. It must not be asked before retryAt.
	final   bool
	retryAt time.Time
	outcome string
}

// obtain returns a certificate of a host with another serial number than renews.
func (d *Domains) obtain(ctx context.Context, host, renews string) (*bindingv1.Certificate, *failure) {
	certificate, failure, outcome := d.takeOrObtain(ctx, host, renews)
	if failure != nil {
		outcome = failure.outcome
		d.o.Log.Warn("no certificate was obtained", slog.String("host", host), slog.String("outcome", outcome),
			slog.String("reason", failure.reason))
	}
	d.metrics.issued(outcome)
	return certificate, failure
}

func (d *Domains) takeOrObtain(ctx context.Context, host, renews string) (*bindingv1.Certificate, *failure, string) {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	if stored, failure := d.reuse(ctx, host, renews); stored != nil || failure != nil {
		return stored, failure, "reused"
	}
	if d.o.Off {
		return nil, &failure{reason: "This server requests no certificates.", outcome: "failed"}, ""
	}
	session, pace := d.files.begin(), &pacer{clock: d.o.Clock}
	defer session.end(ctx)
	// Several members find at the same time that a host needs a certificate. The lock of certmagic does not suffice, because certmagic carries a
	// renewal out even if another renewal has ended while it waited for the lock.
	if err := session.Lock(ctx, "order_"+host); err != nil {
		return nil, d.classify(host, err, nil), ""
	}
	if stored, failure := d.reuse(ctx, host, renews); stored != nil || failure != nil {
		return stored, failure, "reused"
	}
	if failure := d.takeOrder(ctx, host); failure != nil {
		return nil, failure, ""
	}
	config := certmagic.New(d.cache, certmagic.Config{
		Storage: session, Issuers: []certmagic.Issuer{&authority{d, session, pace}}, KeySource: certmagic.StandardKeyGenerator{KeyType: certmagic.P256},
		DisableARI: true, DisableStorageCheck: true, OCSP: certmagic.OCSPConfig{DisableStapling: true}, Logger: zap.NewNop(),
	})
	// It obtains a certificate if the store has none.
	if err := errors.Join(config.RenewCertSync(ctx, host, true), session.finish()); err != nil {
		return nil, d.classify(host, err, pace), ""
	}
	issued, err := d.loadPair(ctx, host)
	if err == nil && issued == nil {
		err = errors.New("the certificate does not fit its key or the name")
	}
	if err != nil {
		return nil, d.classify(host, err, nil), ""
	}
	d.Certificates.loaded.Put(host, loadedCertificate{issued, serialOf(issued.Leaf.SerialNumber), d.o.Clock()})
	return describe(issued.Leaf), nil, "issued"
}

// reuse returns the usable certificate of a host in the store. It returns nil if the store has no such certificate, or if its serial number is
// renews.
func (d *Domains) reuse(ctx context.Context, host, renews string) (*bindingv1.Certificate, *failure) {
	stored, err := d.usable(ctx, host)
	switch {
	case err != nil:
		return nil, d.classify(host, err, nil)
	case stored.GetSerial() == renews:
		return nil, nil
	}
	return stored, nil
}

// takeOrder takes an order for a host from the budget of the authority.
func (d *Domains) takeOrder(ctx context.Context, host string) *failure {
	taken, err := entity.ReplyAs[*certificatesv1.Taken](d.files.ask(ctx, &certificatesv1.TakeOrder{
		Authority: d.authority, Orders: d.o.Orders, PeriodMs: d.o.OrdersPeriod.Milliseconds(),
	}))
	if err != nil {
		return d.classify(host, err, nil)
	}
	if taken.GetRetryAt() == 0 {
		return nil
	}
	return &failure{
		reason: "This server has requested as many certificates as the authority allows; it will try again.", outcome: "postponed",
		retryAt: time.UnixMilli(taken.GetRetryAt()),
	}
}

// usable returns the certificate of a host in the store. It returns nil if the store does not have both the certificate and its key, or if the
// certificate is to be renewed. A certificate that is not valid yet is usable, because the clock of the authority may be ahead.
func (d *Domains) usable(ctx context.Context, host string) (*bindingv1.Certificate, error) {
	pair, err := d.loadPair(ctx, host)
	if err != nil || pair == nil {
		return nil, err
	}
	due, err := d.renewalTime(ctx, host, pair.Leaf)
	if err != nil || !d.o.Clock().Before(due) {
		return nil, err
	}
	return describe(pair.Leaf), nil
}

// loadPair loads the certificate of a host, with its key. It returns nil if the store does not have both, or if they are not valid for the host.
func (d *Domains) loadPair(ctx context.Context, host string) (*tls.Certificate, error) {
	var parts [2][]byte
	for i, name := range []string{
		certmagic.StorageKeys.SiteCert(d.issuerKey(), host), certmagic.StorageKeys.SitePrivateKey(d.issuerKey(), host),
	} {
		_, content, err := d.files.load(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		parts[i] = content
	}
	pair, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil || pair.Leaf == nil || pair.Leaf.VerifyHostname(host) != nil {
		return nil, nil
	}
	return &pair, nil
}

func describe(c *x509.Certificate) *bindingv1.Certificate {
	return &bindingv1.Certificate{
		Serial: serialOf(c.SerialNumber), Issuer: c.Issuer.CommonName, NotBefore: c.NotBefore.UnixMilli(), NotAfter: c.NotAfter.UnixMilli(),
	}
}

func serialOf(n *big.Int) string { return fmt.Sprintf("%x", n) }

// renewalOf returns the time after two thirds of a certificate's lifetime, at which it is renewed at the latest (entity/binding).
func renewalOf(c *bindingv1.Certificate) time.Time {
	return time.UnixMilli(c.GetNotBefore() + (c.GetNotAfter()-c.GetNotBefore())*2/3)
}

// classify returns the failure for an error of an order. The failure shows the text of a problem that the authority reports. It does not show any
// other error, which may contain addresses of the installation; classify logs such an error.
func (d *Domains) classify(host string, err error, pace *pacer) *failure {
	var problem acme.Problem
	if !errors.As(err, &problem) {
		d.o.Log.Warn("a request for a certificate has failed", slog.String("host", host), slog.Any("error", err))
		reason := "The certificate could not be requested; the server will try again."
		if pace != nil {
			reason = "The certificate authority could not be reached, or did not answer in time."
		}
		return &failure{reason: reason, outcome: "failed"}
	}
	all := kinds(problem)
	has := func(kind string) bool { return slices.Contains(all, kind) }
	f := &failure{reason: "The certificate authority refuses: " + detail(problem), outcome: "refused"}
	switch {
	case has(acme.ProblemTypeRateLimited):
		f.outcome = "rate_limited"
		if f.retryAt = pace.at(); f.retryAt.IsZero() {
			f.retryAt = d.o.Clock().Add(unknownPause)
		}
	case has(acme.ProblemTypeRejectedIdentifier), has(acme.ProblemTypeUnsupportedIdentifier):
		f.final = true
	default:
		f.retryAt = pace.at()
	}
	return f
}

// kinds returns the types of a problem and its subproblems.
func kinds(p acme.Problem) []string {
	all := []string{p.Type}
	for _, sub := range p.Subproblems {
		all = append(all, sub.Type)
	}
	return all
}

// detail returns the texts of a problem and its subproblems.
func detail(p acme.Problem) string {
	texts := []string{p.Detail}
	for _, sub := range p.Subproblems {
		texts = append(texts, sub.Detail)
	}
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " ")
}
