package machine

import (
	"log/slog"
	"math"
	"os"
	"strings"
)

// The node keeps memory for itself and for the other programs of the machine; computers together get the rest. It keeps as much as
// GOMEMLIMIT allows it and nodeProgram, or an eighth without GOMEMLIMIT, but at least leastKept. Computers get a quarter of all at least.
const (
	nodeProgram = 64 << 20
	leastKept   = 512 << 20
)

// ForComputers returns the bytes of memory that all computers together may use, for a memory in bytes and the value of GOMEMLIMIT,
// which is math.MaxInt64 if there is none. isShort is true if computers and the node together may use more than there is.
func ForComputers(available uint64, goLimit int64) (limit uint64, isShort bool) {
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

// A process costs the node about 300 KiB of its own memory, and 5 MiB for the init of its computer if it is the only one there. Its
// work costs much more, from a few MiB (a shell) to 850 MiB (some agents), and is limited for each computer. Processes therefore returns
// the number of small processes that the machine can run beside each other.
const (
	memoryOfProcess        = 32 << 20
	processesOfProcessor   = 128
	leastProcesses         = 16
	memoryOfUnknownMachine = 4 << 30
)

// Processes returns the number of processes that a machine, or a control group, runs with memory in bytes and a number of processors.
func Processes(memory uint64, processors int) int {
	if memory == 0 {
		memory = memoryOfUnknownMachine
	}
	return max(int(min(memory/memoryOfProcess, uint64(processors*processesOfProcessor))), leastProcesses)
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
