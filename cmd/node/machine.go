package node

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/limit/machine"
	"github.com/atelier-run/atelier/persistence"
)

// withDescriptors divides the file descriptors and returns the options with the sizes that follow, and the shares. It logs the
// shares, with a warning if fewer connections than configured fit.
func (o Options) withDescriptors() (Options, machine.Descriptors, error) {
	limit := o.Descriptors
	if limit == 0 {
		var err error
		if limit, err = machine.DescriptorLimit(); err != nil {
			return o, machine.Descriptors{}, err
		}
	}
	wanted := o.HTTP.Limits.Connections
	if wanted == 0 {
		wanted = server.DefaultConnections
	}
	processes := 0
	if runsProcesses(o.Computers) {
		if processes = o.Computers.MaxProcesses; processes == 0 {
			processes = machine.Processes(cgroup.Available(), runtime.GOMAXPROCS(0))
		}
	}
	demand := machine.Demand{
		Limit: limit, Connections: wanted, Processes: processes, LeastJournalFiles: persistence.MinOpenFiles, LeastDrives: drive.MinDescriptors,
	}
	d, err := demand.Divide()
	if err != nil {
		return o, d, err
	}
	if o.Journal.OpenFiles == 0 {
		o.Journal.OpenFiles = d.JournalFiles
	}
	o.HTTP.Limits.Connections = d.Connections
	o.Computers.processes, o.Computers.flows = d.Processes, d.Flows
	demand.Report(o.Log, d)
	return o, d, nil
}

// maxMemory returns the limit of the memory of all computers together: ComputerOptions.MaxMemory, or what follows from the memory of the
// machine or the control group. 0: no limit, because the memory is unknown. It logs a warning if the node might need some of it itself.
func (o Options) maxMemory() int64 {
	if o.Computers.MaxMemory > 0 {
		return o.Computers.MaxMemory
	}
	available, goLimit := cgroup.Available(), debug.SetMemoryLimit(-1)
	limit, isShort := machine.ForComputers(available, goLimit)
	level := slog.LevelInfo
	if isShort {
		level = slog.LevelWarn
	}
	o.Log.Log(context.Background(), level, "divided the memory", slog.Uint64("available", available),
		slog.Uint64("computers", limit), slog.Bool("isShort", isShort))
	return int64(limit)
}
