package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// afterFailure is what a node takes to end whose journal can write no more.
	afterFailure = 2 * time.Second
	// lastResort is what may pass beyond the drain deadline before the process ends as it is.
	lastResort = 5 * time.Second
)

// Run serves until the context ends.
func (c *serveCommand) Run(ctx context.Context, out console) error {
	log, err := newLog(out.errors, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	if err := makeData(c.Data, log); err != nil {
		return err
	}
	started := time.Now()
	node.TuneMemory()
	n, err := node.Start(ctx, c.options(log))
	if err != nil {
		return explain(err)
	}
	log.Info("recovered", slog.String("data", c.Data), slog.Duration("duration", time.Since(started)),
		slog.String("version", version().String()))
	return c.serve(ctx, n, log, out)
}

// explain gives an error of the start its exit code. EAGAIN is what fcntl(2) says of a lock that is another's.
func explain(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return coded{err, exitInUse}
	}
	return err
}

func (c *serveCommand) options(log *slog.Logger) node.Options {
	rate := c.Rate
	if rate == 0 {
		rate = -1
	}
	return node.Options{
		Dir: c.Data, Log: log, GeneratedTrees: c.GeneratedTrees, IdleAfter: c.IdleAfter,
		Journal: persistence.Options{CacheBytes: c.cacheBytes(), MinFreeBytes: uint64(c.MinFreeSpace)},
		HTTP: http.Options{
			StreamSegment: c.StreamSegment, Heartbeat: c.Heartbeat,
			Limits: http.Limits{
				Connections: c.MaxConnections, Requests: c.MaxRequests, Streams: c.MaxStreams,
				CredentialStreams: c.MaxCredentialStreams, Rate: rate, Burst: c.Burst,
				RequestTime: c.RequestTime, StallTime: c.StallTime, HeaderTime: c.HeaderTime, IdleTime: c.IdleTime,
			},
		},
	}
}

// cacheBytes leaves a process whose memory is bounded room for all else; 0 is the journal's own default.
func (c *serveCommand) cacheBytes() int64 {
	limit := debug.SetMemoryLimit(-1)
	if c.CacheSize != 0 || limit == math.MaxInt64 {
		return int64(c.CacheSize)
	}
	return max(minCacheSize, min(256<<20, limit/4))
}

func (c *serveCommand) serve(ctx context.Context, n *node.Node, log *slog.Logger, out console) error {
	listener, admin, err := c.open()
	if err != nil {
		return errors.Join(err, stop(n, afterFailure, log))
	}
	ended := make(chan error, 2)
	go func() { ended <- n.Server.Serve(listener) }()
	go func() { ended <- n.Server.ServeAdmin(admin) }()
	address := "http://" + listener.Addr().String()
	log.Info("ready", slog.String("address", address), slog.String("admin", admin.Addr().String()))
	if c.Quickstart {
		if err := quickstart(ctx, c.Data, address, out); err != nil && ctx.Err() == nil {
			return errors.Join(fmt.Errorf("quickstart: %w", err), stop(n, c.DrainDeadline, log))
		}
	}
	select {
	case <-ctx.Done():
		log.Info("draining", slog.Duration("deadline", c.DrainDeadline))
		return stop(n, c.DrainDeadline, log)
	case <-n.Journal.Failed():
		err = fmt.Errorf("the journal can write no more: %w", n.Journal.Err())
	case err = <-ended:
	}
	log.Error("ending", slog.String("error", fmt.Sprint(err)))
	return errors.Join(err, stop(n, afterFailure, log))
}

func (c *serveCommand) open() (api, admin net.Listener, err error) {
	if api, err = net.Listen("tcp", c.Listen); err != nil {
		return nil, nil, err
	}
	if admin, err = listenAdmin(c.Data); err != nil {
		return nil, nil, errors.Join(err, api.Close())
	}
	return api, admin, nil
}

// stop ends the node; one that does not end in time is left as it is, which is what a crash would leave as well.
func stop(n *node.Node, deadline time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(ctx) }()
	select {
	case err := <-stopped:
		log.Info("stopped")
		return err
	case <-time.After(deadline + lastResort):
		return errors.New("what was under way did not end in time")
	}
}
