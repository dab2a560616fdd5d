package actors

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/atelier-run/atelier/persistence"
)

func shardName(p persistence.Partition, epoch uint64) string {
	return fmt.Sprintf("%s-%d-%d", shardKind, p, epoch)
}

// kindOf returns the kind in an actor's id, which has the name of each supervisor in it: shard-3-1, shard-3-1/reactor,
// shard-3-1/workspace/ws_1, shard-3-1/workspace/ws_1/activity/ws_1.
func kindOf(id string) string {
	names := strings.Split(id, "/")
	switch len(names) {
	case 1:
		return shardKind
	case 2:
		return names[1]
	default:
		return names[len(names)-2]
	}
}

// levelled keeps protoactor's own messages for people who debug it.
type levelled struct{ slog.Handler }

func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}
