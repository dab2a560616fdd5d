package computer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// countBackup counts the outcome of an attempt of a backup. An attempt that will be repeated is not counted.
func (f *Fleet) countBackup(task *computerv1.Task, report proto.Message) {
	if k := task.GetKind(); k != computerv1.TaskKind_TASK_KIND_BACK_UP && k != computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE {
		return
	}
	switch report.(type) {
	case *computerv1.ReportBackedUp:
		f.metrics.backups.WithLabelValues("taken").Inc()
		f.metrics.lastBackup.Set(float64(f.o.Clock().Unix()))
	case *computerv1.ReportCovered:
		f.metrics.backups.WithLabelValues("covered").Inc()
		f.metrics.lastBackup.Set(float64(f.o.Clock().Unix()))
	case *computerv1.ReportFailed:
		f.metrics.backups.WithLabelValues("failed").Inc()
	}
}

// overdue counts the overdue backups of the shares that are followed.
type overdue struct {
	mu sync.Mutex
	of map[*followed]int
}

func (o *overdue) set(f *followed, count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[f] = count
}

func (o *overdue) forget(f *followed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, f)
}

func (o *overdue) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, count := range o.of {
		n += count
	}
	return n
}

var overdueDescription = prometheus.NewDesc("atelier_backups_overdue",
	"Workspaces with scheduled backups whose last one is older than two intervals.", nil, nil)
