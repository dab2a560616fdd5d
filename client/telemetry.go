package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Sample is the resource usage of a workspace's computer at a time. A nil field is not known.
type Sample struct {
	At          int64    `json:"at"`
	CPUPct      *float64 `json:"cpuPct,omitempty"`
	MemUsedMB   *float64 `json:"memUsedMb,omitempty"`
	MemTotalMB  *float64 `json:"memTotalMb,omitempty"`
	DiskUsedMB  *float64 `json:"diskUsedMb,omitempty"`
	DiskTotalMB *float64 `json:"diskTotalMb,omitempty"`
}

type samplesAnswer struct {
	Samples []Sample `json:"samples"`
}

// Telemetry returns the samples of a workspace's computer since a time, oldest first; 0 returns all stored samples.
func (c *Client) Telemetry(ctx context.Context, slug string, since int64) ([]Sample, error) {
	query := url.Values{}
	if since != 0 {
		query.Set("sinceAt", strconv.FormatInt(since, 10))
	}
	found, err := call[samplesAnswer](ctx, c, request{method: http.MethodGet, path: workspacePath(slug, "/telemetry"), query: query})
	return found.Samples, err
}
