package locks

import (
	"log/slog"
	"time"
)

// LoadAt is Load with another clock. id identifies the monotonic clock of a process.
func LoadAt(store Store, log *slog.Logger, id string, read func() (wall time.Time, passed time.Duration)) (*Table, error) {
	return load(store, log, func(string) bool { return true }, clock{id: id, read: read})
}
