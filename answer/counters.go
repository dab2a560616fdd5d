package answer

import "github.com/prometheus/client_golang/prometheus"

// Classes counts answers by the class of the status: 0xx, which means that the client had gone before the answer, to 5xx.
type Classes [6]prometheus.Counter

// NewClasses returns the series of a counter. Its label "status" is the class; labels has all other labels.
func NewClasses(answers *prometheus.CounterVec, labels prometheus.Labels) (c Classes) {
	of := answers.MustCurryWith(labels)
	for class := range c {
		c[class] = of.WithLabelValues(string(rune('0'+class)) + "xx")
	}
	return c
}

// Count counts an answer.
func (c *Classes) Count(status int) { c[min(max(status/100, 0), 5)].Inc() }

// Lookups counts the look-ups of caches.
type Lookups struct{ *prometheus.CounterVec }

// NewLookups returns the counter of a door. space is the start of its name.
func NewLookups(space, help string) Lookups {
	return Lookups{prometheus.NewCounterVec(prometheus.CounterOpts{Name: space + "lookups_total", Help: help}, []string{"kind", "result"})}
}

// Of returns the function that counts the look-ups of one cache. hit means that the cache answered, and not an entity.
func (l Lookups) Of(kind string) func(hit bool) {
	memory, asked := l.WithLabelValues(kind, "memory"), l.WithLabelValues(kind, "asked")
	return func(hit bool) {
		if hit {
			memory.Inc()
		} else {
			asked.Inc()
		}
	}
}
