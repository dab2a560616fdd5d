package drive

import (
	"context"
	"errors"
	"fmt"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// recoverOnce recovers for the first of those who wait for it.
func (d *Drive) recoverOnce(ctx context.Context) error {
	return d.alone(ctx, func() error {
		if d.recovered.Load() {
			return nil
		}
		return d.resolve(ctx)
	})
}

func (d *Drive) recover(ctx context.Context) error {
	return d.alone(ctx, func() error { return d.resolve(ctx) })
}

func (d *Drive) alone(ctx context.Context, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case d.recovering <- struct{}{}:
		defer func() { <-d.recovering }()
		return work()
	case <-ctx.Done():
		return unavailable("the drive is being recovered")
	}
}

func (d *Drive) resolve(ctx context.Context) error {
	reply, err := d.ask(ctx, &activityv1.ListIntents{})
	if err != nil {
		return d.unrecovered(err)
	}
	intents, ok := reply.(*activityv1.Intents)
	if !ok {
		return fmt.Errorf("drive: unexpected reply %T", reply)
	}
	for _, intent := range intents.GetIntents() {
		if d.isLive(intent.GetId()) {
			continue
		}
		if err := d.resolveIntent(ctx, intent); err != nil {
			return d.unrecovered(err)
		}
	}
	d.recovered.Store(true)
	return nil
}

// unrecovered logs what keeps a drive closed; clients are told no more than that.
func (d *Drive) unrecovered(err error) error {
	d.drives.log.Error("a drive cannot be recovered now", "workspace", d.workspaceID, "error", err)
	return unavailable("the drive cannot be recovered now")
}

func (d *Drive) resolveIntent(ctx context.Context, intent *activityv1.Intent) error {
	unlock, err := d.locks.acquire(ctx, touched(intent.GetOperation())...)
	if err != nil {
		return err
	}
	defer unlock()
	a := &attempt{drive: d, id: intent.GetId()}
	happened, err := d.evidence(a, intent)
	if err != nil {
		return fromOS(err)
	}
	d.drives.log.Info("an unfinished operation is settled", "workspace", d.workspaceID, "intent", a.id, "happened", happened)
	if happened {
		return settled(a.ask(ctx, &activityv1.Complete{IntentId: a.id}))
	}
	if err := d.putBack(a, intent.GetOperation()); err != nil {
		return fromOS(err)
	}
	return settled(a.ask(ctx, &activityv1.Abandon{IntentId: a.id}))
}

// settled forgives a refusal: the intent is not there any more.
func settled(err error) error {
	if err == nil || entity.IsRefusal(err) {
		return nil
	}
	return err
}

func touched(op *activityv1.Operation) []string {
	if op.GetFromPath() == "" {
		return []string{op.GetPath()}
	}
	return []string{op.GetPath(), op.GetFromPath()}
}

// evidence tells whether the disk shows an intent's operation, and makes durable what shows it.
func (d *Drive) evidence(a *attempt, intent *activityv1.Intent) (bool, error) {
	op := intent.GetOperation()
	switch op.GetKind() {
	case activityv1.Kind_KIND_RESTORE:
		return d.restored(intent.GetInode())
	case activityv1.Kind_KIND_DELETE:
		trash, err := d.aside.stat(a.trash())
		if err != nil || trash == nil {
			return false, err
		}
		return true, errors.Join(d.syncParent(op.GetPath()), d.aside.Sync())
	}
	if there, err := d.holds(op.GetPath(), intent.GetInode()); err != nil || !there {
		return false, err
	}
	if from := op.GetFromPath(); from != "" {
		// Source and destination may have been links to one file before.
		if there, err := d.holds(from, intent.GetInode()); err != nil || there {
			return false, err
		}
		if err := d.syncParent(from); err != nil {
			return false, err
		}
	}
	return true, errors.Join(d.syncParent(op.GetPath()), d.aside.Sync())
}

// holds tells whether an inode is at a path.
func (d *Drive) holds(path string, inode uint64) (bool, error) {
	at, err := d.locate(path)
	if gone(err) {
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
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	return at.parent.Sync()
}

// putBack returns what an operation that did not happen had already moved out of its way.
func (d *Drive) putBack(a *attempt, op *activityv1.Operation) error {
	trash, err := d.aside.stat(a.trash())
	if err != nil || trash == nil {
		return err
	}
	at, err := d.locate(op.GetPath())
	if err != nil {
		return err
	}
	defer at.close()
	if at.exists() {
		// A process made something there since; it is newer.
		return nil
	}
	if err := d.aside.rename(a.trash(), at.parent, at.name, false); err != nil {
		return err
	}
	return errors.Join(at.parent.Sync(), d.aside.Sync())
}

func gone(err error) bool {
	return errors.Is(err, errNoParent) || errors.Is(err, errLinked)
}
