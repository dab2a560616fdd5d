package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
)

// maxHeartbeat bounds the time between two comments on an idle stream: the Go client and many proxies give up a connection that is silent
// for a minute.
const maxHeartbeat = 30 * time.Second

// dataFlag is the flag of the data directory.
type dataFlag struct {
	Data string `default:"data" type:"path" placeholder:"DIR" help:"Data directory of the node; serve creates it if it is missing. Default: data in the current directory."`
}

// serveCommand has every setting of a node with its name, help and limits.
type serveCommand struct {
	Config string `type:"path" placeholder:"FILE" help:"YAML file with settings: the flags' names without the dashes."`
	dataFlag
	Listen        string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the API. Port 0: a free one."`
	MetricsListen string `placeholder:"HOST:PORT|unix:FILE" help:"Address, or socket, on which /metrics alone is served, instead of on the address of the API. None: /metrics is on the address of the API."`
	Quickstart    bool   `help:"At the first start, make an owner and a workspace; print the address, a key and what to try. On a loopback address alone."`

	publicSettings
	httpsSettings
	appSettings
	smtpSettings
	oidcSettings

	LogLevel  string `group:"Log" default:"info" enum:"debug,info,warn,error" help:"Least level that is logged: ${enum}."`
	LogFormat string `group:"Log" default:"text" enum:"text,json" help:"Form of a line: ${enum}."`

	DrainDeadline   time.Duration `group:"Time" default:"30s" help:"Time for requests in flight to finish after SIGTERM."`
	RequestTime     time.Duration `group:"Time" default:"30s" help:"Bound of an ordinary request. Transfers and streams have none."`
	StallTime       time.Duration `group:"Time" default:"1m" help:"A transfer or a stream that moves no byte for this long, and an upload of less than 1 KiB a second in this time, is cut off."`
	HeaderTime      time.Duration `group:"Time" default:"10s" help:"Bound of the arrival of a request's head."`
	IdleTime        time.Duration `group:"Time" default:"2m" help:"A connection without a request is closed after this long."`
	StreamSegment   time.Duration `group:"Time" default:"15m" help:"A stream ends after this long, give or take 20 %, for its client to resume it."`
	SessionWait     time.Duration `group:"Time" default:"30s" help:"A request that waits for an agent is answered after this long, for its client to repeat it."`
	SessionDelivery time.Duration `group:"Time" default:"1s" help:"Time in which an agent may take an input before the response says that it is queued."`
	Heartbeat       time.Duration `group:"Time" default:"15s" help:"Time between the comments that keep an idle stream open, at most 30s."`

	Rate                   int `group:"Limits" default:"5000" help:"Requests a second with one credential; more are answered 429. 0: no limit."`
	Burst                  int `group:"Limits" default:"0" help:"Requests that a credential may save up. 0: twice the rate."`
	AddressRate            int `group:"Limits" default:"50" help:"Requests a second from one address to public pages and endpoints, or with keys that are not known yet or wrong; more are answered 429. 0: no limit."`
	AddressBurst           int `group:"Limits" default:"0" help:"Such requests that an address may save up. 0: twenty times the rate."`
	MaxConnections         int `group:"Limits" default:"12000" help:"Connections, beyond which requests are answered 503. Fewer where the limit of open files leaves no room for so many."`
	MaxRequests            int `group:"Limits" default:"4096" help:"Requests in flight, streams not counted, beyond which more are answered 503."`
	MaxStreams             int `group:"Limits" default:"10000" help:"Open streams, running commands, requests that wait for an agent and connections to terminals, beyond which more are answered 503."`
	MaxCredentialStreams   int `group:"Limits" default:"5000" help:"Open streams, running commands, requests that wait for an agent and connections to terminals with one credential, beyond which more are answered 429."`
	MaxCredentialTerminals int `group:"Limits" default:"64" help:"Terminals that were opened with one credential and have not ended, beyond which opening one is answered 429."`
	MaxWorkspaces          int `group:"Limits" default:"1000" help:"Workspaces that a person may have created and not deleted; creating more is answered 409 limit_reached. 0: no limit."`

	CacheSize    size `group:"Resources" default:"0" help:"Memory for the journal's blocks and tables, as 256MiB. 0: 256 MiB, or a quarter of GOMEMLIMIT where that is less."`
	MinFreeSpace size `group:"Resources" default:"64MiB" help:"Free space on the disk below which changes are refused."`
	MinFreeFiles int  `group:"Resources" default:"200" help:"Free inodes on the disk below which changes are refused."`

	WorkspaceJournal size `group:"Resources" default:"4GiB" help:"Bytes that a workspace may have in the journal, beside its files: sessions, and the records of changes. A quarter of the disk is the most. 0: no limit."`

	IdleAfter time.Duration `group:"Resources" default:"5m" help:"An entity leaves memory when it has not been used for this long."`

	ReactionAttempts int `group:"Resources" default:"12" help:"Failed attempts of a reaction to an event, after which the reactions of its stream are parked until an operator retries or skips them."`

	BackupURL string `name:"backup-url" group:"Drive" placeholder:"URL" help:"Bucket that keeps backups: s3://BUCKET?region=REGION, or file:///DIR. None: a folder of the data directory."`

	BackupEvery  time.Duration `group:"Drive" default:"0" help:"Time between two backups of a workspace's drive, as 24h, unless the workspace has a schedule of its own. 0: none are scheduled."`
	BackupKeep   int           `group:"Drive" default:"7" help:"Number of scheduled backups of a workspace that are stored; the oldest are removed."`
	DriveQuota   size          `group:"Drive" default:"0" help:"Bytes that the drive of a workspace may occupy, as 10GiB. 0: no limit."`
	DriveFiles   int           `group:"Drive" default:"1000000" help:"Files, folders and links that the drive of a workspace may have. 0: no limit."`
	DriveReserve size          `group:"Drive" default:"512MiB" help:"Free space on the disk below which workspaces with much of the disk upload nothing and run no processes; those with little go on for a part of it. At least min-free-space."`

	DriveReserveFiles int `group:"Drive" default:"1000" help:"Free inodes on the disk, as drive-reserve. At least min-free-files, and a sixteenth of the inodes of the disk up to 65536."`

	GeneratedTrees []string `group:"Drive" default:"node_modules,.git,target,dist,build,.venv,__pycache__,.cache" help:"Names of folders whose content is generated: operations below them are recorded in summaries."`

	computerSettings

	Agents string `group:"Sessions" type:"path" placeholder:"FILE" help:"YAML file with the agents and models of sessions, and budgets (\"Agents\" in docs/operations.md). Default: the built-in agent without a model, which carries out runbooks."`
}

