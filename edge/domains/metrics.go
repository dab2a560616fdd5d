package domains

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/certificates"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// countEvery is the least time between two counts of the certificates in the store. countTimeout limits one count.
	countEvery   = time.Minute
	countTimeout = 2 * time.Second
	// expiringSoon is the last part of the lifetime of a certificate. In it, the certificate counts as expiring: it should have been renewed.
	expiringSoon = 7 * 24 * time.Hour
	pageRows     = 1000
)

// metrics counts the work of Domains. No label has a host name.
type metrics struct {
	files *files
	clock func() time.Time

	checks, issues, cleanUps, handshakes *prometheus.CounterVec
	certificates                         *prometheus.Desc

	mu      sync.Mutex
	counted time.Time
	states  map[string]int
}

func newMetrics(f *files, clock func() time.Time) *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atelier_domain_" + name, Help: help}, []string{label})
	}
	return &metrics{
		files: f, clock: clock,
		checks:       counter("checks_total", "Checks of the DNS records of custom domains, by outcome: found, missing, conflict, failed.", "outcome"),
		issues:       counter("certificate_requests_total", "Requests for certificates, by outcome: issued, reused, postponed, refused, rate_limited, failed.", "outcome"),
		cleanUps:     counter("clean_ups_total", "Removals of the certificates of released domains, by outcome: done, failed.", "outcome"),
		handshakes:   counter("certificate_loads_total", "Certificates for handshakes, by result: hit if the certificate was in memory, miss if it was not, refused if a client, or all together, ask for too many unknown names.", "result"),
		certificates: prometheus.NewDesc("atelier_domain_certificates", "Certificates in the store, by state: valid, expiring within a week, expired.", []string{"state"}, nil),
	}
}

func (m *metrics) checked(outcome string)   { m.checks.WithLabelValues(outcome).Inc() }
func (m *metrics) issued(outcome string)    { m.issues.WithLabelValues(outcome).Inc() }
func (m *metrics) cleanedUp(outcome string) { m.cleanUps.WithLabelValues(outcome).Inc() }
func (m *metrics) served(result string)     { m.handshakes.WithLabelValues(result).Inc() }

// Describe implements prometheus.Collector.
func (d *Domains) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range d.metrics.counters() {
		c.Describe(descriptions)
	}
	descriptions <- d.metrics.certificates
}

// Collect implements prometheus.Collector. If the certificates cannot be counted, their metric is omitted.
func (d *Domains) Collect(all chan<- prometheus.Metric) {
	for _, c := range d.metrics.counters() {
		c.Collect(all)
	}
	for state, n := range d.metrics.count() {
		all <- prometheus.MustNewConstMetric(d.metrics.certificates, prometheus.GaugeValue, float64(n), state)
	}
}

func (m *metrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.checks, m.issues, m.cleanUps, m.handshakes}
}

// count returns the number of certificates by state, which is at most countEvery old.
func (m *metrics) count() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	if m.states != nil && now.Before(m.counted.Add(countEvery)) {
		return m.states
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	states := map[string]int{"valid": 0, "expiring": 0, "expired": 0}
	for after := []byte(nil); ; {
		page, err := m.files.page(ctx, &wirev1.List{Name: certificates.ExpiryList, After: after, Limit: pageRows})
		if err != nil {
			return nil
		}
		for _, row := range page.GetRows() {
			expiry := &certificatesv1.Expiry{}
			if err := proto.Unmarshal(row, expiry); err != nil {
				return nil
			}
			states[stateOf(time.UnixMilli(expiry.GetNotAfter()).Sub(now))]++
		}
		if after = page.GetNext(); len(after) == 0 {
			break
		}
	}
	m.states, m.counted = states, now
	return states
}

func stateOf(left time.Duration) string {
	switch {
	case left <= 0:
		return "expired"
	case left < expiringSoon:
		return "expiring"
	default:
		return "valid"
	}
}
