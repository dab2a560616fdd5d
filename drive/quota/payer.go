package quota

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/volume"
)

// A Payer is the billing user of workspaces.
type Payer struct {
	ID string
	// WorkspaceIDs are the workspaces that the person pays for.
	WorkspaceIDs []string
}

// FindPayer returns the billing user of a workspace, with the workspaces that the person has created and that are not deleted: the person
// has a share of a nearly full disk for all these workspaces together. A workspace
// whose billing user has no account has a share of its own. Errors: not_found if there is no such workspace.
func FindPayer(ctx context.Context, a entity.Asker, workspaceID string) (Payer, error) {
	described, err := entity.AskAsPlatform[*workspacev1.Description](ctx, a, entity.KindWorkspace, workspaceID, &workspacev1.DescribeWorkspace{})
	if err != nil {
		return Payer{}, err
	}
	found := Payer{ID: described.GetWorkspace().GetBillingUserId()}
	person, err := entity.AskAsPlatform[*userv1.User](ctx, a, entity.KindUser, found.ID, &userv1.DescribeUser{})
	switch {
	case entity.HasCode(err, entity.NotFound):
		return Payer{ID: workspaceID}, nil
	case err != nil:
		return Payer{}, err
	}
	for id, reservedUntil := range person.GetCreatedWorkspaces() {
		if reservedUntil == 0 { // or the workspace is about to be created
			found.WorkspaceIDs = append(found.WorkspaceIDs, id)
		}
	}
	return found, nil
}

// A payer has the use of the disk by all drives of a billing user.
type payer struct {
	// deciding is a semaphore of one for measurements of the share.
	deciding chan struct{}

	mu           sync.Mutex
	workspaceIDs []string
	lookedUp     time.Time
	// share is the last measurement, and freed when Freed was last called.
	share shareUse
	freed time.Time
}

// A shareUse is the use of the drives of a payer that was last measured while the disk was nearly full.
type shareUse struct {
	used Usage
	// isPartial is set if the walk ended as soon as the drives had more than the share: used is then less than the drives use.
	isPartial bool
	// free is the use of the disk before the walk, measured the end of the walk, and took its duration.
	free     volume.Usage
	measured time.Time
	took     time.Duration
}

// payerOf returns the payer of a workspace, or nil if the payer was not looked up yet.
func (l *Limiter) payerOf(workspaceID string) *payer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payerByWorkspace[workspaceID]
}

