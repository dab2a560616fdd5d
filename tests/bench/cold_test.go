package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/tests/testmachine"
)

const (
	// sleeper is the slug of the app, and sleeperCommand its command, which is this program.
	sleeper        = "sleeper"
	sleeperCommand = role + "=sleeper exec " + computer.ProgramPath
	// coldTime bounds each step of a cold start.
	coldTime = time.Minute
)

// BenchmarkEdgeCold measures the time from a request for an app that is asleep to the first byte of its response, through the edge of a
// node with computers that isolate processes (wake). In turns it starts the same process in the same computer by hand, and waits until it
// answers on its port (hand). No other process runs in the computer when a measurement begins.
func BenchmarkEdgeCold(b *testing.B) {
	s := startSleeper(b)
	variants := map[string]func() time.Duration{"wake": s.wake, "hand": s.byHand}
	times := map[string][]time.Duration{}
	for _, start := range variants {
		start()
	}
	var ratios []float64
	for b.Loop() {
		for range 2 * Turns {
			for name, start := range variants {
				times[name] = append(times[name], start())
			}
			last := len(ratios)
			ratios = append(ratios, float64(times["wake"][last])/float64(times["hand"][last]))
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, all := range times {
		b.ReportMetric(float64(Median(all).Microseconds())/1000, name+"-ms")
		b.ReportMetric(float64(Quantile(all, 0.9).Microseconds())/1000, name+"-p90-ms")
	}
	b.ReportMetric(Median(ratios), "of-hand")
}

// A sleeperApp is a public app of a node with computers.
type sleeperApp struct {
	*testing.B
	member         *Member
	id, host       string
	clients        *http.Client
	hasOwnNetworks bool
}

func startSleeper(b *testing.B) *sleeperApp {
	o := node.Options{Computers: node.ComputerOptions{Driver: node.LocalDriver}, PendingLimit: coldTime}
	o.HTTP.PublicURL, o.Domains.EdgeHost = &url.URL{Scheme: "http", Host: "atelier.test"}, "apps.test"
	o.Apps.Grace = time.Second
	m, err := startWith(Disk(b), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Stop(); err != nil {
			b.Error(err)
		}
	})
	s := &sleeperApp{B: b, member: m, clients: &http.Client{Timeout: coldTime, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", m.Address)
		},
	}}}
	running, err := m.Node.Computers.Launch(b.Context(), computer.Launch{
		WorkspaceID: m.Workspace, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC, Argv: []string{"true"},
	})
	if refused, is := errors.AsType[*entity.Error](err); is && refused.Code == entity.Forbidden {
		testmachine.Lacks(b, fmt.Sprintf("this machine cannot isolate processes: %v", refused))
	}
	s.check(err)
	_, err = running.Wait(b.Context())
	s.check(err)
	s.hasOwnNetworks = m.Node.Computers.OwnNetworks()

	api, err := client.New("http://atelier.test", m.Key, client.WithHTTPClient(s.clients))
	s.check(err)
	s.check(api.MakeFolder(b.Context(), m.Slug, sleeper))
	made, err := api.RegisterApp(b.Context(), m.Slug, client.NewApp{
		Path: sleeper, Slug: sleeper, Command: sleeperCommand, APIScopes: []string{}, SleepAfterSeconds: 3600,
	})
	s.check(err)
	_, err = api.SetAppVisibility(b.Context(), m.Slug, sleeper, client.AppVisibility{Visibility: "public"})
	s.check(err)
	s.id, s.host = made.ID, fmt.Sprintf("%s--%s.apps.test", sleeper, m.Slug)
	s.get(s.clients, s.host)
	return s
}

func (s *sleeperApp) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// get requests the page of the app, and returns when the first byte of its body has arrived.
func (s *sleeperApp) get(c *http.Client, host string) {
	response, err := c.Get("http://" + host + "/")
	s.check(err)
	defer response.Body.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(response.Body, first); err != nil || response.StatusCode != http.StatusOK {
		s.Fatal(response.Status, err)
	}
}

// sleep lets the app fall asleep, and returns when none of its processes is left.
func (s *sleeperApp) sleep() {
	identity := app.Identity(s.member.Workspace, s.id)
	ask := func(m appv1.Command) *appv1.App {
		reply, err := s.member.Node.Router.Ask(s.Context(), entity.Command{
			Kind: entity.KindApp, Identity: identity, Principal: entity.Platform(), Message: m,
		})
		s.check(err)
		described, _ := reply.(*appv1.Description)
		return described.GetApp()
	}
	ask(&appv1.ReportAsleep{Generation: ask(&appv1.DescribeApp{}).GetAcceptedGeneration()})
	if !ask(&appv1.DescribeApp{}).GetAsleep() {
		s.Fatal("the app does not fall asleep")
	}
	s.awaitEnd()
}

// wake measures a request that wakes the app.
func (s *sleeperApp) wake() time.Duration {
	s.sleep()
	began := time.Now()
	s.get(s.clients, s.host)
	return time.Since(began)
}

// awaitEnd waits until no process of the app is left.
func (s *sleeperApp) awaitEnd() {
	ctx, cancel := context.WithTimeout(s.Context(), coldTime)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for ; ; <-ticker.C {
		groups, err := s.member.Node.Computers.Usage(ctx, s.member.Workspace)
		s.check(err)
		processes := 0
		for _, group := range groups {
			if group.Group == "app:"+s.id {
				processes += group.Processes
			}
		}
		if processes == 0 {
			return
		}
	}
}

// byHand starts the process of the app as a process of its own, and measures the time until it answers.
func (s *sleeperApp) byHand() time.Duration {
	const port = 20999
	s.sleep()
	began := time.Now()
	l := computer.Launch{
		WorkspaceID: s.member.Workspace, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC,
		Argv: []string{"/bin/sh", "-c", sleeperCommand}, Cwd: sleeper, Env: []string{fmt.Sprint("PORT=", port)}, OwnNetwork: s.hasOwnNetworks,
	}
	if l.OwnNetwork {
		l.Prepare = func(context.Context, computer.Network) error { return nil }
	}
	running, err := s.member.Node.Computers.Launch(s.Context(), l)
	s.check(err)
	streams := running.Streams()
	_ = streams.Stdin.Close()
	go func() { _, _ = io.Copy(io.Discard, streams.Stdout) }()
	go func() { _, _ = io.Copy(io.Discard, streams.Stderr) }()
	dial := func(ctx context.Context) (net.Conn, error) {
		if l.OwnNetwork {
			return running.Dial(ctx, port)
		}
		return s.member.Node.Computers.Dial(ctx, s.member.Workspace, port)
	}
	s.get(&http.Client{Timeout: coldTime, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.await(ctx, dial) },
	}}, s.host)
	took := time.Since(began)
	s.check(running.End(s.Context()))
	_, err = running.Wait(s.Context())
	s.check(err)
	return took
}

// await connects as soon as the process listens.
func (s *sleeperApp) await(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		c, err := dial(ctx)
		if err == nil {
			return c, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}
