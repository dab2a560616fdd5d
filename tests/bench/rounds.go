package bench

import (
	"slices"
	"testing"
	"time"
)

// A Variant is one way to do the work.
type Variant struct {
	Name string
	// Slice works for about d, and returns the amount of work and the time.
	Slice func(d time.Duration) (units float64, took time.Duration)
}

// Processors has the functions that return the processor time that the servers of variants have used so far, by the variants' names. A
// variant that it lacks runs in this process.
type Processors map[string]func() time.Duration

// Rates has the units of work a second of each variant, by round, and the processor time of its server for a unit.
type Rates struct {
	rates map[string][]float64
	costs map[string][]float64
}

// Turns is the number of rounds in one iteration, so that a run with Go's default benchtime has a useful median.
const Turns = 5

// Rounds runs one slice of each variant in each round, in changing order. The first round warms up and does not count.
func Rounds(b *testing.B, slice time.Duration, variants ...Variant) Rates {
	return Processors{}.Rounds(b, slice, variants...)
}

// Rounds is the function Rounds for variants with servers in processes of their own.
func (p Processors) Rounds(b *testing.B, slice time.Duration, variants ...Variant) Rates {
	r := Rates{map[string][]float64{}, map[string][]float64{}}
	for _, v := range variants {
		v.Slice(slice / 4)
	}
	for b.Loop() {
		for i := range Turns * len(variants) {
			v := variants[(i+i/len(variants))%len(variants)]
			processor := processorTime
			if of := p[v.Name]; of != nil {
				processor = of
			}
			used := processor()
			units, took := v.Slice(slice)
			r.rates[v.Name] = append(r.rates[v.Name], units/took.Seconds())
			r.costs[v.Name] = append(r.costs[v.Name], float64((processor()-used).Nanoseconds())/units)
		}
	}
	b.ReportMetric(0, "ns/op")
	return r
}

// Median returns a variant's median rate.
func (r Rates) Median(name string) float64 { return Median(r.rates[name]) }

// Ratio returns the median of the rounds' ratios of two variants.
func (r Rates) Ratio(name, of string) float64 { return ratio(r.rates[name], r.rates[of]) }

// Cost returns a variant's median processor time for a unit, in nanoseconds.
func (r Rates) Cost(name string) float64 { return Median(r.costs[name]) }

// CostRatio returns the median of the rounds' ratios of the processor times of two variants for a unit.
func (r Rates) CostRatio(name, of string) float64 { return ratio(r.costs[name], r.costs[of]) }

func ratio(values, of []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / of[i]
	}
	return Median(ratios)
}

// Report reports the median rate and cost of every variant, and the ratios of the first variant to each other one.
func (r Rates) Report(b *testing.B, unit string, variants ...Variant) {
	for i, v := range variants {
		b.ReportMetric(r.Median(v.Name), v.Name+"-"+unit+"/s")
		b.ReportMetric(r.Cost(v.Name), v.Name+"-cpu-ns/"+unit)
		if i > 0 {
			b.ReportMetric(r.Ratio(variants[0].Name, v.Name), "of-"+v.Name)
			b.ReportMetric(r.CostRatio(variants[0].Name, v.Name), "cpu-of-"+v.Name)
		}
	}
}

// Median returns the median of values, or 0 if there are none.
func Median[N int64 | float64 | time.Duration](values []N) N { return Quantile(values, 0.5) }

// Quantile returns the value below which a share q of the values is.
func Quantile[N int64 | float64 | time.Duration](values []N, q float64) N {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
