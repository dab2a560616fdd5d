package drive

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// recoverOnce recovers the drive unless it was recovered since it came into memory. Of several concurrent callers one
// recovers it and the others wait.
func (d *Drive) recoverOnce(ctx context.Context) error {
	return d.exclusively(ctx, func() error {
		if d.recovered.Load() {
			return nil
		}
		return d.resolveIntents(ctx)
	})
}

func (d *Drive) recover(ctx context.Context) error {
	return d.exclusively(ctx, func() error { return d.resolveIntents(ctx) })
}

// exclusively runs work while no other recovery of the drive runs. It returns Unavailable after waitTimeout.
func (d *Drive) exclusively(ctx context.Context, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case d.recovering <- struct{}{}:
		defer func() { <-d.recovering }()
		return work()
	case <-ctx.Done():
		return unavailable("the drive is being recovered; try again")
	}
}

// resolveIntents completes or abandons every open intent that belongs to no operation of this process. It returns
// Unavailable if the activity does not answer or the disk cannot be read.
func (d *Drive) resolveIntents(ctx context.Context) error {
	stranded := d.listStranded()
	left, err := d.listLeft()
	if err != nil {
		return d.recoveryFailed(err)
	}
	for _, intent := range left {
		if err := d.resolveIntent(ctx, intent); err != nil {
			return d.recoveryFailed(err)
		}
	}
	d.endStranded(stranded)
	return nil
}

// listStranded returns the ids of the operations that were left to recovery.
func (d *Drive) listStranded() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.stranded))
}

// endStranded ends operations that were left to recovery; their intents are resolved. The drive is recovered unless another
// operation was left to recovery meanwhile.
func (d *Drive) endStranded(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.stranded, id)
		d.endInFlight(id)
	}
	d.recovered.Store(len(d.stranded) == 0)
}

// listLeft returns the open intents that belong to no operation of this process. An operation completes its intent before it
// is not in flight any more, so that its intent can be in a list that is older. A second list does not have it.
func (d *Drive) listLeft() ([]*activityv1.Intent, error) {
	left, err := d.listIntents()
	if err != nil {
		return nil, err
	}
	left = slices.DeleteFunc(left, func(intent *activityv1.Intent) bool { return d.isRunning(intent.GetId()) })
	if len(left) == 0 {
		return nil, nil
	}
	now, err := d.listIntents()
	if err != nil {
		return nil, err
	}
	open := map[string]bool{}
	for _, intent := range now {
		open[intent.GetId()] = true
	}
	return slices.DeleteFunc(left, func(intent *activityv1.Intent) bool { return !open[intent.GetId()] }), nil
}

// isRunning reports whether an id belongs to an operation of this process that resolves its intent itself.
func (d *Drive) isRunning(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, isInFlight := d.inFlight[id]
	_, isStranded := d.stranded[id]
	return isInFlight && !isStranded
}

func (d *Drive) listIntents() ([]*activityv1.Intent, error) {
	intents, err := entity.ReplyAs[*activityv1.Intents](d.ask(&activityv1.ListIntents{}))
	return intents.GetIntents(), err
}

// recoveryFailed logs the error that keeps a drive closed and returns Unavailable, without details, for the client.
func (d *Drive) recoveryFailed(err error) error {
	d.drives.log.Error("cannot recover a drive; requests for it fail until this succeeds", "workspace", d.workspaceID, "error", err)
	return unavailable("the drive cannot be recovered now; try again")
}

// resolveIntent completes an intent if its operation has happened, and otherwise undoes its first half and abandons it.
func (d *Drive) resolveIntent(ctx context.Context, intent *activityv1.Intent) error {
	unlock, err := d.locks.acquire(ctx, pathsOf(intent.GetOperation())...)
	if err != nil {
		return err
	}
	defer unlock()
	a := &attempt{drive: d, id: intent.GetId()}
	happened, err := d.hasHappened(a, intent)
	if err != nil {
		return fromOS(err)
	}
	d.drives.log.Info("recovered an unfinished drive operation", "workspace", d.workspaceID, "intent", a.id, "happened", happened)
	if happened {
		return ignoreRefusal(a.ask(&activityv1.Complete{IntentId: a.id}))
	}
	if err := d.moveBackTrash(a, intent.GetOperation()); err != nil {
		return fromOS(err)
	}
	return ignoreRefusal(a.ask(&activityv1.Abandon{IntentId: a.id}))
}

// ignoreRefusal returns nil for a refusal, which here means that the intent does not exist any more.
func ignoreRefusal(err error) error {
	if err == nil || entity.IsRefusal(err) {
		return nil
	}
	return err
}

func pathsOf(op *activityv1.Operation) []string {
	if op.GetFromPath() == "" {
		return []string{op.GetPath()}
	}
	return []string{op.GetPath(), op.GetFromPath()}
}

// hasHappened reports whether the disk shows that an intent's operation has happened, and makes the folders that show it
// durable.
func (d *Drive) hasHappened(a *attempt, intent *activityv1.Intent) (bool, error) {
	op := intent.GetOperation()
	switch op.GetKind() {
	case activityv1.Kind_KIND_RESTORE:
		return d.isRestored(intent.GetInode())
	case activityv1.Kind_KIND_DELETE:
		trash, err := d.staging.stat(a.trashName())
		if err != nil || trash == nil {
			return false, err
		}
		return true, errors.Join(d.syncParent(op.GetPath()), d.syncStaging())
	}
	if there, err := d.isAt(op.GetPath(), intent.GetInode()); err != nil || !there {
		return false, err
	}
	if from := op.GetFromPath(); from != "" {
		// Source and destination may have been hard links to one file, so the source must be gone as well.
		if there, err := d.isAt(from, intent.GetInode()); err != nil || there {
			return false, err
		}
		if err := d.syncParent(from); err != nil {
			return false, err
		}
	}
	return true, errors.Join(d.syncParent(op.GetPath()), d.syncStaging())
}

// isAt reports whether the entry at a path has the inode.
func (d *Drive) isAt(path string, inode uint64) (bool, error) {
	at, err := d.locate(path)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer at.close()
	return at.exists() && at.st.Ino == inode, nil
}

func (d *Drive) syncParent(path string) error {
	at, err := d.locate(path)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	return at.parent.Sync()
}

// moveBackTrash moves an entry, which an operation that did not happen had already moved to the trash, back to its path.
func (d *Drive) moveBackTrash(a *attempt, op *activityv1.Operation) error {
	trash, err := d.staging.stat(a.trashName())
	if err != nil || trash == nil {
		return err
	}
	at, err := d.locate(op.GetPath())
	if isGone(err) {
		// A process has removed, moved or replaced the folder above, so there is no place to move the entry back to. Without this
		// the drive could never be opened again. The trash is deleted by the sweep.
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	if at.exists() {
		// A process has created a newer entry there. The trash is deleted by the sweep.
		return nil
	}
	if err := d.staging.rename(a.trashName(), at.parent, at.name, false); err != nil {
		return err
	}
	return errors.Join(at.parent.Sync(), d.syncStaging())
}

// isGone reports whether an error of locate means that no entry can be at the path.
func isGone(err error) bool {
	return errors.Is(err, errNoParent) || errors.Is(err, errLinked)
}
