// Package chain tells what follows from an event for other entities. What spans entities is a chain of such steps, each
// a command that its target carries out once.
//
//	EmailClaimed                      → user: CreateUser
//	SlugClaimed, for a new workspace  → workspace: CreateWorkspace
//	SlugClaimed, for one that is there → workspace: RenameWorkspace, or slug: ReleaseSlug
//	WorkspaceCreated                  → user: JoinWorkspace; computer: RequestComputer
//	WorkspaceRenamed                  → slug: ReleaseSlug of the old one
//	StatusChanged, deleted            → slug: ReleaseSlug; computer: RetireComputer; user: ForgetWorkspace
//	StatusChanged, active             → computer: AnnounceLoss
//	InvitationCreated, of a renewal too → email: AddInvitation
//	InvitationAccepted, MemberRemoved → user: JoinWorkspace, LeaveWorkspace
//	WorkspaceJoined, ProfileChanged   → workspace: UpdateMember
//	ApiKeyIssued, ApiKeyRevoked       → credential: RegisterCredential, RevokeCredential
//	BrowserSessionStarted, ImpersonationStarted → credential: RegisterCredential
//	BrowserSessionEnded, PasswordSet, IdentitiesUnlinked → credential: RevokeCredential
//	GrantRevoked, grant's Revoked     → grant: Revoke; user: RevokeGrant
//	DeviceClaimed                     → user: RegisterMachine, or device: ReleaseDevice
//	MachineRemoved                    → device: ReleaseDevice
//	ComputerProvisioned, ComputerFound, ComputerLost → workspace: ReportReady, ReportUnhealthy
//
// What a person does with keys, grants and machines is recorded in the logs of their workspaces beside that (RecordAudit).
package chain

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Events are those that something follows from.
func Events() []proto.Message {
	return []proto.Message{
		&emailv1.EmailClaimed{}, &slugv1.SlugClaimed{}, &devicev1.DeviceClaimed{}, &grantv1.Revoked{},

		&workspacev1.WorkspaceCreated{}, &workspacev1.WorkspaceRenamed{}, &workspacev1.StatusChanged{},
		&workspacev1.InvitationCreated{}, &workspacev1.InvitationAccepted{}, &workspacev1.MemberRemoved{},

		&userv1.WorkspaceJoined{}, &userv1.ProfileChanged{}, &userv1.ApiKeyIssued{}, &userv1.ApiKeyRevoked{},
		&userv1.BrowserSessionStarted{}, &userv1.BrowserSessionEnded{}, &userv1.PasswordSet{},
		&userv1.IdentitiesUnlinked{},
		&userv1.ImpersonationStarted{}, &userv1.GrantAllowed{}, &userv1.GrantRevoked{},
		&userv1.MachineRegistered{}, &userv1.MachineRenamed{}, &userv1.MachineRemoved{},

		&computerv1.ComputerProvisioned{}, &computerv1.ComputerFound{}, &computerv1.ComputerLost{},
	}
}

// Next returns the commands that follow unconditionally from an event of the entity with that identity.
func Next(identity string, event proto.Message) []entity.Command {
	switch e := event.(type) {
	case *emailv1.EmailClaimed:
		return to(entity.KindUser, e.GetUserId(), &userv1.CreateUser{Email: e.GetAddress(), Name: e.GetName()})
	case *slugv1.SlugClaimed:
		return afterSlug(e)
	case *grantv1.Revoked:
		return afterFamily(identity, e)
	case workspacev1.Event:
		return ofWorkspace(identity, e)
	case userv1.Event:
		return ofUser(identity, e)
	case computerv1.Event:
		return ofComputer(identity, e)
	}
	return nil
}

// afterFamily tells the person whose list the grant is in; it is nobody's where it was revoked before it was opened.
func afterFamily(identity string, e *grantv1.Revoked) []entity.Command {
	if e.GetUserId() == "" {
		return nil
	}
	return to(entity.KindUser, e.GetUserId(), &userv1.RevokeGrant{GrantId: identity})
}

func afterSlug(e *slugv1.SlugClaimed) []entity.Command {
	if e.GetRename() != nil {
		return nil
	}
	return to(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.CreateWorkspace{
		Slug: e.GetSlug(), Name: e.GetWorkspaceName(), CreatorId: e.GetCreatorId(),
		CreatorEmail: e.GetCreatorEmail(), CreatorName: e.GetCreatorName(), ImpersonatorId: e.GetImpersonatorId(),
	})
}

func ofComputer(identity string, event computerv1.Event) []entity.Command {
	switch event.(type) {
	case *computerv1.ComputerProvisioned, *computerv1.ComputerFound:
		return to(entity.KindWorkspace, identity, &workspacev1.ReportReady{})
	case *computerv1.ComputerLost:
		return to(entity.KindWorkspace, identity, &workspacev1.ReportUnhealthy{})
	default:
		return nil
	}
}

func to(kind, identity string, m proto.Message) []entity.Command {
	return []entity.Command{{Kind: kind, Identity: identity, Message: m}}
}
