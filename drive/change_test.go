package drive

import (
	"errors"
	"testing"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// TestShareOfChanges begins changes until a caller has its share. A person is told to send fewer, which is a refusal. Callers without a
// person share one holder, and the platform must not take its own work for refused: it is told that the drive is unavailable.
func TestShareOfChanges(t *testing.T) {
	for name, test := range map[string]struct {
		principal *wirev1.Principal
		want      entity.Code
	}{
		"person":   {&wirev1.Principal{UserId: "usr_1"}, entity.RateLimited},
		"nobody":   {nil, entity.Unavailable},
		"platform": {entity.Platform(), entity.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			drives := manyDrives(t, 1, MinDescriptors)
			d, release, err := drives.Open(t.Context(), "ws_0")
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			for err == nil {
				var a *attempt
				if a, err = d.begin(Change{Principal: test.principal}); err == nil {
					defer a.end()
				}
			}
			refused, is := errors.AsType[*entity.Error](err)
			if !is || refused.Code != test.want || refused.RetryAfter == 0 || entity.IsRefusal(err) != (test.want == entity.RateLimited) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if len(d.inFlight) >= maxInFlight {
				t.Error("one caller has all changes in flight")
			}
		})
	}
}
