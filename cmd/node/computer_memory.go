package node

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/local/cgroup"
)

// The node keeps memory for itself and for the other programs of the machine, of which computers together get the rest: as much as
// GOMEMLIMIT allows it and nodeProgram, or an eighth without GOMEMLIMIT, but at least leastKept. Computers get a quarter of all at least.
const (
	nodeProgram = 64 << 20
	leastKept   = 512 << 20
)

// availableMemory returns the bytes of memory of the machine, or of the control group that restricts computers if that is less; 0 if
// they are unknown.
func availableMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	machine := info.Totalram * uint64(info.Unit)
	return min(machine, cmp.Or(cgroup.BaseMemory().Limit, machine))
}

// maxMemory returns the limit of the memory of all computers together: ComputerOptions.MaxMemory, or what follows from the memory of the
// machine or the control group. 0: no limit, because the memory is unknown. It logs a warning if the node might need some of it itself.
func (o Options) maxMemory() int64 {
	if o.Computers.MaxMemory > 0 {
		return o.Computers.MaxMemory
	}
	available, goLimit := availableMemory(), debug.SetMemoryLimit(-1)
	limit, isShort := defaultMemory(available, goLimit)
	level := slog.LevelInfo
	if isShort {
		level = slog.LevelWarn
	}
	o.Log.Log(context.Background(), level, "divided the memory", slog.Uint64("available", available),
		slog.Uint64("computers", limit), slog.Bool("isShort", isShort))
	return int64(limit)
}

// defaultMemory returns the default of ComputerOptions.MaxMemory for a memory in bytes and the value of GOMEMLIMIT, which is
// math.MaxInt64 if there is none. isShort is true if computers and the node together may use more than there is.
func defaultMemory(available uint64, goLimit int64) (limit uint64, isShort bool) {
	kept := max(available/8, leastKept)
	if goLimit < math.MaxInt64 {
		kept = uint64(goLimit) + nodeProgram
	}
	least := available / 4
	if available < kept+least {
		return least, true
	}
	return available - kept, false
}

// LowerOOMScore makes the kernel end other programs before this process if the machine is out of memory, unless the supervisor has
// already chosen a value (OOMScoreAdjust= of systemd). Without CAP_SYS_RESOURCE it does nothing.
func LowerOOMScore(log *slog.Logger) {
	const file, score = "/proc/self/oom_score_adj", "-500"
	if now, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(now)) != "0" {
		return
	}
	if err := os.WriteFile(file, []byte(score), 0); err != nil {
		log.Debug("cannot lower the oom_score_adj of the node", slog.Any("error", err))
	}
}
