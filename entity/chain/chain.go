// Package chain tells what follows from an event for other entities. What spans entities is a chain of such steps, each
// a command that changes nothing when it is repeated.
//
//	EmailClaimed   → user: CreateUser
//	SlugClaimed    → workspace: CreateWorkspace
//	WorkspaceCreated → user: JoinWorkspace (and, once its drive is there, workspace: ReportReady)
//	ApiKeyIssued   → credential: RegisterCredential
//	ApiKeyRevoked  → credential: RevokeCredential
package chain

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Events are those that something follows from.
func Events() []proto.Message {
	return []proto.Message{
		&emailv1.EmailClaimed{}, &slugv1.SlugClaimed{}, &workspacev1.WorkspaceCreated{},
		&userv1.ApiKeyIssued{}, &userv1.ApiKeyRevoked{},
	}
}

// Next are the commands that follow from an event of the entity with that identity.
func Next(identity string, event proto.Message) []entity.Command {
	switch e := event.(type) {
	case *emailv1.EmailClaimed:
		return to(entity.KindUser, e.GetUserId(), &userv1.CreateUser{Email: e.GetAddress(), Name: e.GetName()})
	case *slugv1.SlugClaimed:
		return to(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.CreateWorkspace{
			Slug: e.GetSlug(), Name: e.GetWorkspaceName(), CreatorId: e.GetCreatorId(),
		})
	case *workspacev1.WorkspaceCreated:
		return to(entity.KindUser, e.GetCreatorId(), &userv1.JoinWorkspace{WorkspaceId: identity})
	case *userv1.ApiKeyIssued:
		return to(entity.KindCredential, e.GetKey().GetId(), &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
			Id: e.GetKey().GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: e.GetUserId(),
			SecretSha256: e.GetKey().GetSecretSha256(), CreatedAt: e.GetKey().GetCreatedAt(), ExpiresAt: e.GetKey().GetExpiresAt(),
		}})
	case *userv1.ApiKeyRevoked:
		return to(entity.KindCredential, e.GetKeyId(), &credentialv1.RevokeCredential{At: e.GetAt()})
	}
	return nil
}

func to(kind, identity string, m proto.Message) []entity.Command {
	return []entity.Command{{Kind: kind, Identity: identity, Message: m}}
}
