// Package machine divides the file descriptors and the memory of a machine between the parts of a node. It also adjusts the
// process to the machine: the growth of the heap, and the order in which the kernel ends programs that need too much memory.
package machine

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"syscall"
)

const (
	// otherDescriptors is the number of descriptors without a share: standard streams, listeners, connections of operators, the
	// bucket of backups, mail, sign-in, measurements.
	otherDescriptors = 48
	// journalSlack is the number of descriptors that the journal may use beyond its open files, for tables that it writes.
	journalSlack = 16
	// mostJournalFiles and mostDriveDescriptors limit these shares: more descriptors would not help.
	mostJournalFiles     = 1000
	mostDriveDescriptors = 1 << 15
	// mostFlows is the number of connections from computers to the network that a node serves, if the limit allows them.
	mostFlows = 4096
	// processDescriptors is the number of descriptors for a process that is the only one of its computer. Its computer has five: two of
	// its init, its connection, its messages and its link (TestDescriptorsOfProcesses of computer/local). The process has three
	// streams; the process of an app also has the namespace and the link of its own network and two listeners, and the process of an agent
	// has a listener and two connections.
	processDescriptors = 12
	// leastDescriptors is the limit below which a node does not start. leastComputerDescriptors is added if it runs processes.
	leastDescriptors, leastComputerDescriptors = 192, 64
	// leastFlows is the least number of connections from computers to the network.
	leastFlows = 16
)

// Descriptors are the shares of the file descriptors of a process. Each part stays within its share: when connections or open
// drives run out, requests are refused, and the journal can still open files.
type Descriptors struct {
	// JournalFiles is the number of files that the journal may have open.
	JournalFiles int
	// Drives is the number of descriptors for open drives and the operations on them.
	Drives int
	// Connections is the number of connections that are served; a few more are accepted, to answer that the server is busy.
	Connections int
	// Processes and Flows are the numbers of processes, and of connections to the network, of all computers together. Without
	// them, computers could take the descriptors that the journal needs.
	Processes, Flows int
}

// Demand has the numbers that Divide divides.
type Demand struct {
	// Limit is the number of descriptors of the process.
	Limit int
	// Connections is the wanted number of connections. Processes is the wanted number of processes; 0: the node runs none.
	Connections, Processes int
	// LeastJournalFiles and LeastDrives are the smallest shares that the journal and drives need to work.
	LeastJournalFiles, LeastDrives int
}

// Divide divides the limit. The journal gets its share first, the wanted number of processes up to two fifths of the rest, drives
// and flows at least a quarter of the remainder, and connections up to the wanted number. It returns an error if the limit is too low.
func (w Demand) Divide() (Descriptors, error) {
	runsProcesses := w.Processes > 0
	least, leastShare := leastDescriptors, w.LeastDrives
	if runsProcesses {
		least, leastShare = least+leastComputerDescriptors, leastShare+leastFlows
	}
	if w.Limit < least {
		return Descriptors{}, fmt.Errorf("the limit of open files is %d: a node needs at least %d; raise it (ulimit -n, or "+
			"LimitNOFILE of systemd)", w.Limit, least)
	}
	d := Descriptors{JournalFiles: min(max(w.Limit/5, w.LeastJournalFiles), mostJournalFiles)}
	rest := w.Limit - otherDescriptors - d.JournalFiles - journalSlack
	if runsProcesses {
		d.Processes = max(min(w.Processes, rest*2/5/processDescriptors), 1)
		rest -= d.Processes * processDescriptors
	}
	// The server accepts an eighth and 16 more than it serves, to tell their clients that it is busy.
	d.Connections = min(max((rest-max(rest/4, leastShare)-16)*8/9, 1), w.Connections)
	rest -= d.Connections + d.Connections/8 + 16
	if runsProcesses {
		d.Flows = min(rest/2, rest-w.LeastDrives, mostFlows)
		rest -= d.Flows
	}
	d.Drives = min(rest, mostDriveDescriptors)
	return d, nil
}

// Report logs the shares, with a warning if fewer connections or processes fit than w has.
func (w Demand) Report(log *slog.Logger, d Descriptors) {
	level, message := slog.LevelInfo, "divided the file descriptors"
	switch {
	case d.Connections < w.Connections:
		level, message = slog.LevelWarn, "the limit of open files allows fewer connections than configured; raise it (ulimit -n, LimitNOFILE)"
	case d.Processes < w.Processes:
		level, message = slog.LevelWarn, "the limit of open files allows fewer processes than memory and processors do, or than configured; "+
			"raise it (ulimit -n, LimitNOFILE)"
	}
	log.Log(context.Background(), level, message, slog.Int("limit", w.Limit), slog.Int("journal", d.JournalFiles),
		slog.Int("drives", d.Drives), slog.Int("connections", d.Connections), slog.Int("wanted", w.Connections),
		slog.Int("processes", d.Processes), slog.Int("wantedProcesses", w.Processes), slog.Int("flows", d.Flows))
}

// DescriptorLimit returns the process's limit of open files. The Go runtime raises the soft limit to the hard one when a
// program starts.
func DescriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}
