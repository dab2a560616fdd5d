package computer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// askTimeout bounds one command.
const askTimeout = 10 * time.Second

// Options of New. Driver, Archive, Asker and Put are needed.
type Options struct {
	Driver  Driver
	Archive Archive
	Asker   Asker
	// Put writes a row of a computer's list past its entity.
	Put func(ctx context.Context, workspaceID string, row entity.Row) error
	// Clock is the time of samples.
	Clock func() time.Time
	// SampleEvery is the pause between samples; 0: that of the rules.
	SampleEvery time.Duration
	Log         *slog.Logger
}

// Share is a part of all computers: those of one partition, while this process leads it.
type Share interface {
	// Running are the workspaces in use, with or without a computer.
	Running() []string
	// Present are the computers that exist, after a workspace in the order of their ids: at most limit. None: there are
	// no more.
	Present(after string, limit int) ([]*computerv1.Present, error)
	// Find is the computer of a workspace; nil: it has none.
	Find(workspaceID string) (*computerv1.Present, error)
}

// Fleet runs the tasks of computers and samples them. It keeps nothing that has to survive it. It is a
// prometheus.Collector.
type Fleet struct {
	o       Options
	metrics *metrics
}

// New makes a fleet that samples nothing yet.
func New(o Options) *Fleet {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.SampleEvery = cmp.Or(o.SampleEvery, entitycomputer.SampleEvery)
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Fleet{o: o, metrics: newMetrics()}
}

// ask sends a computer a command of the platform's.
func (f *Fleet) ask(ctx context.Context, workspaceID string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return f.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindComputer, Identity: workspaceID, Principal: entity.Platform(), Message: m,
	})
}
