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
	"golang.org/x/sync/errgroup"
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
// The commands are carried out side by side, those of one entity in their order.
type Reaction func(ctx context.Context, identity string, event proto.Message) ([]entity.Command, error)

// Trail has the activity of workspaces that have rows in a list reacted to. Without it a reactor passes over activity,
// which is most of what a journal holds.
type Trail struct {
	// List is the list that says which workspaces; Begins is the event that puts the first row there.
	List   string
	Begins string
	// React is called with each row, as it is stored. Errors are tried again.
	React func(ctx context.Context, workspaceID string, row []byte) error
}

// retry has a reactor try again after its pause.
type retry struct{}

// settle asks to be told when everything recorded so far has been reacted to.
type settle struct{ done chan error }

// reactor follows a partition's feed behind a durable cursor and carries out the reactions in its order. After a crash
// it repeats what it had not written down as done; commands carry ids, so that a repetition changes nothing.
type reactor struct {
	node    *System
	term    *term
	mailbox *mailbox

	// trailed are the workspaces whose activity is reacted to.
	trailed map[string]bool

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
		r.term.told.Store(false)
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
	r.node.metrics.reactorLag.WithLabelValues(strconv.Itoa(int(r.term.partition))).Set(float64(max(r.term.sequence.Load(), r.cursor) - r.cursor))
	if err == nil {
		r.pause = 0
		r.tell()
		return
	}
	if errors.Is(err, persistence.ErrClosed) {
		return
	}
	r.node.metrics.reactions.WithLabelValues("retried").Inc()
	r.node.log.Warn("a reaction is tried again", slog.Int("partition", int(r.term.partition)), slog.Any("error", err))
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
	place, ok, err := v.Lookup(r.term.partition, cursorIndex, reactorKind, 0)
	if err != nil {
		return err
	}
	if ok {
		r.cursor = binary.BigEndian.Uint64(place)
	}
	if r.node.trail.React != nil {
		r.trailed = map[string]bool{}
		for entry, err := range v.Index(r.term.partition, persistence.Query{Index: listIndex(r.node.trail.List), Prefix: true}) {
			if err != nil {
				return err
			}
			workspaceID, _, _ := strings.Cut(entry.Value, "\x00")
			r.trailed[workspaceID] = true
		}
	}
	r.written, r.known = r.cursor, true
	return nil
}

// react goes through the feed to the end of a view, which has all that was acknowledged before.
func (r *reactor) react() error {
	upTo := r.term.sequence.Load()
	v, err := r.node.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	for event, err := range v.Feed(r.term.partition, r.cursor+1, r.wants) {
		if err != nil {
			return err
		}
		if err := r.trace(event); err != nil {
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
	kind, identity, _ := strings.Cut(string(s), "/")
	return kind != entity.KindActivity || r.trailed[identity]
}

// trace passes on a row of a workspace whose activity is reacted to, and learns of further such workspaces. Rows are
// older than the cursor that is written after them: a row may be passed on again.
func (r *reactor) trace(event persistence.Event) error {
	if r.node.trail.React == nil || event.Name == "" { // passed over
		return nil
	}
	kind, identity, _ := strings.Cut(string(event.Stream), "/")
	switch {
	case event.Name == r.node.trail.Begins:
		r.trailed[identity] = true
	case kind == entity.KindActivity:
		ctx, cancel := context.WithTimeout(r.node.running, reactionTimeout)
		defer cancel()
		return r.node.trail.React(ctx, identity, event.Payload)
	}
	return nil
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
	for i := range commands {
		if commands[i].Principal == nil {
			commands[i].Principal = entity.Platform()
		}
		commands[i].RequestID = event.RequestID
		commands[i].ID = "reaction:" + stream + ":" + strconv.FormatUint(event.Version, 10) + ":" + strconv.Itoa(i)
	}
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, line := range lines(commands) {
		group.Go(func() error { return r.tellAll(ctx, event, line) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.node.metrics.reactions.WithLabelValues("done").Inc()
	return nil
}

// sideBySide bounds the commands of one reaction that are under way: a change of a person may concern every workspace
// that they belong to.
const sideBySide = 64

// lines are commands by the entity that they are for, in their order.
func lines(commands []entity.Command) [][]entity.Command {
	var all [][]entity.Command
	place := map[string]int{}
	for _, c := range commands {
		k := key(c.Kind, c.Identity)
		i, ok := place[k]
		if !ok {
			i = len(all)
			place[k], all = i, append(all, nil)
		}
		all[i] = append(all[i], c)
	}
	return all
}

// tellAll sends commands to one entity. What it refuses for good it would refuse again: that is not tried again.
func (r *reactor) tellAll(ctx context.Context, event persistence.Event, commands []entity.Command) error {
	for _, c := range commands {
		if _, err := r.node.ask(ctx, c); err != nil && !isRefusal(err) {
			return err
		} else if err != nil {
			r.node.metrics.reactions.WithLabelValues("refused").Inc()
			r.node.log.Error("a reaction was refused", slog.String("stream", string(event.Stream)), slog.String("event", event.Name),
				slog.String("command", entity.MessageName(c.Message)), slog.Any("error", err))
		}
	}
	return nil
}

// write makes the cursor durable. It is not waited for: what is lost of it is reacted to again.
func (r *reactor) write() {
	r.written = r.cursor
	r.node.journal.Append(persistence.Proposal{
		Partition: r.term.partition, Stream: cursorIndex + "/" + reactorKind, Epoch: r.term.epoch,
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
