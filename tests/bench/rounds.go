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

// Rates are the units a second of each variant, one a round, and the processor time of this process that a unit took.
type Rates struct {
	rates map[string][]float64
	costs map[string][]float64
}

// Turns is how many rounds make one iteration, so that a run with Go's own benchtime has a median worth the name.
const Turns = 5

// Rounds lets the variants take turns, one slice each a round, in an order that changes. The first round warms up.
func Rounds(b *testing.B, slice time.Duration, variants ...Variant) Rates {
	r := Rates{map[string][]float64{}, map[string][]float64{}}
	for _, v := range variants {
		v.Slice(slice / 4)
	}
	for b.Loop() {
		for i := range Turns * len(variants) {
			v := variants[(i+i/len(variants))%len(variants)]
			used := processorTime()
			units, took := v.Slice(slice)
			r.rates[v.Name] = append(r.rates[v.Name], units/took.Seconds())
			r.costs[v.Name] = append(r.costs[v.Name], float64((processorTime()-used).Nanoseconds())/units)
		}
	}
	b.ReportMetric(0, "ns/op")
	return r
}

// Median is a variant's median rate.
func (r Rates) Median(name string) float64 { return Median(r.rates[name]) }

// Ratio is the median of the rounds' ratios of two variants.
func (r Rates) Ratio(name, of string) float64 { return ratio(r.rates[name], r.rates[of]) }

func ratio(values, of []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / of[i]
	}
	return Median(ratios)
}

// Report reports the median rate and cost of every variant, and the ratios of the first one's to those of each other.
func (r Rates) Report(b *testing.B, unit string, variants ...Variant) {
	for i, v := range variants {
		b.ReportMetric(r.Median(v.Name), v.Name+"-"+unit+"/s")
		b.ReportMetric(Median(r.costs[v.Name]), v.Name+"-cpu-ns/"+unit)
		if i > 0 {
			b.ReportMetric(r.Ratio(variants[0].Name, v.Name), "of-"+v.Name)
			b.ReportMetric(ratio(r.costs[variants[0].Name], r.costs[v.Name]), "cpu-of-"+v.Name)
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
