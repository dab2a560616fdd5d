package await

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		want  bool
	}{"at once": {0, true}, "later": {deadline - time.Second, true}, "never": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, looks := time.Now(), 0
				seen, is := until(began.Add(deadline), func() (any, bool) { looks++; return looks, time.Since(began) >= test.after })
				if is != test.want || seen != looks || looks == 0 {
					t.Errorf("got %v, %v after %d looks", seen, is, looks)
				}
				if lasted := time.Since(began); lasted < min(test.after, deadline) || lasted > min(test.after, deadline)+longestPause {
					t.Errorf("it lasted %s", lasted)
				}
			})
		})
	}
}

func TestDescribe(t *testing.T) {
	if got := describe([]string{"a"}); got != "; seen: [a]" {
		t.Error(got)
	}
	if got := describe(nil); got != "" {
		t.Error(got)
	}
}
