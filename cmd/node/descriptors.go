package node

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"syscall"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// otherDescriptors are for all that has no share of its own: standard streams, listeners, operators' connections, the
	// bucket of backups, mail, sign-in, measurements.
	otherDescriptors = 48
	// journalSlack is what the journal may take beyond its open files, for tables that are being written.
	journalSlack = 16
	// mostJournalFiles and mostDriveDescriptors are what these shares gain nothing beyond.
	mostJournalFiles     = 1000
	mostDriveDescriptors = 1 << 15
	// leastDescriptors is the limit below which a node does not start.
	leastDescriptors = 192
)

// descriptors are the shares of the file descriptors that a process may have, which is the one place where they are
// divided. None of the shares is exceeded, so that running out of connections or of open drives refuses requests and never
// keeps the journal from opening a file.
type descriptors struct {
	limit int
	// journalFiles is how many files the journal has open.
	journalFiles int
	// drives is how many descriptors open drives and the operations on them hold.
	drives int
	// connections is how many connections are served; a few more are told so and closed.
	connections int
}

// divideDescriptors divides a limit. The journal comes first, drives get at least a quarter of what is left, and connections
// as many as are wanted of the rest.
func divideDescriptors(limit, wanted int) (descriptors, error) {
	if limit < leastDescriptors {
		return descriptors{}, fmt.Errorf("the limit of open files is %d: a node needs at least %d; raise it (ulimit -n, or "+
			"LimitNOFILE of systemd)", limit, leastDescriptors)
	}
	d := descriptors{limit: limit, journalFiles: min(max(limit/5, persistence.MinOpenFiles), mostJournalFiles)}
	rest := limit - otherDescriptors - d.journalFiles - journalSlack
	d.drives = max(rest/4, drive.MinDescriptors)
	// The server accepts an eighth and 16 more than it serves, to tell their clients that it is busy.
	d.connections = min(max((rest-d.drives-16)*8/9, 1), wanted)
	d.drives = min(rest-d.connections-d.connections/8-16, mostDriveDescriptors)
	return d, nil
}

// descriptorLimit is the process's limit of open files. The Go runtime raises the soft limit to the hard one when a program
// starts, and gives children the limit that the program was started with.
func descriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}

// withDescriptors sizes what a node is made of to the file descriptors that the process may have.
func (o Options) withDescriptors() (Options, descriptors, error) {
	limit := o.Descriptors
	if limit == 0 {
		var err error
		if limit, err = descriptorLimit(); err != nil {
			return o, descriptors{}, err
		}
	}
	wanted := o.HTTP.Limits.Connections
	if wanted == 0 {
		wanted = server.DefaultConnections
	}
	d, err := divideDescriptors(limit, wanted)
	if err != nil {
		return o, d, err
	}
	if o.Journal.OpenFiles == 0 {
		o.Journal.OpenFiles = d.journalFiles
	}
	o.HTTP.Limits.Connections = d.connections
	level, message := slog.LevelInfo, "file descriptors are divided"
	if d.connections < wanted {
		level, message = slog.LevelWarn, "the limit of open files leaves fewer connections than are wanted: raise it"
	}
	o.Log.Log(context.Background(), level, message, slog.Int("limit", limit), slog.Int("journal", d.journalFiles),
		slog.Int("drives", d.drives), slog.Int("connections", d.connections), slog.Int("wanted", wanted))
	return o, d, nil
}
