package node

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// followMembers adds to the reactions that whoever may no longer change a workspace's files loses the locks on them. The
// locks go before whatever else follows from the event.
func (n *Node) followMembers(reactions map[string]actors.Reaction) {
	for _, event := range []proto.Message{&workspacev1.MemberRemoved{}, &workspacev1.MemberRoleChanged{}} {
		reactions[entity.MessageName(event)] = func(ctx context.Context, identity string, event proto.Message) error {
			n.dropLocks(ctx, identity, event)
			return nil
		}
	}
}

// dropLocks does not fail the reaction where a drive cannot be opened: its locks end within the hour, and owners may break
// them before.
func (n *Node) dropLocks(ctx context.Context, workspaceID string, event proto.Message) {
	userID := ""
	switch e := event.(type) {
	case *workspacev1.MemberRemoved:
		userID = e.GetUserId()
	case *workspacev1.MemberRoleChanged:
		if !writesFiles(e.GetRole()) {
			userID = e.GetUserId()
		}
	}
	if userID == "" {
		return
	}
	if err := n.files.DropLocks(ctx, workspaceID, userID); err != nil {
		n.log.Warn("the locks of a former editor stay until they expire", slog.String("workspace", workspaceID),
			slog.String("user", userID), slog.Any("error", err))
	}
}

func writesFiles(role workspacev1.Role) bool {
	person := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}
	return slices.Contains(entity.Capabilities(person, role), entity.FilesWrite)
}
