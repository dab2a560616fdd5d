package apps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// usageSeries returns the series of a supervisor that are about the use of the machine, in order.
func usageSeries(t *testing.T, s *Supervisor) (all []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		switch family.GetName() {
		case "atelier_app_cpu_seconds_total", "atelier_app_memory_bytes", "atelier_app_usage_omitted":
		default:
			continue
		}
		for _, m := range family.GetMetric() {
			series := family.GetName()
			for _, l := range m.GetLabel() {
				series += " " + l.GetName() + "=" + l.GetValue()
			}
			all = append(all, fmt.Sprint(series, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	return all
}

func TestUsageMetrics(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		expect := func(want ...string) {
			t.Helper()
			if got := usageSeries(t, w.s); !slices.Equal(got, want) {
				t.Errorf("the series are %q, want %q", got, want)
			}
		}
		expect("atelier_app_usage_omitted 0")
		w.register(&appv1.Runtime{Command: "serve"})
		labels := " app=" + testApp + " workspace=" + testWorkspace
		expect("atelier_app_cpu_seconds_total"+labels+" 1", "atelier_app_memory_bytes"+labels+" 1024", "atelier_app_usage_omitted 0")
		w.do(&appv1.SetDisabled{Disabled: true})
		synctest.Wait()
		expect("atelier_app_usage_omitted 0")
	})
}

// manyComputers answers for computers with one app each. The computer of the workspace "slow" does not answer in time.
type manyComputers struct{ Computers }

func (manyComputers) Usage(ctx context.Context, workspaceID string) ([]computer.Usage, error) {
	if workspaceID == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := 0
	_, _ = fmt.Sscanf(workspaceID, "ws_%d", &n)
	return []computer.Usage{{Group: "app:a", MemoryBytes: uint64(n), Processes: 1}}, nil
}

func TestUsageMetricsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Computers: manyComputers{}, Dir: t.TempDir()})
		for i := range 150 {
			identity := app.Identity(fmt.Sprintf("ws_%d", i), "a")
			s.running[identity] = s.newLoop(identity)
		}
		s.running["slow/a"] = s.newLoop("slow/a")
		at := time.Now()
		all := usageSeries(t, s)
		if want := 2*maxMeasured + 1; len(all) != want || all[want-1] != "atelier_app_usage_omitted 51" {
			t.Errorf("%d series, want %d; the last is %s", len(all), want, all[len(all)-1])
		}
		for _, series := range all {
			if strings.HasSuffix(series, "workspace=ws_49 49") {
				t.Errorf("the app with little memory is exported: %s", series)
			}
		}
		if took := time.Since(at); took != usageTimeout {
			t.Errorf("the collection took %s", took)
		}
		running := map[string][]string{"ws_1": {"a"}, "ws_7": {"a", "other"}, "slow": {"a"}}
		if all := s.measure(running); len(all) != 2 || all[0].MemoryBytes+all[1].MemoryBytes != 8 {
			t.Errorf("measured %v", all)
		}
	})
}
