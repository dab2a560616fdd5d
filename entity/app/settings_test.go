package app_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

func respondIn(d time.Duration) *appv1.SetRuntimeSettings {
	return &appv1.SetRuntimeSettings{Settings: &appv1.RuntimeSettings{ResponseTimeoutMs: d.Milliseconds()}}
}

// TestRuntimeSettings checks that settings are replaced as a whole, and neither start a process nor change with another configuration. A
// removed app keeps none.
func TestRuntimeSettings(t *testing.T) {
	w := newRunning(t)
	w.mustNotChange(&appv1.SetRuntimeSettings{})
	for _, d := range []time.Duration{-time.Second, time.Millisecond, time.Second - time.Millisecond, time.Hour + time.Millisecond} {
		w.refused(respondIn(d), entity.InvalidRequest)
	}
	w.now = w.now.Add(time.Minute)
	w.must(respondIn(time.Hour))
	w.mustNotChange(respondIn(time.Hour))
	w.must(&appv1.UpdateApp{Command: proto.String("two")})
	w.report("")
	w.must(respondIn(time.Second))
	if s := w.s; s.GetRuntimeSettings().GetResponseTimeoutMs() != 1000 || s.GetGeneration() != 2 || s.GetRuntimeStatus() != reconciled ||
		s.GetUpdatedAt() != w.now.UnixMilli() {
		t.Errorf("%v", s)
	}
	w.must(&appv1.SetRuntimeSettings{Settings: &appv1.RuntimeSettings{}})
	w.mustNotChange(&appv1.SetRuntimeSettings{})
	if w.s.GetRuntimeSettings() != nil {
		t.Errorf("%v", w.s.GetRuntimeSettings())
	}
	if got := w.logged(); !slices.Equal(got, slices.Repeat([]string{"app.updated"}, 4)) {
		t.Errorf("logged %v", got)
	}
	w.must(respondIn(time.Second))
	w.must(&appv1.RemoveApp{TaskId: "t1"})
	w.asPlatform(&appv1.ReportStopped{TaskId: "t1"})
	if w.s.GetRuntimeSettings() != nil {
		t.Errorf("a removed app has %v", w.s.GetRuntimeSettings())
	}
}
