package node

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"syscall"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
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
	// streams; that of an app has also the namespace and the link of its own network and two listeners, and that of an agent
	// has a listener and two connections.
	processDescriptors = 12
	// leastDescriptors is the limit below which a node does not start. leastComputerDescriptors is added if it runs processes.
	leastDescriptors, leastComputerDescriptors = 192, 64
	// leastFlows is the least number of connections from computers to the network.
	leastFlows = 16
)

// descriptors are the shares of the file descriptors of a process. Each part stays within its share: when connections or open
// drives run out, requests are refused, and the journal can still open files.
type descriptors struct {
	limit int
	// journalFiles is the number of files that the journal may have open.
	journalFiles int
	// drives is the number of descriptors for open drives and the operations on them.
	drives int
	// connections is the number of connections that are served; a few more are accepted, to answer that the server is busy.
	connections int
	// processes and flows are the numbers of processes, and of connections to the network, of all computers together. Without
	// them, computers could take the descriptors that the journal needs.
	processes, flows int
}

// divideDescriptors divides a limit. The journal gets its share first, the wanted number of processes up to two fifths of the rest, drives
// and flows at least a quarter of what is left, and connections up to wanted. It returns an error if the limit is too low.
func divideDescriptors(limit, wanted, processes int) (descriptors, error) {
	runsProcesses := processes > 0
	least, leastShare := leastDescriptors, drive.MinDescriptors
	if runsProcesses {
		least, leastShare = least+leastComputerDescriptors, leastShare+leastFlows
	}
	if limit < least {
		return descriptors{}, fmt.Errorf("the limit of open files is %d: a node needs at least %d; raise it (ulimit -n, or "+
			"LimitNOFILE of systemd)", limit, least)
	}
	d := descriptors{limit: limit, journalFiles: min(max(limit/5, persistence.MinOpenFiles), mostJournalFiles)}
	rest := limit - otherDescriptors - d.journalFiles - journalSlack
	if runsProcesses {
		d.processes = max(min(processes, rest*2/5/processDescriptors), 1)
		rest -= d.processes * processDescriptors
	}
	// The server accepts an eighth and 16 more than it serves, to tell their clients that it is busy.
	d.connections = min(max((rest-max(rest/4, leastShare)-16)*8/9, 1), wanted)
	rest -= d.connections + d.connections/8 + 16
	if runsProcesses {
		d.flows = min(rest/2, rest-drive.MinDescriptors, mostFlows)
		rest -= d.flows
	}
	d.drives = min(rest, mostDriveDescriptors)
	return d, nil
}

// descriptorLimit returns the process's limit of open files. The Go runtime raises the soft limit to the hard one when a
// program starts.
func descriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("the limit of open files: %w", err)
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}

// withDescriptors divides the file descriptors and returns the options with the sizes that follow, and the shares. It logs the
// shares, with a warning if fewer connections than configured fit.
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
	processes := 0
	if runsProcesses(o.Computers) {
		if processes = o.Computers.MaxProcesses; processes == 0 {
			processes = defaultProcesses(availableMemory(), runtime.GOMAXPROCS(0))
		}
	}
	d, err := divideDescriptors(limit, wanted, processes)
	if err != nil {
		return o, d, err
	}
	if o.Journal.OpenFiles == 0 {
		o.Journal.OpenFiles = d.journalFiles
	}
	o.HTTP.Limits.Connections = d.connections
	o.Computers.processes, o.Computers.flows = d.processes, d.flows
	level, message := slog.LevelInfo, "divided the file descriptors"
	switch {
	case d.connections < wanted:
		level, message = slog.LevelWarn, "the limit of open files allows fewer connections than configured; raise it (ulimit -n, LimitNOFILE)"
	case d.processes < processes:
		level, message = slog.LevelWarn, "the limit of open files allows fewer processes than memory and processors do, or than configured; raise it (ulimit -n, LimitNOFILE)"
	}
	o.Log.Log(context.Background(), level, message, slog.Int("limit", limit), slog.Int("journal", d.journalFiles),
		slog.Int("drives", d.drives), slog.Int("connections", d.connections), slog.Int("wanted", wanted),
		slog.Int("processes", d.processes), slog.Int("wantedProcesses", processes), slog.Int("flows", d.flows))
	return o, d, nil
}

// A process costs the node about 300 KiB of its own memory, and 5 MiB for the init of its computer if it is the only one there. What it
// does costs much more, from a few MiB (a shell) to 850 MiB (some agents), and is limited for each computer. The default of
// ComputerOptions.MaxProcesses is therefore the number of small processes that the machine can run beside each other.
const (
	memoryOfProcess        = 32 << 20
	processesOfProcessor   = 128
	leastProcesses         = 16
	memoryOfUnknownMachine = 4 << 30
)

// defaultProcesses returns the default of ComputerOptions.MaxProcesses for a machine, or a control group, with memory in bytes and a number of
// processors.
func defaultProcesses(memory uint64, processors int) int {
	if memory == 0 {
		memory = memoryOfUnknownMachine
	}
	return max(int(min(memory/memoryOfProcess, uint64(processors*processesOfProcessor))), leastProcesses)
}
