package http

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

type telemetryView struct {
	Samples []sampleView `json:"samples"`
}

type sampleView struct {
	At          int64    `json:"at"`
	CPUPct      *float64 `json:"cpuPct,omitzero"`
	MemUsedMb   *float64 `json:"memUsedMb,omitzero"`
	MemTotalMb  *float64 `json:"memTotalMb,omitzero"`
	DiskUsedMb  *float64 `json:"diskUsedMb,omitzero"`
	DiskTotalMb *float64 `json:"diskTotalMb,omitzero"`
}

const (
	// sampleTime is how long samples are kept.
	sampleTime = 24 * time.Hour
	// mostSamples is more than there are in that time.
	mostSamples = 6000
)

// jsonNumber is a number of 0 or more as JSON writes it.
var jsonNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?$`)

// decodeSince is the time from which samples are asked for, in milliseconds, of which there may be fractions.
func decodeSince(c *call) (float64, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "sinceAt")
	if err != nil || !q.has("sinceAt") {
		return 0, err
	}
	text := q.text("sinceAt")
	since, err := strconv.ParseFloat(text, 64)
	if err != nil || !jsonNumber.MatchString(text) {
		return 0, invalid("sinceAt must be a number of 0 or more")
	}
	return since, nil
}

func (s *Server) readTelemetry(c *call, since float64) (telemetryView, error) {
	found, err := ask[*wirev1.Page](c, entity.Command{
		Kind: entity.KindComputer, Identity: c.workspace.id,
		Message: &wirev1.List{Name: "telemetry", Limit: mostSamples},
	})
	if err != nil {
		return telemetryView{}, err
	}
	from := math.Max(since, float64(s.now().Add(-sampleTime).UnixMilli()))
	samples, err := entries(found, viewSample)
	samples = slices.DeleteFunc(samples, func(one sampleView) bool { return float64(one.At) < from })
	slices.SortFunc(samples, func(a, b sampleView) int { return cmp.Compare(a.At, b.At) })
	return telemetryView{samples}, err
}

// viewSample leaves out what was not measured: a total of 0 is none.
func viewSample(s *computerv1.Sample) sampleView {
	view := sampleView{At: s.GetAt()}
	if pct := measured(s.GetCpuPct()); pct != nil && *pct <= 100 {
		view.CPUPct = pct
	}
	if s.GetMemTotalMb() > 0 {
		view.MemUsedMb, view.MemTotalMb = measured(s.GetMemUsedMb()), measured(s.GetMemTotalMb())
	}
	if s.GetDiskTotalMb() > 0 {
		view.DiskUsedMb, view.DiskTotalMb = measured(s.GetDiskUsedMb()), measured(s.GetDiskTotalMb())
	}
	return view
}

// measured is nil for what can be no measure, and no number in JSON.
func measured(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return nil
	}
	return &value
}
