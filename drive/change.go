package drive

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/retry"
)

// A Change holds the arguments that all operations that change a drive have in common. The package comment ("The life of
// a change") says when each function is called.
type Change struct {
	Author *activityv1.Author
	// Modified is the modification time that the entry gets from Put, Copy, Move or Patch. Zero: Put gives the present time, and Copy the time
	// of its source. A file system stores the nearest time that it has.
	Modified time.Time
	// Principal is the caller for which the activity authorizes the intent; nil: the platform.
	Principal *wirev1.Principal
	// Guard checks the caller's conditions while the paths are locked, before anything is changed. Its error ends the
	// operation. Put and Copy call it once more before they stage content. May be nil.
	Guard func() error
	// Authenticate verifies after Guard that the caller's credential is still valid, immediately before the intent is
	// recorded and while the paths are locked. Its error ends the operation with nothing changed. May be nil.
	Authenticate func() error
	// Authorize verifies after Authenticate that the caller still has access. It is called for changes without an intent
	// only, because the activity authorizes an intent. Its error ends the operation with nothing changed. May be nil.
	Authorize func() error
	// Submits reports whether the caller submits the token of a lock. Without a token that the caller owns, locks refuse the change
	// (package locks). nil: the caller submits none.
	Submits func(token string) bool
	// Done is called once the disk has changed, while the paths are locked. May be nil.
	Done func()
}

// NewChange returns a change of a caller with access to the drive.
func NewChange(access entity.DriveAccess) Change {
	return Change{
		Author: AuthorOf(access.Principal), Principal: access.Principal, Authenticate: access.Authenticate, Authorize: access.Authorize,
	}
}

// AuthorOf returns the author of a principal's operations on a drive.
func AuthorOf(p *wirev1.Principal) *activityv1.Author {
	return &activityv1.Author{Actor: entity.Actor(p), UserId: p.GetUserId()}
}

func (c Change) authenticate() error {
	if c.Authenticate == nil {
		return nil
	}
	return c.Authenticate()
}

func (c Change) authorize() error {
	if c.Authorize == nil {
		return nil
	}
	return c.Authorize()
}

// confirm verifies the credential and the access of the caller of a change without an intent.
func (c Change) confirm() error {
	if err := c.authenticate(); err != nil {
		return err
	}
	return c.authorize()
}

// An attempt is one unfinished operation. Its id is the id of its intent, the name of its staged content in tmp, and the
// name of its trash.
type attempt struct {
	drive  *Drive
	change Change
	id     string
	unlock func()
	// effects are the arguments of the last call of checkGuard.
	effects []locks.Effect
	// isDetached is set when retryOutcome or recovery takes over: end then neither releases the paths nor the id.
	isDetached bool
	// isInstalled is set once the staged content has been renamed to its path.
	isInstalled bool
}

