package http_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func TestTelemetryOfTheLastDay(t *testing.T) {
	w, now := newFakeEntities(), newClock()
	s, key := w.server(t, func(o *http.Options) { o.Clock = now.Now }), w.key(alice)
	at := now.Now().UnixMilli()
	day := (24 * time.Hour).Milliseconds()
	asked := stubLists(t, w, "",
		&computerv1.Sample{At: at - 15_000, CpuPct: 1, MemUsedMb: math.NaN(), MemTotalMb: 8, DiskUsedMb: 1, DiskTotalMb: math.Inf(1)},
		&computerv1.Sample{At: at, CpuPct: 101},
		&computerv1.Sample{At: at - day - 1, CpuPct: 1},
		&computerv1.Sample{At: at - day, CpuPct: -1, MemUsedMb: 0, MemTotalMb: 4, DiskUsedMb: 5},
		&computerv1.Sample{At: at + 5_000, CpuPct: 2},
		&computerv1.Sample{At: at + 5_001, CpuPct: 2}, // of a clock that was ahead
	)
	got := request(t, s, "GET", "/v1/ws/acme/telemetry", key, "")
	want := fmt.Sprintf(`{"samples":[{"at":%d,"memUsedMb":0,"memTotalMb":4},{"at":%d,"cpuPct":1,"memTotalMb":8,"diskUsedMb":1},{"at":%d},{"at":%d,"cpuPct":2}]}`, at-day, at-15_000, at, at+5_000)
	if got.Body.String() != want {
		t.Errorf("%s, want %s", got.Body, want)
	}
	if l := (*asked)[0]; len(*asked) != 1 || l.GetName() != "telemetry" || len(l.GetAfter()) > 0 {
		t.Errorf("asked for %v", *asked)
	}
}

// TestTelemetryInPages reads samples that the computer returns in pages, one of them without a sample that is recent enough.
func TestTelemetryInPages(t *testing.T) {
	w, now := newFakeEntities(), newClock()
	s, key := w.server(t, func(o *http.Options) { o.Clock = now.Now }), w.key(alice)
	at := now.Now().UnixMilli()
	times := map[string]int64{"": at, "a": at - 2_000, "b": at - 1_000}
	stub(w, func(_ entity.Command, l *wirev1.List) (proto.Message, error) {
		row, err := proto.Marshal(&computerv1.Sample{At: times[string(l.GetAfter())], CpuPct: 101})
		if l.GetLimit() > 500 {
			t.Errorf("%d rows were asked for at once", l.GetLimit())
		}
		return &wirev1.Page{Rows: [][]byte{row}, Next: map[string][]byte{"": []byte("a"), "a": []byte("b")}[string(l.GetAfter())]}, err
	})
	got := request(t, s, "GET", fmt.Sprintf("/v1/ws/acme/telemetry?sinceAt=%d", at-1_500), key, "")
	if want := fmt.Sprintf(`{"samples":[{"at":%d},{"at":%d}]}`, at-1_000, at); got.Body.String() != want {
		t.Errorf("%s, want %s", got.Body, want)
	}
}