// Validate is called by the parser when every setting has its value.
func (c *serveCommand) Validate() error {
	return errors.Join(
		c.checkListen(),
		c.publicSettings.check(),
		c.httpsSettings.check(),
		c.appSettings.check(),
		c.smtpSettings.check(),
		c.oidcSettings.check(),
		c.checkBackup(),
		c.computerSettings.check(),
		between("drain-deadline", c.DrainDeadline, time.Second, time.Hour),
		between("request-time", c.RequestTime, time.Second, time.Hour),
		between("stall-time", c.StallTime, time.Second, time.Hour),
		between("header-time", c.HeaderTime, time.Second, time.Hour),
		between("idle-time", c.IdleTime, time.Second, 24*time.Hour),
		between("stream-segment", c.StreamSegment, time.Second, 24*time.Hour),
		between("session-wait", c.SessionWait, time.Second, time.Hour),
		between("session-delivery", c.SessionDelivery, time.Millisecond, c.RequestTime/2),
		between("heartbeat", c.Heartbeat, time.Second, maxHeartbeat),
		between("idle-after", c.IdleAfter, time.Second, 24*time.Hour),
		between("reaction-attempts", c.ReactionAttempts, 1, 1000),
		between("rate", c.Rate, 0, 1_000_000),
		between("burst", c.Burst, 0, 10_000_000),
		between("address-rate", c.AddressRate, 0, 1_000_000),
		between("address-burst", c.AddressBurst, 0, 10_000_000),
		between("max-connections", c.MaxConnections, 1, 1_000_000),
		between("max-requests", c.MaxRequests, 1, 1_000_000),
		between("max-streams", c.MaxStreams, 1, 1_000_000),
		between("max-credential-streams", c.MaxCredentialStreams, 1, 1_000_000),
		between("max-credential-terminals", c.MaxCredentialTerminals, 1, 1_000_000),
		between("max-workspaces", c.MaxWorkspaces, 0, 1_000_000),
		c.checkSizes(),
		c.checkTrees(),
	)
}

