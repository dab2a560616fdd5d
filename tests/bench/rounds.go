package bench

import (
	"slices"
	"testing"
	"time"
)

// Variant is one way to do the work that others are measured against.
type Variant struct {
	Name string
	// Slice does as much work as fits into about d, and returns how much that was and how long it took.
	Slice func(d time.Duration) (units float64, took time.Duration)
}

// Rates are the units a second of each variant, one a round.
type Rates map[string][]float64

// Rounds lets the variants take turns, one slice each a round, in an order that changes. The first round warms up.
func Rounds(b *testing.B, slice time.Duration, variants ...Variant) Rates {
	rates := Rates{}
	for _, v := range variants {
		v.Slice(slice / 4)
	}
	for round := 0; b.Loop(); round++ {
		for i := range variants {
			v := variants[(i+round)%len(variants)]
			units, took := v.Slice(slice)
			rates[v.Name] = append(rates[v.Name], units/took.Seconds())
		}
	}
	b.ReportMetric(0, "ns/op")
	return rates
}

// Median is a variant's median rate.
func (r Rates) Median(name string) float64 { return Median(r[name]) }

// Ratio is the median of the rounds' ratios of two variants.
func (r Rates) Ratio(name, of string) float64 {
	ratios := make([]float64, 0, len(r[name]))
	for i := range r[name] {
		ratios = append(ratios, r[name][i]/r[of][i])
	}
	return Median(ratios)
}

// Report reports the median rate of every variant, and its first one's ratio to each other.
func (r Rates) Report(b *testing.B, unit string, variants ...Variant) {
	for i, v := range variants {
		b.ReportMetric(r.Median(v.Name), v.Name+"-"+unit)
		if i > 0 {
			b.ReportMetric(r.Ratio(variants[0].Name, v.Name), "of-"+v.Name)
		}
	}
}

// Median of nothing is 0.
func Median[N int64 | float64 | time.Duration](values []N) N { return Quantile(values, 0.5) }

// Quantile is the value below which a share q of the values lies.
func Quantile[N int64 | float64 | time.Duration](values []N, q float64) N {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
