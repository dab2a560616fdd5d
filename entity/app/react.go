package app

import (
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// React returns the commands that follow from an event: keys are registered and revoked as the credential with the id of the app, the
// invitations that an app has sent end when it is disabled or removed or may not invite any more, ports and the anchor are released in the
// workspace, and the host name of a domain is claimed, checked and released in its binding.
func React(identity string, event appv1.Event) []entity.Reaction {
	workspaceID, appID := SplitIdentity(identity)
	switch e := event.(type) {
	case *appv1.KeyIssued:
		return []entity.Reaction{entity.Send(entity.KindCredential, e.GetAppId(), &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
			Id: e.GetAppId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: e.GetUserId(), WorkspaceId: e.GetWorkspaceId(),
			SecretSha256: e.GetKey().GetSecretSha256(), Grants: e.GetKey().GetScopes(), Number: e.GetKey().GetNumber(), CreatedAt: e.GetAt(),
		}})}
	case *appv1.KeyRevoked:
		return []entity.Reaction{entity.Send(entity.KindCredential, e.GetAppId(), &credentialv1.RevokeCredential{At: e.GetAt(), Number: e.GetNumber()})}
	case *appv1.AppDisabled, *appv1.RemovalRequested, *appv1.InvitingEnded:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, workspaceID, &workspacev1.EndInvitations{CredentialId: appID})}
	case *appv1.RuntimeReconciled:
		return releaseReaction(workspaceID, appID, []uint32{e.GetPort()}, e.GetPorts(), e.GetPortReservation())
	case *appv1.RuntimeFailed:
		return releaseReaction(workspaceID, appID, []uint32{e.GetPort()}, e.GetPorts(), e.GetPortReservation())
	case *appv1.PortsReleased:
		return releaseReaction(workspaceID, appID, e.GetUsed(), e.GetPorts(), e.GetPortReservation())
	case *appv1.DomainRequested:
		return []entity.Reaction{entity.Send(entity.KindBinding, e.GetHostname(), &bindingv1.ClaimBinding{
			WorkspaceId: e.GetWorkspaceId(), AppId: e.GetAppId(), DomainId: e.GetDomainId(),
		})}
	case *appv1.DomainRecheckRequested:
		return []entity.Reaction{entity.Send(entity.KindBinding, e.GetHostname(), &bindingv1.RecheckBinding{DomainId: e.GetDomainId()})}
	case *appv1.DomainRemovalRequested:
		return []entity.Reaction{entity.Send(entity.KindBinding, e.GetHostname(), &bindingv1.ReleaseBinding{DomainId: e.GetDomainId()})}
	case *appv1.AppRemoved:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.RemoveApp{AppId: e.GetAppId()})}
	default:
		return nil
	}
}
