package api

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/http/server"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// computers serves the computers of workspaces.
type computers struct{ files Drive }

func (k computers) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: server.WorkspacePath + "/reprovision", Scope: server.ScopeAdmin, Summary: "Replace the workspace's computer",
			Handler: server.Answer(http.StatusOK, server.Nothing, k.reprovision)},
		{Method: http.MethodGet, Path: server.WorkspacePath + "/telemetry", Scope: server.ScopeMember, Summary: "List samples of the computer's load",
			Handler: server.Answer(http.StatusOK, decodeSince, k.telemetry)},
	}
}

type backupPending struct {
	Status      string `json:"status"`
	WorkspaceID string `json:"workspaceId"`
	BackupID    string `json:"backupId"`
}

type reprovisioning struct {
	Status      string `json:"status"`
	WorkspaceID string `json:"workspaceId"`
	Scheduled   bool   `json:"scheduled"`
	OldVMName   string `json:"oldVmName,omitzero"`
	ImageRef    string `json:"imageRef,omitzero"`
}

type reprovisionDeferred struct {
	Status              string `json:"status"`
	Reason              string `json:"reason"`
	ActiveAgentSessions uint32 `json:"activeAgentSessions"`
	ActiveTrainJobs     uint32 `json:"activeTrainJobs"`
}

// reprovision replaces the workspace's computer. It reads the drive first, because the computer's rules must know whether a
// backup is possible.
func (k computers) reprovision(c *server.Call, _ server.None) (any, error) {
	if err := c.Authorize(); err != nil {
		return nil, err
	}
	_, unreadable := k.files.Exists(c.Context, c.Workspace.ID, "")
	sessions, jobs, err := activeWork(c)
	if err != nil {
		return nil, err
	}
	answer, err := server.Ask[*computerv1.Reprovisioned](c, entity.Command{
		Kind: entity.KindComputer, Identity: c.Workspace.ID, ID: c.NewID("cmd_"),
		Message: &computerv1.Reprovision{
			TaskId: c.NewID("tsk_"), BackupId: c.NewID("bkp_"), DriveReadable: unreadable == nil,
			ActiveSessions: sessions, ActiveJobs: jobs,
		},
	})
	if err != nil {
		return nil, err
	}
	switch answer.GetStatus() {
	case computer.BackupPending:
		return backupPending{answer.GetStatus(), c.Workspace.ID, answer.GetBackupId()}, nil
	case computer.Provisioning:
		return reprovisioning{
			answer.GetStatus(), c.Workspace.ID, answer.GetScheduled(), answer.GetOldVmName(), answer.GetImageRef(),
		}, nil
	case computer.Deferred:
		return reprovisionDeferred{
			answer.GetStatus(), "active_workspace_work", answer.GetActiveSessions(), answer.GetActiveJobs(),
		}, nil
	}
	return nil, fmt.Errorf("the computer answered Reprovision with the unknown status %q", answer.GetStatus())
}

type telemetryView struct {
	Samples []sampleView `json:"samples"`
}

type sampleView struct {
	At          int64    `json:"at"`
	CPUPct      *float64 `json:"cpuPct,omitzero"`
	MemUsedMb   *float64 `json:"memUsedMb,omitzero"`
	MemTotalMb  *float64 `json:"memTotalMb,omitzero"`
	DiskUsedMb  *float64 `json:"diskUsedMb,omitzero"`
	DiskTotalMb *float64 `json:"diskTotalMb,omitzero"`
}

const (
	// sampleTime is the maximum age of the samples that are returned.
	sampleTime = 24 * time.Hour
	// sampleAhead is how far the clock of the member that has taken a sample may be ahead. Later samples were taken while the
	// clock was ahead, and are left out: clients that read on from the time of the last sample would miss the samples of a day.
	sampleAhead = 5 * time.Second
	// samplePage is the number of samples that are read at once, a twelfth of the samples of a day.
	samplePage = 480
	// sampleBytes is about the size of a sample with all values as JSON.
	sampleBytes = 200
)

// jsonNumber matches JSON numbers of 0 or more without an exponent.
var jsonNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?$`)

// decodeSince decodes sinceAt, the time of the oldest sample, in milliseconds since the Unix epoch; it may have a fraction.
func decodeSince(c *server.Call) (float64, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "sinceAt")
	if err != nil || !q.Has("sinceAt") {
		return 0, err
	}
	text := q.Text("sinceAt")
	since, err := strconv.ParseFloat(text, 64)
	if err != nil || !jsonNumber.MatchString(text) {
		return 0, server.Invalid("sinceAt must be a number of 0 or more")
	}
	return since, nil
}

func (k computers) telemetry(c *server.Call, since float64) (telemetryView, error) {
	now := c.Now()
	from := math.Max(since, float64(now.Add(-sampleTime).UnixMilli()))
	until := now.Add(sampleAhead).UnixMilli()
	if err := c.ReserveAnswer(samplesSince(from, now) * sampleBytes); err != nil {
		return telemetryView{}, err
	}
	samples := []sampleView{}
	for page := (*wirev1.Page)(nil); page == nil || len(page.GetNext()) > 0; {
		var err error
		if page, err = server.Ask[*wirev1.Page](c, entity.Command{
			Kind: entity.KindComputer, Identity: c.Workspace.ID,
			Message: &wirev1.List{Name: "telemetry", After: page.GetNext(), Limit: samplePage},
		}); err != nil {
			return telemetryView{}, err
		}
		read, err := server.DecodeRows(page, viewSample)
		if err != nil {
			return telemetryView{}, err
		}
		samples = append(samples, slices.DeleteFunc(read, func(one sampleView) bool { return float64(one.At) < from || one.At > until })...)
	}
	slices.SortFunc(samples, func(a, b sampleView) int { return cmp.Compare(a.At, b.At) })
	return telemetryView{samples}, nil
}

// samplesSince returns the greatest number of samples from a time until now; from is in milliseconds since the Unix epoch.
func samplesSince(from float64, now time.Time) int {
	return int(math.Max(float64(now.UnixMilli())-from, 0))/int(computer.SampleEvery.Milliseconds()) + 1
}

// viewSample returns a sample as JSON, without values that were not measured. A total of 0 was not measured.
func viewSample(s *computerv1.Sample) sampleView {
	view := sampleView{At: s.GetAt()}
	if pct := measured(s.GetCpuPct()); pct != nil && *pct <= 100 {
		view.CPUPct = pct
	}
	if s.GetMemTotalMb() > 0 {
		view.MemUsedMb, view.MemTotalMb = measured(s.GetMemUsedMb()), measured(s.GetMemTotalMb())
	}
	if s.GetDiskTotalMb() > 0 {
		view.DiskUsedMb, view.DiskTotalMb = measured(s.GetDiskUsedMb()), measured(s.GetDiskTotalMb())
	}
	return view
}

// measured returns nil for values that no measurement has, and that JSON may be unable to represent.
func measured(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return nil
	}
	return &value
}