// begin admits an operation: step 3 of "The life of a change" in the package comment. It returns RateLimited if the caller has its share of
// the unfinished operations of the drive, and Unavailable if there are too many of all. Callers without a person or credential, such as the
// platform, have one share together and get Unavailable, too: RateLimited is a refusal, after which a task of the platform would not be
// tried again.
func (d *Drive) begin(c Change) (*attempt, error) {
	holder := cmp.Or(c.Principal.GetUserId(), c.Principal.GetCredentialId())
	switch err := d.changes.Acquire(holder); {
	case errors.Is(err, limit.ErrShare) && holder != "":
		return nil, &entity.Error{
			Code: entity.RateLimited, Message: "too many changes of this person are in flight on this drive; try again", RetryAfter: time.Second,
		}
	case err != nil:
		return nil, unavailable("too many changes are in flight on this drive; try again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &attempt{drive: d, change: c, id: newOperationID()}
	d.inFlight[a.id] = holder
	d.drives.metrics.inFlight.Inc()
	return a, nil
}

// endInFlight forgets an unfinished operation. The caller holds mu.
func (d *Drive) endInFlight(id string) {
	d.changes.Release(d.inFlight[id])
	delete(d.inFlight, id)
	d.drives.metrics.inFlight.Dec()
}

func newOperationID() string { return strings.ToLower(ulid.Make().String()) }

// end releases the paths and the id, unless the attempt is detached: step 10 of "The life of a change" in the package comment.
func (a *attempt) end() {
	if !a.isDetached {
		a.release()
	}
}

func (a *attempt) release() {
	d := a.drive
	d.mu.Lock()
	d.endInFlight(a.id)
	d.mu.Unlock()
	if a.unlock != nil {
		a.unlock()
	}
}

func (a *attempt) stagedName() string { return a.id }
func (a *attempt) trashName() string  { return a.id + trashSuffix }

const trashSuffix = ".trash"

// lock locks the paths of the operation until end: step 5 of "The life of a change" in the package comment. It returns
// the errors of pathLocks.acquire.
func (a *attempt) lock(ctx context.Context, paths ...string) (err error) {
	a.unlock, err = a.drive.locks.acquire(ctx, paths...)
	return err
}

// checkGuard calls the guard of the change, if there is one, and checks the locks on its effects: step 6 of "The life of a change" in the
// package comment.
func (a *attempt) checkGuard(effects ...locks.Effect) error {
	a.effects = effects
	return a.drive.checkGuard(a.change, effects...)
}

// commit performs a prepared operation: it records the intent, calls apply to change the disk, and completes the intent.
// Steps 7 to 9 of "The life of a change" in the package comment. The caller has locked the paths.
//
// apply either changes the disk as a whole or not at all, and makes the change durable. If it returns changed and an error,
// the operation has happened and commit returns the error after completing the intent.
//
// commit returns the refusals of Authenticate and of the activity, with nothing changed; the error of apply; and Unavailable if
// the outcome of the operation is unknown.
func (a *attempt) commit(op *activityv1.Operation, inode uint64, apply func() (changed bool, err error)) error {
	intent := &activityv1.Intent{Id: a.id, Operation: op, Inode: inode, At: time.Now().UnixMilli()}
	if err := a.change.authenticate(); err != nil {
		return err
	}
	if err := a.intend(intent); err != nil {
		if entity.IsRefusal(err) {
			return err
		}
		a.retryOutcome(&activityv1.Abandon{IntentId: a.id}, err)
		return unavailable("the journal does not answer; nothing was changed")
	}
	changed, err := apply()
	if errors.Is(err, errStranded) {
		a.leaveToRecovery(err)
		return fromOS(err)
	}
	if !changed {
		return errors.Join(fromOS(err), a.sendOutcome(&activityv1.Abandon{IntentId: a.id}))
	}
	a.drive.endLocks(a.change, a.effects)
	if a.change.Done != nil {
		a.change.Done()
	}
	if failed := a.sendOutcome(&activityv1.Complete{IntentId: a.id}); failed != nil {
		return failed
	}
	return fromOS(err)
}

// intend records the intent on behalf of the change's principal: step 7 of "The life of a change" in the package comment.
// This is where the activity decides about the change and the last point at which it may refuse. The commands that
// complete or abandon the intent only report its outcome and are sent as the platform.
func (a *attempt) intend(intent *activityv1.Intent) error {
	principal := a.change.Principal
	if principal == nil {
		principal = entity.Platform()
	}
	_, err := a.drive.askAs(principal, &activityv1.Intend{Intent: intent})
	return err
}

func (a *attempt) ask(message proto.Message) error {
	_, err := a.drive.ask(message)
	return err
}

// sendOutcome sends the command that completes or abandons the intent. If the activity does not answer, it leaves the rest
// to retryOutcome and returns Unavailable. A refusal is logged and not returned, because
// the change on disk cannot be taken back.
func (a *attempt) sendOutcome(outcome proto.Message) error {
	err := a.ask(outcome)
	if err == nil {
		return nil
	}
	if entity.IsRefusal(err) {
		a.drive.drives.log.Error("the activity refuses the outcome of a drive operation",
			"workspace", a.drive.workspaceID, "intent", a.id, "error", err)
		return nil
	}
	a.retryOutcome(outcome, err)
	return unavailable("the journal does not answer; the change may have been made and will appear in the activity if it was")
}

// beforeOutcome is the pause between the first attempt to send an outcome and the attempts in the background.
const beforeOutcome = 50 * time.Millisecond

// retryOutcome detaches the attempt and sends the outcome again in the background until the activity answers. The paths
// stay locked until then, because the next operation on them must follow this one in the sequence. The drive is pinned,
// but its files may be closed in the meantime.
func (a *attempt) retryOutcome(outcome proto.Message, cause error) {
	d := a.drive
	a.isDetached = true
	d.drives.log.Warn("the outcome of a drive operation is unknown; retrying",
		"workspace", d.workspaceID, "intent", a.id, "error", cause)
	d.drives.metrics.unresolved.Inc()
	// If the drives are closing, nothing runs in the background: the id stays in flight and the next start recovers.
	d.drives.cache.pin(d)
	d.drives.runInBackground(func(ctx context.Context) {
		if _, abandon := outcome.(*activityv1.Abandon); abandon {
			d.freeSpace(ctx, a.stagedName())
		}
		if !retry.Pause(ctx, beforeOutcome) {
			return
		}
		if err := entity.AskUntilAnswered(ctx, func() error { return a.ask(outcome) }); err == nil || entity.IsRefusal(err) {
			d.drives.metrics.unresolved.Dec()
			a.release()
			d.drives.cache.unpin(d)
			d.sweep()
		}
	})
}

// leaveToRecovery detaches the attempt with its intent open and its trash in place. The drive is recovered before it is used
// again, which moves the replaced entry back. The id stays in flight until then, because the sweep must not delete the trash.
func (a *attempt) leaveToRecovery(err error) {
	a.isDetached = true
	a.unlock()
	d := a.drive
	d.mu.Lock()
	d.stranded[a.id] = struct{}{}
	d.recovered.Store(false)
	d.mu.Unlock()
	d.drives.log.Error("a replaced entry could not be moved back; the drive is recovered before it is used again",
		"workspace", d.workspaceID, "intent", a.id, "error", err)
}

// install renames a staged or moved entry to its target. One rename replaces a file by a file. Any other replaced entry
// is moved to the trash first, and moved back if the second rename fails. The error is errStranded if that fails as well.
func (a *attempt) install(from handle, name string, st *unix.Stat_t, target *location) error {
	if !target.exists() {
		return from.rename(name, target.parent, target.name, false)
	}
	// rename(2) does nothing if both names are links to the same inode, so that case goes through the trash.
	if target.isFile() && !isFolder(st) && target.st.Ino != st.Ino {
		return from.rename(name, target.parent, target.name, true)
	}
	staging := a.drive.staging
	if err := target.parent.rename(target.name, staging, a.trashName(), false); err != nil {
		return err
	}
	if err := from.rename(name, target.parent, target.name, false); err != nil {
		if back := staging.rename(a.trashName(), target.parent, target.name, false); back != nil {
			return errors.Join(errStranded, err, back)
		}
		return errors.Join(err, target.parent.Sync(), a.drive.syncStaging())
	}
	return nil
}

// errStranded means that a replaced entry is in the trash and could not be moved back.
var errStranded = errors.New("drive: a replaced entry is stranded in the trash")

// removeStaged deletes the staged entry, unless it was installed or the attempt is detached. A folder that is not empty is
// left to the sweep.
func (a *attempt) removeStaged() {
	if a.isDetached || a.isInstalled {
		return
	}
	st, err := a.drive.staging.stat(a.stagedName())
	if err != nil || st == nil {
		return
	}
	flags := 0
	if isFolder(st) {
		flags = unix.AT_REMOVEDIR
	}
	if err := a.drive.staging.unlink(a.stagedName(), flags); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		a.drive.drives.log.Error("cannot delete staged content", "workspace", a.drive.workspaceID, "error", err)
	}
}