func (c *serveCommand) checkListen() error {
	host, err := checkAddress("listen", c.Listen)
	if err != nil {
		return err
	}
	if err := c.checkMetricsListen(); err != nil {
		return err
	}
	switch {
	case c.HTTPSListen != "" && !strings.HasPrefix(c.PublicURL, "https://"):
		return errors.New("public-url: with https-listen it is required, and begins with https://")
	case c.Quickstart && c.HTTPSListen != "":
		return errors.New("quickstart: it starts a node without HTTPS; leave https-listen out")
	}
	if c.Quickstart && !loopback(host) {
		return fmt.Errorf("quickstart: it prints a key on the terminal, so it needs a loopback address; %q is not one", c.Listen)
	}
	return nil
}

// checkAddress returns the host of an address that a setting names. Names of services and zones are refused, because the address becomes
// a part of URLs.
func checkAddress(setting, address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %q is not HOST:PORT", setting, address)
	case strings.Contains(host, "%"):
		return "", fmt.Errorf("%s: %q has a zone: name an address without one, or [::]", setting, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%s: %q is not a port from 0 to 65535", setting, port)
	}
	return host, nil
}

func (c *serveCommand) checkMetricsListen() error {
	path, isSocket := strings.CutPrefix(c.MetricsListen, socketPrefix)
	switch {
	case c.MetricsListen == "":
		return nil
	case !isSocket:
		_, err := checkAddress("metrics-listen", c.MetricsListen)
		return err
	case path == "" || len(path) > longestSocket:
		return fmt.Errorf("metrics-listen: the path of the socket must have 1 to %d bytes", longestSocket)
	}
	return nil
}

func (c *serveCommand) checkBackup() error {
	if c.BackupEvery != 0 {
		if err := between("backup-every", c.BackupEvery, computer.MinBackupInterval, computer.MaxBackupInterval); err != nil {
			return err
		}
	}
	if err := between("backup-keep", c.BackupKeep, 1, computer.MaxBackups); err != nil || c.BackupURL == "" {
		return err
	}
	if _, err := bucket.Parse(c.BackupURL); err != nil {
		return fmt.Errorf("backup-url: %w", err)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

const (
	minCacheSize = 4 << 20
	maxCacheSize = 1 << 40
)

func (c *serveCommand) checkSizes() error {
	var errs []error
	if c.CacheSize != 0 {
		errs = append(errs, between("cache-size", c.CacheSize, minCacheSize, maxCacheSize))
	}
	if c.DriveQuota != 0 {
		errs = append(errs, between("drive-quota", c.DriveQuota, 1<<20, 1<<50))
	}
	if c.WorkspaceJournal != 0 {
		errs = append(errs, between("workspace-journal", c.WorkspaceJournal, 1<<20, 1<<50))
	}
	if c.DriveFiles != 0 {
		errs = append(errs, between("drive-files", c.DriveFiles, 100, 1<<40))
	}
	return errors.Join(append(errs, between("min-free-space", c.MinFreeSpace, 1, maxCacheSize),
		between("drive-reserve", c.DriveReserve, 0, 1<<50), between("min-free-files", c.MinFreeFiles, 0, 1<<30),
		between("drive-reserve-files", c.DriveReserveFiles, 0, 1<<40))...)
}

func (c *serveCommand) checkTrees() error {
	for _, name := range c.GeneratedTrees {
		if err := entity.CheckPath(name); err != nil || strings.Contains(name, "/") {
			return fmt.Errorf("generated-trees: %q is not the name of a folder", name)
		}
	}
	return nil
}

func between[N int | size | time.Duration](setting string, value, least, most N) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %v is not between %v and %v", setting, value, least, most)
	}
	return nil
}
