package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

const (
	reactorKind = "reactor"
	// cursorIndex keeps how far a partition's reactor has come.
	cursorIndex = "reactor"
	// cursorEvery is how many events without a reaction are passed over before that is written down.
	cursorEvery = 4096
	// reactionTimeout bounds one attempt of one reaction.
	reactionTimeout = 10 * time.Second
	longestRetry    = 5 * time.Second
)

// Reaction is what follows from an event: side effects through a driver, idempotent since they may be repeated, and the
// commands that tell others of the outcome. An error is tried again.
type Reaction func(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error)

// retry has a reactor try again after its pause.
type retry struct{}

// settle asks to be told when everything recorded so far has been reacted to.
type settle struct{ done chan error }

// reactor follows a partition's feed behind a durable cursor and carries out the reactions in its order. After a crash
// it repeats what it had not written down as done; commands carry ids, so that a repetition changes nothing.
type reactor struct {
	node      *System
	partition persistence.Partition
	epoch     uint64

	mailbox *mailbox

	cursor  uint64
	written uint64
	known   bool
	// pause is the last one before a retry; retry is set while one is to come.
	pause   time.Duration
	retry   *time.Timer
	waiting []*settle
}

func (r *reactor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		r.follow(ctx)
	case advanced:
		r.node.shards[r.partition].told.Store(false)
		if r.retry == nil {
			r.follow(ctx)
		}
	case retry:
		r.retry = nil
		r.follow(ctx)
	case *settle:
		r.waiting = append(r.waiting, m)
		if r.retry == nil {
			r.follow(ctx)
		}
	case *actor.Restarting:
		r.end()
	case *actor.Stopping:
		r.mailbox.closed.Store(true)
		r.end()
	}
}

func (r *reactor) end() {
	if r.retry != nil {
		r.retry.Stop()
	}
	for _, w := range r.waiting {
		w.done <- ErrRetry
	}
	r.waiting = nil
}

// follow reacts to everything that is in the feed, and tries again later where that fails.
func (r *reactor) follow(ctx actor.Context) {
	err := r.recall()
	if err == nil {
		err = r.react()
	}
	r.node.metrics.reactorLag.WithLabelValues(strconv.Itoa(int(r.partition))).Set(float64(max(r.node.sequence(r.partition), r.cursor) - r.cursor))
	if err == nil {
		r.pause = 0
		r.tell()
		return
	}
	if errors.Is(err, persistence.ErrClosed) {
		return
	}
	r.node.metrics.reactions.WithLabelValues("retried").Inc()
	r.node.log.Warn("a reaction is tried again", slog.Int("partition", int(r.partition)), slog.Any("error", err))
	r.pause = min(max(2*r.pause, 20*time.Millisecond), longestRetry)
	self := ctx.Self()
	r.retry = time.AfterFunc(r.pause, func() { r.node.root.Send(self, retry{}) })
}

func (r *reactor) recall() error {
	if r.known {
		return nil
	}
	v, err := r.node.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	place, ok, err := v.Lookup(r.partition, cursorIndex, reactorKind, 0)
	if err != nil {
		return err
	}
	if ok {
		r.cursor = binary.BigEndian.Uint64(place)
	}
	r.written, r.known = r.cursor, true
	return nil
}

// react goes through the feed to the end of a view, which has all that was acknowledged before.
func (r *reactor) react() error {
	upTo := r.node.sequence(r.partition)
	v, err := r.node.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	for event, err := range v.Feed(r.partition, r.cursor+1, r.wants) {
		if err != nil {
			return err
		}
		if reaction := r.node.reactions[event.Name]; reaction != nil {
			if err := r.carryOut(reaction, event); err != nil {
				return err
			}
			r.cursor = event.Sequence
			r.write()
		}
		r.cursor = event.Sequence
	}
	r.cursor = max(r.cursor, upTo)
	if r.cursor-r.written >= cursorEvery {
		r.write()
	}
	return nil
}

func (r *reactor) wants(s persistence.Stream) bool {
	kind, _, _ := strings.Cut(string(s), "/")
	return kind != entity.KindActivity
}

func (r *reactor) carryOut(reaction Reaction, event persistence.Event) error {
	ctx, cancel := context.WithTimeout(r.node.running, reactionTimeout)
	defer cancel()
	m, err := entity.Message(event.Name, event.Payload)
	if err != nil {
		return err
	}
	stream := string(event.Stream)
	_, identity, _ := strings.Cut(stream, "/")
	commands, err := reaction(ctx, identity, m)
	if err != nil {
		return err
	}
	for i, c := range commands {
		c.Principal = entity.Platform()
		c.RequestID = event.RequestID
		c.ID = "reaction:" + stream + ":" + strconv.FormatUint(event.Version, 10) + ":" + strconv.Itoa(i)
		if _, err := r.node.ask(ctx, c); err != nil && !isRefusal(err) {
			return err
		} else if err != nil {
			r.node.metrics.reactions.WithLabelValues("refused").Inc()
			r.node.log.Error("a reaction was refused", slog.String("stream", stream), slog.String("event", event.Name), slog.Any("error", err))
		}
	}
	r.node.metrics.reactions.WithLabelValues("done").Inc()
	return nil
}

// write makes the cursor durable. It is not waited for: what is lost of it is reacted to again.
func (r *reactor) write() {
	r.written = r.cursor
	r.node.journal.Append(persistence.Proposal{
		Partition: r.partition, Stream: cursorIndex + "/" + reactorKind, Epoch: r.epoch,
		Entries: []persistence.Change{{Entry: persistence.Entry{
			Index: cursorIndex, Value: reactorKind, Data: binary.BigEndian.AppendUint64(nil, r.cursor),
		}}},
	}, func(persistence.Result) {})
}

// tell answers those who wait for what has been reacted to by now.
func (r *reactor) tell() {
	for _, w := range r.waiting {
		w.done <- nil
	}
	r.waiting = nil
}

// isRefusal tells whether an entity refused a command for good.
func isRefusal(err error) bool {
	var refusal *entity.Error
	return errors.As(err, &refusal) && refusal.Code != entity.Unavailable && refusal.Code != entity.Internal
}
