package persistence

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestAcceptancesAreCounted accepts the loss of events twice. Each later process has the acceptances in its metrics and its log, also if a
// line of their record is illegible.
func TestAcceptancesAreCounted(t *testing.T) {
	crashed := crashedWithoutLogs(t)
	var log bytes.Buffer
	o := smallOptions(crashed, "data")
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opened := func(acceptances, missing float64) {
		t.Helper()
		log.Reset()
		s := mustOpen(t, o)
		defer mustClose(t, s)
		if n, m := metricOf(t, s, "atelier_journal_acceptances"), metricOf(t, s, "atelier_journal_accepted_missing_events"); n != acceptances || m != missing {
			t.Errorf("%g acceptances of %g missing events, want %g of %g", n, m, acceptances, missing)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "data/ACCEPTED") {
			t.Errorf("the log of the start: %q", log.String())
		}
	}
	accept := func() {
		t.Helper()
		log.Reset()
		a, err := Accept(o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("the log of the acceptance of %+v: %q", a, log.String())
		}
	}
	mustBeDamaged(t, crashed, o, "has contained event")
	accept()
	opened(1, 1)
	opened(1, 1)
	accept()
	opened(2, 1)
	whole := imageOf(t, crashed, "data")
	o.FS = whole.replace("data/"+acceptedName, append([]byte("{]\n"), whole["data/"+acceptedName]...)).fileSystem(t)
	opened(3, 1)
}
