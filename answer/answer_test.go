package answer_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
)

func TestTableOf(t *testing.T) {
	some := answer.Statuses.Of(entity.NotFound).With(answer.Table{"locked": 423})
	if len(some) != 2 || some[entity.NotFound] != 404 || some["locked"] != 423 || answer.Statuses["locked"] != 0 {
		t.Fatal(some)
	}
	for name, wrong := range map[string]func(){
		"a code without a status":  func() { answer.Statuses.Of("locked") },
		"a code with two statuses": func() { some.With(answer.Table{entity.NotFound: 410}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			wrong()
		}()
	}
}

func TestRequestID(t *testing.T) {
	for name, test := range map[string]struct {
		given []string
		want  string
	}{
		"none": {nil, "req_new"}, "valid": {[]string{"client-12345"}, "client-12345"},
		"two":   {[]string{"client-12345", "client-12345"}, "req_new"},
		"short": {[]string{"x"}, "req_new"}, "with a line break": {[]string{"client-12345\n"}, "req_new"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Request-Id"] = test.given
		if got := answer.RequestID(r, func(prefix string) string { return prefix + "new" }); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestLoggedPaths(t *testing.T) {
	secret, long := strings.Repeat("s3", 20), "/"+strings.Repeat("a-", 600)
	for path, want := range map[string]string{
		"/keys/atl_" + secret + "/x": "/keys/atl_…/x", "/ws_01h455vb4pex5vsknk084sn02q": "/ws_01h455vb4pex5vsknk084sn02q",
		long: long[:1024] + "…",
	} {
		if got := answer.RedactPath(path); got != want {
			t.Errorf("RedactPath(%q) = %q", path, got)
		}
	}
	if got := answer.ClipPath("/" + secret); got != "/"+secret {
		t.Errorf("ClipPath: %q", got)
	}
}

func TestReportPanic(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	for _, ignored := range []any{nil, http.ErrAbortHandler} {
		if answer.ReportPanic(log, "it panicked", "req_1", ignored) || logged.Len() > 0 {
			t.Fatalf("%v is reported: %s", ignored, &logged)
		}
	}
	defer func() {
		if !answer.ReportPanic(log, "it panicked", "req_1", recover()) {
			t.Error("a panic is not reported")
		}
		for _, want := range []string{`level=ERROR msg="it panicked" request=req_1 panic=why stack=`, "TestReportPanic"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("%s is not in %s", want, &logged)
			}
		}
	}()
	panic("why")
}

func TestCounters(t *testing.T) {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers"}, []string{"route", "status"})
	classes := answer.NewClasses(answers, prometheus.Labels{"route": "/"})
	for _, status := range []int{0, 101, 204, 299, 503, 999} {
		classes.Count(status)
	}
	for class, want := range map[string]float64{"0xx": 1, "1xx": 1, "2xx": 2, "3xx": 0, "4xx": 0, "5xx": 2} {
		if got := value(answers.WithLabelValues("/", class)); got != want {
			t.Errorf("%s: %v, want %v", class, got, want)
		}
	}
	lookups := answer.NewLookups("x_", "")
	for _, hit := range []bool{true, false, true} {
		lookups.Of("host")(hit)
	}
	memory, asked := value(lookups.WithLabelValues("host", "memory")), value(lookups.WithLabelValues("host", "asked"))
	if memory != 2 || asked != 1 {
		t.Errorf("memory %v, asked %v", memory, asked)
	}
}

func value(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

func TestRetrySeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "1", -time.Second: "1", 1: "1", time.Second: "1", time.Second + 1: "2", time.Minute: "60"} {
		if got := answer.RetrySeconds(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