// lookUpPayer looks up the payer of a workspace and the workspaces of the payer. A workspace that does not exist has a payer of its own. It
// returns the other errors of Options.Payer.
func (l *Limiter) lookUpPayer(ctx context.Context, workspaceID string) (*payer, error) {
	found := Payer{ID: workspaceID}
	if l.options.Payer != nil {
		looked, err := l.options.Payer(ctx, workspaceID)
		switch {
		case err == nil:
			found = looked
		case !entity.HasCode(err, entity.NotFound):
			return nil, err
		}
	}
	ids := slices.Clone(found.WorkspaceIDs)
	if !slices.Contains(ids, workspaceID) {
		ids = append(ids, workspaceID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.payers[found.ID]
	if p == nil {
		p = &payer{deciding: make(chan struct{}, 1)}
		l.payers[found.ID] = p
	}
	for _, id := range ids {
		l.payerByWorkspace[id] = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workspaceIDs, p.lookedUp = ids, time.Now()
	return p, nil
}

// workspaces returns the workspaces of a payer when the payer was last looked up.
func (p *payer) workspaces() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workspaceIDs
}

// lastUse returns the result of the last measurement. It returns nothing if there was no measurement, or Freed was called after the last
// measurement had begun.
func (p *payer) lastUse() Usage {
	if p == nil {
		return Usage{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.share; s.measured.Add(-s.took).After(p.freed) {
		return s.used
	}
	return Usage{}
}

// shareUse returns the use of the drives of a workspace's payer and of the payer's workspaces in the journal, as far as the use decides
// about need: no more than the use of the drives if need is refused. It also returns the disk, measured again after a walk.
// Drives that have not been walked for long enough are walked. Between two walks, the growth of the disk limits the growth of the drives.
// If a walk of a payer's drives fails, or does not end before the disk is below the lower threshold, the payer has more than the share.
// shareUse returns NotFound if there is no drive, and ctx's error. It calls wait before it waits for a walk.
func (l *Limiter) shareUse(ctx context.Context, workspaceID string, d disk, need Usage, wait func()) (Usage, disk, error) {
	if p := l.payerOf(workspaceID); p != nil {
		if used, is := l.knownShare(p, d, need); is {
			return used, d, nil
		}
	}
	wait()
	deciding, stop := l.untilBelow(ctx, need)
	defer stop()
	used, err := l.decideShare(deciding, workspaceID, d, need)
	switch {
	case err == nil:
	case ctx.Err() != nil, entity.HasCode(err, entity.NotFound):
		return Usage{}, d, err
	default:
		used = l.unknownUse(workspaceID, d, err)
	}
	d, err = l.measureDisk()
	return used, d, err
}

// decideShare is shareUse for a payer who must be looked up or walked.
func (l *Limiter) decideShare(ctx context.Context, workspaceID string, d disk, need Usage) (Usage, error) {
	p, err := l.lookUpPayer(ctx, workspaceID)
	if err != nil {
		return Usage{}, err
	}
	if err := occupy(ctx, p.deciding); err != nil {
		return Usage{}, err
	}
	defer func() { <-p.deciding }()
	if used, is := l.knownShare(p, d, need); is { // another caller has measured
		return used, nil
	}
	used, err := l.walkShare(ctx, p, workspaceID, d, need)
	return used.plus(l.journal(p)), err
}

// journal returns the use of the journal by the workspaces of a payer.
func (l *Limiter) journal(p *payer) (used Usage) {
	if l.options.Journal == nil {
		return used
	}
	for _, id := range p.workspaces() {
		used.Bytes += l.options.Journal(id)
	}
	return used
}

// unknownUse returns so large a use that the drive is refused below the reserve, because the drives of the payer cannot be measured.
func (l *Limiter) unknownUse(workspaceID string, d disk, err error) Usage {
	l.options.Log.Warn("drives cannot be measured, and count as large ones while the disk is nearly full", "workspace", workspaceID, "error", err)
	return Usage{d.TotalBytes/2 + 1, d.totalFiles()/2 + 1}
}

// errBelow is the cause of the end of a context of untilBelow.
var errBelow = errors.New("the disk has fallen below the lower threshold")

// untilBelow returns a context that ends as soon as need does not leave the lower threshold free.
func (l *Limiter) untilBelow(ctx context.Context, need Usage) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for retry.Pause(ctx, watchLeast) {
			if d, err := l.measureDisk(); err == nil && d.isBelow(need) {
				cancel(errBelow)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		group.Wait()
	}
}

// anticipate measures the drives of a payer before the disk is nearly full, so that the decision then need not wait for a walk. The walk is
// repeated when the disk has less free by half a band. A walk that goes on when the disk is nearly full is the walk of the decision.
func (l *Limiter) anticipate(ctx context.Context, workspaceID string, d disk) error {
	isKnown := func(p *payer) bool {
		if p == nil {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		s, grown := p.share, growth(p.share.free, d.Usage)
		isRecent := grown.Bytes < (d.bytes.high-d.bytes.low)/2 && grown.Files < (d.files.high-d.files.low)/2
		return !s.measured.IsZero() && (isRecent || time.Since(s.measured) < (share-1)*s.took)
	}
	if isKnown(l.payerOf(workspaceID)) {
		return nil
	}
	if err := occupy(ctx, l.walks); err != nil {
		return err
	}
	defer func() { <-l.walks }()
	p, err := l.lookUpPayer(ctx, workspaceID)
	if err != nil {
		return err
	}
	select {
	case p.deciding <- struct{}{}: // after the place among the walks: no decision waits for that place
		defer func() { <-p.deciding }()
	default: // the drives are being walked
		return nil
	}
	if isKnown(p) { // another caller has measured
		return nil
	}
	_, err = l.walkShare(ctx, p, workspaceID, d, Usage{})
	return err
}

// walkShare walks the drives of a payer, the drive of a workspace first, until it is certain that the drive may not have the space of
// need. It returns NotFound if the drive of the workspace does not exist. The caller occupies p.deciding.
func (l *Limiter) walkShare(ctx context.Context, p *payer, workspaceID string, d disk, need Usage) (Usage, error) {
	began, s, calls := time.Now(), shareUse{free: d.Usage}, 0
	journal := l.journal(p)
	enough := func(used Usage) bool {
		if calls++; calls%refresh == 0 { // processes go on writing
			if now, err := l.measureDisk(); err == nil {
				d = now
			}
		}
		// The rest is for the next decisions, which then need no walk either.
		least := Usage{used.Bytes - used.Bytes/16, used.Files - used.Files/16}.plus(journal)
		s.isPartial = !d.admits(least, need) || 2*used.Bytes > d.TotalBytes || 2*used.Files > d.totalFiles() // the threshold is the reserve
		return s.isPartial
	}
	others := slices.DeleteFunc(slices.Clone(p.workspaces()), func(id string) bool { return id == workspaceID })
	for _, id := range slices.Insert(others, 0, workspaceID) {
		before := s.used
		used, err := l.measureDrive(ctx, id, func(used Usage) bool { return enough(before.plus(used)) })
		switch {
		case err != nil && id != workspaceID && entity.HasCode(err, entity.NotFound):
			continue
		case err != nil:
			return Usage{}, err
		}
		if s.used = before.plus(used); s.isPartial {
			break
		}
	}
	s.measured, s.took = time.Now(), time.Since(began)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.share = s
	return s.used, nil
}

// measureDrive returns the result of Options.Measure, or the count of the kernel.
func (l *Limiter) measureDrive(ctx context.Context, workspaceID string, enough func(Usage) bool) (Usage, error) {
	a := l.account(workspaceID)
	if !l.isCounted(a, workspaceID) {
		return l.options.Measure(ctx, workspaceID, enough)
	}
	if err := l.count(a); err != nil {
		return Usage{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	enough(a.used)
	return a.used, nil
}

// knownShare returns the use of the drives of a payer and of the payer's workspaces in the journal, if no drive need be walked. If the
// kernel counts the drives, the payer must have been looked up recently, because the payer may have more workspaces by now.
func (l *Limiter) knownShare(p *payer, d disk, need Usage) (_ Usage, isKnown bool) {
	journal := l.journal(p)
	admits := func(used Usage) bool { return d.admits(used.plus(journal), need) }
	counted, isCounted := l.countedShare(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if isCounted {
		p.share = shareUse{used: counted, free: d.Usage, measured: time.Now()}
		return counted.plus(journal), time.Since(p.lookedUp) < staleAfter
	}
	s := p.share
	if s.measured.IsZero() || s.isPartial && admits(s.used) {
		return Usage{}, false
	}
	if most := s.used.plus(growth(s.free, d.Usage)); !s.isPartial && admits(most) {
		return most.plus(journal), true
	}
	pause := (urgentShare - 1) * s.took
	if !admits(s.used) {
		pause = (share - 1) * s.took
	}
	age := time.Since(s.measured)
	return s.used.plus(journal), age < pause || s.free == d.Usage && age < staleAfter
}

// countedShare returns the use of the drives of a payer, and false unless the kernel counts all of them.
func (l *Limiter) countedShare(p *payer) (used Usage, isCounted bool) {
	if l.kernel == ignores {
		return Usage{}, false
	}
	for _, id := range p.workspaces() {
		a := l.account(id)
		if !l.isCounted(a, id) || l.count(a) != nil { // the walk reports the error
			return Usage{}, false
		}
		a.mu.Lock()
		used = used.plus(a.used)
		a.mu.Unlock()
	}
	return used, true
}
