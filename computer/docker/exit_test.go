package docker

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/docker/agent"
)

// inspected answers requests for the state of an exec.
type inspected func() (isRunning bool)

func (i inspected) RoundTrip(r *http.Request) (*http.Response, error) {
	body := fmt.Sprintf(`{"ID":"exec","Running":%t,"ExitCode":7}`, i())
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// TestExitStatusAfterASlowReader has an engine that reports the end of a process when it has sent all output, as Podman does, and a
// reader that does not read for longer than the engine may take.
func TestExitStatusAfterASlowReader(t *testing.T) {
	for name, of := range map[string]struct {
		isKilled bool
		want     computer.Exit
		after    time.Duration
	}{
		"the process has exited": {want: computer.Exit{Status: 7}, after: 5 * time.Minute},
		"it was ended":           {isKilled: true, want: computer.Exit{Status: 137, Signal: 9, Reason: computer.EndedLost}, after: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{stdout: newPipe(), stderr: newPipe()}
				sent := make(chan struct{})
				go func() {
					_, _ = s.stdout.Write(make([]byte, 2*pipeSize))
					close(sent)
				}()
				go func() {
					time.Sleep(5 * time.Minute)
					_, _ = io.ReadFull(s.stdout, make([]byte, 2*pipeSize))
				}()
				engine, err := client.New(client.WithAPIVersion("1.44"), client.WithHTTPClient(&http.Client{Transport: inspected(func() bool { return !isClosed(sent) })}))
				if err != nil {
					t.Fatal(err)
				}
				p := &process{session: s, container: &runningContainer{
					driver: &Driver{engine: engine, options: Options{Timeout: 30 * time.Second}}, ended: make(chan struct{}),
				}}
				p.isKilled.Store(of.isKilled)
				began := time.Now()
				exit := p.exitStatus(agent.Reply{})
				exit.At = time.Time{}
				if took := time.Since(began).Round(time.Second); exit != of.want || took != of.after {
					t.Errorf("after %s: %+v", took, exit)
				}
				<-sent
			})
		})
	}
}
