package apps

import (
	"testing"
	"time"
)

// TestFailuresAtTheSameTime has processes that end while the clock stands still. Each end is a failure of its own.
func TestFailuresAtTheSameTime(t *testing.T) {
	var h history
	now := time.Unix(1000, 0)
	double := func(failures int) time.Duration { return time.Duration(1<<failures) * time.Second }
	for i := 1; i <= 5; i++ {
		wait := h.countFailure(now, 7, double)
		if want := double(i); h.failures != i || wait != want || !h.nextStart(7).Equal(now.Add(want)) {
			t.Errorf("after %d failures: %d are counted, the pause is %s, the next start at %s", i, h.failures, wait, h.nextStart(7))
		}
	}
	if !h.nextStart(8).IsZero() {
		t.Error("a different generation waits for the pause")
	}
}

func TestSuccess(t *testing.T) {
	for _, isRequested := range []bool{true, false} {
		h := history{failures: 3, reconciled: 4, interrupted: time.Unix(1000, 0)}
		h.succeed(configuration{generation: 5, isRequested: isRequested})
		want := history{failures: 3, reconciled: 4}
		if isRequested {
			want = history{reconciled: 5}
		}
		if h != want {
			t.Errorf("requested %v: the history is %+v, want %+v", isRequested, h, want)
		}
	}
}

func TestResume(t *testing.T) {
	const limit = 30 * time.Second
	accepted, requested := configuration{generation: 1}, configuration{generation: 2, isRequested: true}
	for name, attempts := range map[string][]struct {
		of   configuration
		at   time.Duration
		want bool
	}{
		"accepted is repeated for ever":              {{accepted, 0, true}, {accepted, time.Hour, true}},
		"requested is repeated for a limited time":   {{requested, 0, true}, {requested, limit - 1, true}, {requested, limit, false}},
		"each generation has the whole time":         {{accepted, 0, true}, {requested, time.Hour, true}, {requested, time.Hour + limit, false}},
		"the time begins anew after it has run over": {{requested, 0, true}, {requested, limit, false}, {requested, limit, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var h history
			for i, a := range attempts {
				if got := h.mayResume(time.Unix(1000, 0).Add(a.at), a.of, limit); got != a.want {
					t.Errorf("attempt %d is repeated: %v, want %v", i, got, a.want)
				}
			}
		})
	}
}
