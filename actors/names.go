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

// kindOf is the kind in an actor's id: shard-3-1, shard-3-1/reactor, shard-3-1/workspace/ws_….
func kindOf(id string) string {
	_, below, ok := strings.Cut(id, "/")
	if !ok {
		return shardKind
	}
	kind, _, _ := strings.Cut(below, "/")
	return kind
}

// levelled keeps protoactor's own messages for people who debug it.
type levelled struct{ slog.Handler }

func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}
