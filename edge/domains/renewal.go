package domains

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// A certificate is renewed at the earliest of three times: after two thirds of its lifetime (renewalOf); at the time that the renewal
// information of the authority suggests (RFC 9773), for example before the authority revokes the certificate; and at once if an operator has
// marked the certificate (Renew, and bindingv1.RenewBinding for custom domains).
const (
	// suggestionTime limits a request for renewal information.
	suggestionTime = 10 * time.Second
	// soonestQuestion and latestQuestion are the shortest and the longest pause between two requests for the renewal information of a
	// certificate. usualQuestion is the pause if the authority requests no pause.
	soonestQuestion = time.Hour
	usualQuestion   = 6 * time.Hour
	latestQuestion  = 24 * time.Hour
)

// Renew marks the current certificate of a host of the node itself, so that the members that maintain the host replace the certificate: this
// member at once, and the other members within longestCheck. Errors: invalid_request if the server requests no certificates, or the store has
// no certificate of the host.
func (d *Domains) Renew(ctx context.Context, host string) error {
	if d.o.Off {
		return entity.Errorf(entity.InvalidRequest, "this server requests no certificates, because it has no acme-email")
	}
	pair, err := d.loadPair(ctx, host)
	switch {
	case err != nil:
		return err
	case pair == nil:
		return entity.Errorf(entity.InvalidRequest, "this host has no certificate yet; the log says why")
	}
	name := d.markFile(host)
	if err := d.files.write(ctx, nil, d.files.seal(name, []byte(serialOf(pair.Leaf.SerialNumber)))); err != nil {
		return err
	}
	if wake, ok := d.wakes.Load(host); ok {
		select {
		case wake.(chan struct{}) <- struct{}{}:
		default: // the goroutine has been woken already
		}
	}
	return nil
}

// markFile returns the name of the file with the serial number of the certificate that an operator has marked.
func (d *Domains) markFile(host string) string {
	return certmagic.StorageKeys.CertsSitePrefix(d.issuerKey(), host) + "/marked"
}

// renewalTime returns the time at which a certificate of the store is renewed.
func (d *Domains) renewalTime(ctx context.Context, host string, leaf *x509.Certificate) (time.Time, error) {
	_, marked, err := d.files.load(ctx, d.markFile(host))
	switch {
	case err == nil && string(marked) == serialOf(leaf.SerialNumber):
		return time.Time{}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return time.Time{}, err
	}
	due, suggested := renewalOf(describe(leaf)), d.suggestedTime(ctx, host, leaf)
	if !suggested.IsZero() && suggested.Before(due) {
		return suggested, nil
	}
	return due, nil
}

// A suggestion is the renewal information of the authority for the certificate with a serial number. It is stored, so that the time that was
// chosen in the suggested window does not change, and members do not ask more often than the authority permits.
type suggestion struct {
	Serial     string    `json:"serial"`
	Start      time.Time `json:"start,omitzero"`
	End        time.Time `json:"end,omitzero"`
	RenewAt    time.Time `json:"renewAt,omitzero"`
	AskAgainAt time.Time `json:"askAgainAt"`
}

func (d *Domains) suggestionFile(host string) string {
	return certmagic.StorageKeys.CertsSitePrefix(d.issuerKey(), host) + "/renewal.json"
}

// suggest adds the renewal time that the authority suggests for the certificate of a host to the report of the host's check.
func (d *Domains) suggest(ctx context.Context, host string, report *bindingv1.ReportCheck) {
	pair, err := d.loadPair(ctx, host)
	if d.o.Off || err != nil || pair == nil {
		return // Issue reports errors of the store
	}
	if at := d.suggestedTime(ctx, host, pair.Leaf); !at.IsZero() {
		report.RenewAt, report.Renews = max(at.UnixMilli(), 1), serialOf(pair.Leaf.SerialNumber)
	}
}

// suggestedTime returns the time at which the authority suggests to renew a certificate, or the zero time. It asks the authority if the last
// answer is too old. If the authority does not answer, it returns the last suggestion.
func (d *Domains) suggestedTime(ctx context.Context, host string, leaf *x509.Certificate) time.Time {
	now, serial := d.o.Clock(), serialOf(leaf.SerialNumber)
	var known suggestion
	if _, content, err := d.files.load(ctx, d.suggestionFile(host)); err == nil {
		_ = json.Unmarshal(content, &known)
	}
	if known.Serial != serial {
		known = suggestion{Serial: serial}
	}
	if d.o.Off || isTooSoon(now, known.AskAgainAt) || len(leaf.AuthorityKeyId) == 0 {
		return known.RenewAt
	}
	d.askForRenewal(ctx, host, leaf, now, &known)
	content, err := json.Marshal(known)
	if err == nil {
		err = d.files.write(ctx, nil, d.files.seal(d.suggestionFile(host), content))
	}
	if err != nil {
		d.o.Log.Warn("the renewal time of a certificate was not stored", slog.String("host", host), slog.Any("error", err))
	}
	return known.RenewAt
}

// isTooSoon reports whether the authority is not asked yet.
func isTooSoon(now, askAgainAt time.Time) bool {
	return !entity.HasPassed(askAgainAt.Add(-latestQuestion).UnixMilli(), now.UnixMilli(), latestQuestion)
}

// askForRenewal asks the authority for renewal information, and sets the suggestion, with the time of the next question.
func (d *Domains) askForRenewal(ctx context.Context, host string, leaf *x509.Certificate, now time.Time, known *suggestion) {
	ctx, cancel := context.WithTimeout(ctx, suggestionTime)
	defer cancel()
	client := &acme.Client{Directory: d.o.Directory, HTTPClient: d.httpClient(nil), UserAgent: userAgent}
	info, err := client.GetRenewalInfo(ctx, leaf)
	switch {
	case errors.Is(err, acme.ErrUnsupported):
		known.AskAgainAt = now.Add(latestQuestion)
		return
	case err != nil:
		known.AskAgainAt = now.Add(soonestQuestion)
		d.o.Log.Info("the authority has no renewal information", slog.String("host", host), slog.Any("error", err))
		return
	}
	known.AskAgainAt = now.Add(usualQuestion)
	if info.RetryAfter != nil {
		known.AskAgainAt = now.Add(min(max(time.Until(*info.RetryAfter), soonestQuestion), latestQuestion))
	}
	window := info.SuggestedWindow
	if known.Start.Equal(window.Start) && known.End.Equal(window.End) {
		return
	}
	known.Start, known.End, known.RenewAt = window.Start, window.End, info.SelectedTime
	if known.RenewAt.Before(renewalOf(describe(leaf))) {
		d.o.Log.Warn("the authority suggests to renew a certificate early", slog.String("host", host), slog.Time("at", known.RenewAt),
			slog.String("explanation", info.ExplanationURL))
	}
}
