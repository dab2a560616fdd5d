package kinds

import (
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// IsLimited reports whether a command is refused if its workspace has no room in the journal: the command is not essential, and a member
// sends it or it stores the rows of a turn. Other commands of the platform report past events, and are never refused.
func IsLimited(c entity.Command) bool {
	switch c.Message.(type) {
	case *sessionv1.RecordRows:
		return true
	case *workspacev1.Resume, *workspacev1.ChangeStatus:
		return false // only operators send these
	}
	return c.Source == nil && !entity.IsPlatform(c.Principal) && !IsEssential(c)
}

// IsEssential reports whether a command is accepted although the disk is nearly full: it removes, ends or revokes something, is a
// command of an operator, or reports the outcome of such a command. No sender can send such commands without limit, because
// everything is removed once, and a removed thing cannot be made again while the disk is full.
func IsEssential(c entity.Command) bool {
	switch m := c.Message.(type) {
	case *activityv1.Intend:
		return m.GetIntent().GetOperation().GetKind() == activityv1.Kind_KIND_DELETE
	case *activityv1.Complete, *activityv1.Abandon:
		return true // of an operation that was admitted

	case *sessionv1.DeleteSession, *sessionv1.EraseRows, *sessionv1.ReportErased, *sessionv1.Interrupt, *sessionv1.EndTurn:
		return true
	case *appv1.SetDisabled:
		return m.GetDisabled()
	case *appv1.RemoveApp, *appv1.RemoveDomain, *appv1.HaltApp, *appv1.ExpirePorts, *appv1.ReportStopped, *appv1.ReportDomainReleased,
		*bindingv1.ReleaseBinding, *bindingv1.ReportCleanedUp, *bindingv1.ReportCleanUpFailed,
		*certificatesv1.RemoveFiles, *certificatesv1.ReleaseLock:
		return true
	case *computerv1.RetireComputer, *computerv1.ReportRetired, *computerv1.ReportRemoved, *computerv1.ReportProcessEnded, *computerv1.CancelTask:
		return true

	case *workspacev1.RemoveMember, *workspacev1.SetMemberDisabled, *workspacev1.RevokeInvitation, *workspacev1.EndInvitations,
		*workspacev1.RemoveAnchor, *workspacev1.OrphanAnchors,
		*workspacev1.RemoveAgent, *workspacev1.RemoveApp, *workspacev1.ReleaseAppPorts, *workspacev1.ClearDefaultSession,
		*workspacev1.ReportLocksRemoved, *workspacev1.ReportSessionsStopped, *workspacev1.Suspend:
		return true
	case *workspacev1.RecordAudit, *workspacev1.ChangeStatus, *workspacev1.Resume,
		*userv1.Disable, *userv1.Enable, *userv1.SetInternalAdmin:
		return entity.IsPlatform(c.Principal) // as which operators act
	case *userv1.OfferOneTimeLink:
		return entity.IsPlatform(c.Principal) && m.GetLink().GetMailId() == "" // an operator hands the link over

	case *userv1.LeaveWorkspace, *userv1.ForgetWorkspace, *userv1.RevokeApiKey, *userv1.EndBrowserSession, *userv1.UnlinkIdentities,
		*userv1.RevokeGrant, *userv1.RemoveMachine,
		*credentialv1.RevokeCredential, *grantv1.Revoke, *devicev1.ReleaseDevice, *slugv1.ReleaseSlug, *subjectv1.ReleaseSubject,
		*visitv1.EndVisit:
		return true
	}
	return false
}

// IsRationed reports whether a command is accepted although the disk is nearly full, until half of the journal's reserve is used: people
// sign in, so that they can delete something. They may repeat such commands, and a visitor may have a link mailed to any account.
func IsRationed(c entity.Command) bool {
	switch m := c.Message.(type) {
	case *userv1.StartBrowserSession, *userv1.SetPassword, *userv1.OfferOneTimeLink, *userv1.ReportLinkMailed:
		return true
	case *credentialv1.RegisterCredential:
		return m.GetCredential().GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION
	}
	return false
}
