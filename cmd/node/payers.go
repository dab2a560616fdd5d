package node

import (
	"context"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// payers finds who pays for workspaces. The person has a share of a nearly full disk for all these workspaces together (package quota).
type payers struct{ asker entity.Asker }

// find returns the billing user of a workspace, with the workspaces that the person has created and that are not deleted. A workspace
// whose billing user has no account has a share of its own. Errors: not_found if there is no such workspace.
func (p payers) find(ctx context.Context, workspaceID string) (quota.Payer, error) {
	described, err := entity.AskAsPlatform[*workspacev1.Description](ctx, p.asker, entity.KindWorkspace, workspaceID, &workspacev1.DescribeWorkspace{})
	if err != nil {
		return quota.Payer{}, err
	}
	found := quota.Payer{ID: described.GetWorkspace().GetBillingUserId()}
	person, err := entity.AskAsPlatform[*userv1.User](ctx, p.asker, entity.KindUser, found.ID, &userv1.DescribeUser{})
	switch {
	case entity.HasCode(err, entity.NotFound):
		return quota.Payer{ID: workspaceID}, nil
	case err != nil:
		return quota.Payer{}, err
	}
	for id, reservedUntil := range person.GetCreatedWorkspaces() {
		if reservedUntil == 0 { // or the workspace is about to be created
			found.WorkspaceIDs = append(found.WorkspaceIDs, id)
		}
	}
	return found, nil
}
