package drive

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A Change is what every operation that changes a drive takes beside its paths.
type Change struct {
	Author *activityv1.Author
	// Principal is on whose behalf the change is decided: the activity authorizes the intent for it. nil: the platform.
	Principal *wirev1.Principal
	// Guard is asked while the paths are locked, before anything is changed; its error ends the operation. May be nil.
	Guard func() error
	// Confirm is called after Guard, right before the intent is recorded and while the paths are locked; its error ends the
	// operation with nothing changed. May be nil.
	Confirm func() error
	// Done is called while the paths are locked, once the disk has changed. May be nil.
	Done func()
}

func (c Change) confirm() error {
	if c.Confirm == nil {
		return nil
	}
	return c.Confirm()
}

// An attempt is one operation under way. Its id names its intent, what it makes in tmp and its trash.
type attempt struct {
	drive  *Drive
	change Change
	id     string
	unlock func()
	// kept is set where the outcome is unknown and the background owns the attempt.
	kept bool
}

func (d *Drive) begin(c Change) (*attempt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.live) >= maxInFlight {
		return nil, unavailable("too many operations are in flight")
	}
	a := &attempt{drive: d, change: c, id: newOperationID()}
	d.live[a.id] = struct{}{}
	d.drives.metrics.inFlight.Inc()
	return a, nil
}

func newOperationID() string { return strings.ToLower(ulid.Make().String()) }

// end gives up what the attempt holds, unless the background owns it.
func (a *attempt) end() {
	if !a.kept {
		a.release()
	}
}

func (a *attempt) release() {
	d := a.drive
	d.mu.Lock()
	delete(d.live, a.id)
	d.mu.Unlock()
	d.drives.metrics.inFlight.Dec()
	if a.unlock != nil {
		a.unlock()
	}
}

func (a *attempt) staged() string { return a.id }
func (a *attempt) trash() string  { return a.id + trashSuffix }

const trashSuffix = ".trash"

// lock takes the paths of the operation.
func (a *attempt) lock(ctx context.Context, paths ...string) (err error) {
	a.unlock, err = a.drive.locks.acquire(ctx, paths...)
	return err
}

// guard asks what the caller demands of the current state.
func (a *attempt) guard() error {
	if a.change.Guard == nil {
		return nil
	}
	return a.change.Guard()
}

// settle carries a prepared operation out: intend, change the disk, complete. apply either changes the disk as a whole
// or not at all; an error beside changed says that it did and that something is still wrong.
func (a *attempt) settle(ctx context.Context, op *activityv1.Operation, inode uint64, apply func() (changed bool, err error)) error {
	intent := &activityv1.Intent{Id: a.id, Operation: op, Inode: inode, At: time.Now().UnixMilli()}
	if err := a.change.confirm(); err != nil {
		return err
	}
	if err := a.intend(ctx, intent); err != nil {
		if entity.IsRefusal(err) {
			return err
		}
		a.keep(&activityv1.Abandon{IntentId: a.id}, err)
		return unavailable("the activity does not answer; nothing was changed")
	}
	changed, err := apply()
	if errors.Is(err, errStranded) {
		a.strand(err)
		return fromOS(err)
	}
	if !changed {
		return errors.Join(fromOS(err), a.conclude(ctx, &activityv1.Abandon{IntentId: a.id}))
	}
	if a.change.Done != nil {
		a.change.Done()
	}
	if failed := a.conclude(ctx, &activityv1.Complete{IntentId: a.id}); failed != nil {
		return failed
	}
	return fromOS(err)
}

// intend records the intent as the principal of the change: this is where the change is decided, and the last time that it
// may be refused. What completes or abandons the intent only tells what became of it, and is the platform's.
func (a *attempt) intend(ctx context.Context, intent *activityv1.Intent) error {
	principal := a.change.Principal
	if principal == nil {
		principal = entity.Platform()
	}
	_, err := a.drive.askAs(ctx, principal, &activityv1.Intend{Intent: intent})
	return err
}

func (a *attempt) ask(ctx context.Context, message proto.Message) error {
	_, err := a.drive.ask(ctx, message)
	return err
}

// conclude completes or abandons the intent, if need be later.
func (a *attempt) conclude(ctx context.Context, outcome proto.Message) error {
	err := a.ask(ctx, outcome)
	if err == nil {
		return nil
	}
	if entity.IsRefusal(err) {
		a.drive.drives.log.Error("the activity refuses an operation's outcome", "workspace", a.drive.workspaceID, "intent", a.id, "error", err)
		return nil
	}
	a.keep(outcome, err)
	return unavailable("the activity does not answer; the operation's outcome will be settled")
}

// keep hands the attempt to the background, which repeats the outcome until the activity knows it. The paths stay
// locked until then: the next operation on them must not come before it in the sequence. The drive's files need not stay
// open meanwhile.
func (a *attempt) keep(outcome proto.Message, cause error) {
	d := a.drive
	a.kept = true
	d.drives.log.Warn("an operation's outcome is unknown", "workspace", d.workspaceID, "intent", a.id, "error", cause)
	d.drives.metrics.unresolved.Inc()
	// When the drives are closing nothing is spawned: the id stays live and the next start recovers.
	d.drives.cache.pin(d)
	d.drives.spawn(func(ctx context.Context) {
		if _, abandon := outcome.(*activityv1.Abandon); abandon {
			d.freeSpace(ctx, a.staged())
		}
		if a.repeat(ctx, outcome) {
			d.drives.metrics.unresolved.Dec()
			a.release()
			d.drives.cache.unpin(d)
			d.sweep()
		}
	})
}

// strand leaves the intent and the trash for the recovery of the next start to put right.
func (a *attempt) strand(err error) {
	a.kept = true
	a.unlock()
	a.drive.drives.log.Error("recovery has to put an entry back", "workspace", a.drive.workspaceID, "intent", a.id, "error", err)
}

// repeat asks until the outcome is known, and tells whether it came to that.
func (a *attempt) repeat(ctx context.Context, outcome proto.Message) bool {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause/2 + rand.N(pause)):
		}
		if err := a.ask(ctx, outcome); err == nil || entity.IsRefusal(err) {
			return true
		}
	}
}
