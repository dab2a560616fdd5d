package runner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/session"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/retry"
)

// participantInterval is the time between two checks of the participant while a turn runs.
const participantInterval = 2 * time.Second

// The failures of turns with a participant that has lost the access.
var (
	errRemoved  = &failure{session.FailureAccessLost, "The person on whose behalf the turn would run is no longer a member of the workspace."}
	errDemoted  = &failure{session.FailureAccessLost, "The person on whose behalf the turn would run may no longer take part in sessions."}
	errDisabled = &failure{session.FailureAccessLost, "The account of the person on whose behalf the turn would run is disabled."}
	errRevoked  = &failure{session.FailureAccessLost, "The authorization of the client that took part last was revoked."}
	errKeyEnded = &failure{session.FailureAccessLost, "The API key with which the last prompt, message or answer was sent was revoked or has expired."}
	errAppEnded = &failure{session.FailureAccessLost, "The app that took part last was disabled or unregistered, its folder does not exist, or it has lost scopes."}
)

// checkParticipant returns an error unless the participant of a session may take part in the sessions of its workspace now, with the
// bounds of the turn. Errors: *failure if the participant has lost the access; any other error if the access could not be checked.
func (r *Runner) checkParticipant(ctx context.Context, workspaceID string, p *sessionv1.Participant, bounds *sessionv1.Bounds) error {
	if p.GetUserId() == "" { // the platform or the computer of the workspace has started the session
		return nil
	}
	if err := r.checkMember(ctx, workspaceID, p.GetUserId()); err != nil {
		return err
	}
	standing, err := entity.AskAsPlatform[*userv1.Standing](ctx, r.o.Asker, entity.KindUser, p.GetUserId(), &userv1.DescribeStanding{})
	switch {
	case entity.HasCode(err, entity.NotFound), err == nil && standing.GetDisabled():
		return errDisabled
	case err != nil:
		return err
	case p.GetGrantId() != "":
		return r.checkGrant(ctx, p.GetGrantId())
	case p.GetCredentialId() != "":
		return r.checkKey(ctx, p.GetCredentialId())
	case p.GetAppId() != "":
		return r.checkApp(ctx, app.Identity(workspaceID, p.GetAppId()), bounds)
	}
	return nil
}

// checkGrant returns an error unless an OAuth grant is in force.
func (r *Runner) checkGrant(ctx context.Context, id string) error {
	grant, err := entity.AskAsPlatform[*grantv1.Grant](ctx, r.o.Asker, entity.KindGrant, id, &grantv1.DescribeGrant{})
	if entity.HasCode(err, entity.NotFound) || err == nil && grant.GetRevokedAt() != 0 {
		return errRevoked
	}
	return err
}

// checkKey returns an error unless a limited API key is usable.
func (r *Runner) checkKey(ctx context.Context, id string) error {
	key, err := entity.AskAsPlatform[*credentialv1.Credential](ctx, r.o.Asker, entity.KindCredential, id, &credentialv1.DescribeCredential{})
	if err == nil && !credential.IsUsable(key, r.o.Clock().UnixMilli()) {
		return errKeyEnded
	}
	return err
}

// checkApp returns an error unless an app has the capabilities of the bounds of a turn. Grants and limited keys do not change, but the
// scopes of an app do.
func (r *Runner) checkApp(ctx context.Context, identity string, bounds *sessionv1.Bounds) error {
	reply, err := entity.AskAsPlatform[*appv1.Description](ctx, r.o.Asker, entity.KindApp, identity, &appv1.DescribeApp{})
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		return err
	}
	scopes := app.ScopesOf(reply.GetApp())
	if len(scopes) == 0 || slices.ContainsFunc(session.Granted(bounds), func(c string) bool { return !slices.Contains(scopes, c) }) {
		return errAppEnded
	}
	return nil
}

// checkMember returns an error unless a person may take part in the sessions of a workspace. A suspended workspace refuses all
// changes, and interrupts its turns itself.
func (r *Runner) checkMember(ctx context.Context, workspaceID, userID string) error {
	_, err := r.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID,
		Principal: &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: userID},
		Message:   &workspacev1.Authorize{Any: []string{entity.Sessions}, Changes: true},
	})
	switch {
	case entity.HasCode(err, entity.NotFound):
		if err := r.checkWorkspace(ctx, workspaceID); err != nil { // a deleted workspace has no members
			return err
		}
		return errRemoved
	case entity.HasCode(err, entity.Forbidden):
		return errDemoted
	case entity.HasCode(err, entity.WorkspaceSuspended, entity.WorkspaceClosed):
		return nil
	}
	return err
}

// watchParticipant sends a failure once the participant of the session has lost the access. The turn then ends with the failure. If the input of
// a member with access joins the turn before, this member is the participant, and the turn continues. While the access cannot be checked, the
// turn continues.
func (t *turn) watchParticipant(ctx context.Context, lost chan<- *failure) {
	for retry.Pause(ctx, participantInterval) {
		if f, is := errors.AsType[*failure](t.r.checkParticipant(ctx, t.id.workspace, t.l.Participant(), t.l.bounds)); is {
			select {
			case lost <- f:
			case <-ctx.Done():
			}
			return
		}
	}
}

// endAccessLost ends the turn of a participant without access, and its agent with all processes that it has started.
func (t *turn) endAccessLost(ctx context.Context, f *failure) *sessionv1.EndTurn {
	defer t.r.pool.discard(t.id)
	p := t.l.prompts.current()
	if t.l.cancel(ctx) && p.hasEndedByItself() {
		return t.ended(ctx, p)
	}
	t.takeResult()
	return t.interrupted(f)
}
