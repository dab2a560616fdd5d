package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/cmd/build"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/limit/machine"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/runner"
)

const (
	// afterFailure is the drain deadline of a node after its journal or listener has failed.
	afterFailure = 2 * time.Second
	// lastResort is the time after the drain deadline at which the process ends without waiting for the node.
	lastResort = 5 * time.Second
)

// Run runs a node until ctx is canceled by a signal, SIGHUP arrives, or the journal or a listener fails. Nothing that it logs or prints
// waits for the reader of the log: it prints its error itself.
func (c *serveCommand) Run(ctx context.Context, out console) error {
	surviveBrokenPipes()
	ctx, cancel := untilHangup(ctx)
	defer cancel()
	lines := newLogWriter(os.Stderr, c.LogFormat)
	defer lines.Close()
	out.errors = lines
	if code := report(out, c.run(ctx, out, lines), exitFailure); code != 0 {
		return exitStatus(code)
	}
	return nil
}

func (c *serveCommand) run(ctx context.Context, out console, lines *logWriter) error {
	log, err := newLog(lines, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	if err := makeData(c.Data, log); err != nil {
		return err
	}
	reserved, err := c.reserve()
	if err != nil {
		return err
	}
	options, err := c.options(log, reserved)
	if err != nil {
		return errors.Join(err, closeReserved(reserved))
	}
	options.Registry = prometheus.NewRegistry()
	options.Registry.MustRegister(lines.total)
	started := time.Now()
	machine.TuneMemory()
	if options.Computers.Driver != node.NoDriver {
		machine.LowerOOMScore(log)
	}
	n, err := node.Start(ctx, options)
	if err != nil {
		return errors.Join(explain(err), closeReserved(reserved))
	}
	log.Info("recovered", slog.String("data", c.Data), slog.Duration("duration", time.Since(started)),
		slog.String("version", build.Read().String()))
	return c.serve(ctx, n, reserved, log, out)
}

// reserve listens on a free port if the port is 0: the node must know its address when it starts. A port that is configured is
// opened after recovery, so that connections are refused until then; reserve then returns nil.
func (c *serveCommand) reserve() (net.Listener, error) {
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || port != "0" {
		return nil, err
	}
	return listen(c.Listen)
}

// listen listens on HOST:PORT. An IPv4 address is IPv4 alone: for net.Listen, 0.0.0.0 means all addresses of IPv6, too.
func listen(address string) (net.Listener, error) {
	network := "tcp"
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Is4() {
		network = "tcp4"
	}
	return net.Listen(network, address)
}

func closeReserved(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// explain adds the exit code to an error of the start. fcntl(2) returns EAGAIN if another process has the lock.
func explain(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return coded{err, exitInUse}
	}
	return err
}

func (c *serveCommand) options(log *slog.Logger, reserved net.Listener) (node.Options, error) {
	settings, err := c.httpOptions(log, reserved)
	if err != nil {
		return node.Options{}, err
	}
	if c.Agents != "" {
		if _, err := runner.ReadConfig(c.Agents, os.LookupEnv); err != nil { // the node reads it again
			return node.Options{}, coded{fmt.Errorf("agents: %w", err), exitConfig}
		}
	}
	if _, err := server.NewCertificateFiles(c.httpsSettings.files(), time.Now, log); err != nil { // the node reads them again
		return node.Options{}, coded{fmt.Errorf("certificate: %w", err), exitConfig}
	}
	domains, err := c.domainOptions(settings.PublicURL)
	if err != nil {
		return node.Options{}, coded{err, exitConfig}
	}
	computers, err := c.computerSettings.options()
	return node.Options{
		Computers: computers, Domains: domains,
		Dir: c.Data, Log: log, GeneratedTrees: c.GeneratedTrees, IdleAfter: c.IdleAfter, BackupURL: c.BackupURL,
		ReactionAttempts: c.ReactionAttempts, BackupEvery: c.BackupEvery, BackupKeep: c.BackupKeep,
		DriveQuota: quota.Limit{Bytes: uint64(c.DriveQuota), Files: uint64(c.DriveFiles)}, DriveReserve: quota.Usage{
			Bytes: uint64(max(c.DriveReserve, c.MinFreeSpace)), Files: uint64(max(c.DriveReserveFiles, c.MinFreeFiles)),
		},
		Journal:          persistence.Options{CacheBytes: c.cacheBytes(), MinFreeBytes: uint64(c.MinFreeSpace), MinFreeFiles: uint64(c.MinFreeFiles)},
		WorkspaceJournal: uint64(c.WorkspaceJournal),
		Edge:             edge.Options{Limits: edge.Limits{HeaderTime: c.AppResponse}},
		HTTP:             settings, Agents: c.Agents, CertificateFiles: c.httpsSettings.files(), Apps: c.appSettings.options(),
	}, err
}

func (c *serveCommand) httpOptions(log *slog.Logger, reserved net.Listener) (http.Options, error) {
	address := c.Listen
	if reserved != nil {
		address = reserved.Addr().String()
	}
	public, local, err := c.publicURL(address)
	if err != nil {
		return http.Options{}, err
	}
	if local {
		log.Warn("without public-url, links lead to this machine alone, and requests for host names that are not in the setting hosts are refused",
			slog.String("url", public.String()))
	}
	post, err := c.mail()
	if err != nil {
		return http.Options{}, err
	}
	provider, err := c.provider()
	if err != nil {
		return http.Options{}, err
	}
	return http.Options{
		Mail: post, OIDC: provider, Sessions: api.SessionOptions{DeliveryTime: c.SessionDelivery, WaitTime: c.SessionWait},
		Options: server.Options{
			StreamSegment: c.StreamSegment, Heartbeat: c.Heartbeat, PublicURL: public, Hosts: c.hosts(), TrustedProxies: c.proxies(),
			StrictTransport: c.HSTS, SeparateMetrics: c.MetricsListen != "",
			Limits: server.Limits{
				Connections: c.MaxConnections, Requests: c.MaxRequests, Streams: c.MaxStreams, BodyMemory: int(partOfMemory(minBodyMemory, server.DefaultBodyMemory)),
				CredentialStreams: c.MaxCredentialStreams, CredentialTerminals: c.MaxCredentialTerminals, Rate: unlimited(c.Rate), Burst: c.Burst,
				AddressRate: unlimited(c.AddressRate), AddressBurst: c.AddressBurst,
				Workspaces:  unlimited(c.MaxWorkspaces),
				RequestTime: c.RequestTime, StallTime: c.StallTime, HeaderTime: c.HeaderTime, IdleTime: c.IdleTime,
			}},
	}, nil
}

// hosts returns the host names that the node answers for beside the host of public-url: the names in the setting hosts, and the names
// in the addresses that the node listens on.
func (c *serveCommand) hosts() []string {
	names := slices.Clone(c.Hosts)
	for _, address := range []string{c.Listen, c.HTTPSListen} {
		if name, _, err := net.SplitHostPort(address); err == nil && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// unlimited converts a limit for the server, where 0 is the default and a negative limit is none.
func unlimited(rate int) int {
	if rate == 0 {
		return -1
	}
	return rate
}

// cacheBytes returns the size of the journal's cache. If the memory of the process is limited, the default is a quarter of the
// limit; 0 is the journal's own default.
func (c *serveCommand) cacheBytes() int64 {
	if c.CacheSize != 0 {
		return int64(c.CacheSize)
	}
	return partOfMemory(minCacheSize, 256<<20)
}

// minBodyMemory is the least memory for the bodies of requests: the largest body takes 54 MiB.
const minBodyMemory = 64 << 20

// partOfMemory returns a quarter of the limit of the process's memory, between two numbers of bytes; 0 if the memory is not limited.
func partOfMemory(least, most int64) int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return max(least, min(most, limit/4))
}

// serve serves requests until ctx is canceled or a part fails, and stops the node.
func (c *serveCommand) serve(ctx context.Context, n *node.Node, reserved net.Listener, log *slog.Logger, out console) error {
	at, err := c.open(reserved)
	if err != nil {
		return errors.Join(err, stop(n, afterFailure, log))
	}
	ended := make(chan error, 4)
	go func() { ended <- n.Server.ServeAdmin(at.admin) }()
	if at.metrics != nil {
		go func() { ended <- n.Server.ServeMetrics(at.metrics) }()
	}
	address := "http://" + at.api.Addr().String()
	if at.secure == nil {
		go func() { ended <- n.Server.Serve(at.api) }()
	} else {
		address = "https://" + at.secure.Addr().String()
		go func() { ended <- n.Server.ServeRedirects(at.api, n.Challenges) }()
		go func() { ended <- n.Server.ServeTLS(at.secure, n.TLS()) }()
	}
	log.Info("ready", slog.String("address", address), slog.String("admin", at.admin.Addr().String()))
	go debug.FreeOSMemory() // what recovery used
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
		err = fmt.Errorf("the journal cannot write any more: %w", n.Journal.Err())
	case err = <-ended:
	}
	log.Error("ending", slog.String("error", fmt.Sprint(err)))
	return errors.Join(err, stop(n, afterFailure, log))
}

// opened are the listeners of a node. secure is nil without HTTPS; with it, api only redirects. metrics is nil if the metrics have no
// listener of their own.
type opened struct{ api, secure, metrics, admin net.Listener }

// open listens on the address of the API, unless reserved is a listener of this address, on the addresses of HTTPS and of the metrics if
// they are set, and on the operators' socket.
func (c *serveCommand) open(reserved net.Listener) (o opened, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, l := range []net.Listener{o.api, o.secure, o.metrics} {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	if o.api = reserved; o.api == nil {
		if o.api, err = listen(c.Listen); err != nil {
			return o, err
		}
	}
	if c.HTTPSListen != "" {
		if o.secure, err = listen(c.HTTPSListen); err != nil {
			return o, err
		}
	}
	if c.MetricsListen != "" {
		if o.metrics, err = listenMetrics(c.MetricsListen); err != nil {
			return o, fmt.Errorf("metrics-listen: %w", err)
		}
	}
	o.admin, err = listenAdmin(c.Data)
	return o, err
}

// stop stops the node. If it does not stop within the deadline and lastResort, stop returns an error; the process then ends
// like after a crash, which loses nothing that was acknowledged.
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
		return fmt.Errorf("the node did not stop within %s after the drain deadline: the process ends as after a crash, and what was acknowledged is safe", lastResort)
	}
}
