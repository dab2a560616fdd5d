package session

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// ErrNoSource is the error for a source that is no session which the caller sees.
var ErrNoSource = entity.Errorf(entity.InvalidRequest, "sourceSessionId must be the id of a session of the workspace")

// checkReferences checks the references of an input: the session that it comes from, and the files of its attachments, which the caller
// must be allowed to read. Errors: invalid_request, forbidden.
func (r Request) checkReferences(ctx context.Context, in Input) error {
	if err := r.checkSource(ctx, in.GetSourceSessionId()); err != nil {
		return err
	}
	attachments := in.GetAttachments()
	if len(attachments) == 0 {
		return nil
	}
	_, err := ask[*workspacev1.Authorized](ctx, r, r.toWorkspace(nil, &workspacev1.Authorize{Any: []string{entity.FilesRead}}))
	if err != nil {
		return err
	}
	return service.ForEach(len(attachments), func(i int) error {
		size, err := r.service.Folders.FileSize(ctx, r.workspaceID, attachments[i].GetPath())
		switch {
		case entity.HasCode(err, entity.NotFound):
			return entity.Errorf(entity.InvalidRequest, "attachments/%d/path does not name a file", i)
		case err == nil && size != attachments[i].GetSize():
			return entity.Errorf(entity.InvalidRequest, "attachments/%d/size is not the size of the file", i)
		}
		return err
	})
}

// checkSource checks the session that an input comes from, unless the agent of that session sends the input. Errors:
// invalid_request.
func (r Request) checkSource(ctx context.Context, id string) error {
	p := r.caller.Principal
	if id == "" || p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION && p.GetCredentialId() == id {
		return nil
	}
	_, err := r.describe(ctx, id)
	if entity.HasCode(err, entity.NotFound) {
		return ErrNoSource
	}
	return err
}

// CheckMembers returns an error unless all users are members of the workspace. field names the field of the request in the error. The
// caller must have been authorized. Errors: invalid_request.
func (r Request) CheckMembers(ctx context.Context, field string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	found, err := ask[*workspacev1.Memberships](ctx, r, r.toWorkspace(entity.Platform(), &workspacev1.DescribeMembers{UserIds: ids}))
	if err == nil && len(found.GetMembers()) < len(ids) {
		return entity.Errorf(entity.InvalidRequest, "%s must be ids of members of the workspace", field)
	}
	return err
}
