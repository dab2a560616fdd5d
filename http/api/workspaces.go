package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	rules "github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

// workspaces creates and renames workspaces. The package comment describes the whole flow.
type workspaces struct {
	// limit is the number of workspaces that a person may have created and not deleted; negative: no limit.
	limit int
}

func (w workspaces) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: "/v1/workspaces", Scope: server.ScopeKey, Summary: "Create a workspace",
			Handler: server.Answer(http.StatusCreated, decodeWorkspace, w.create)},
		{Method: http.MethodPatch, Path: "/v1/workspaces/{workspaceSlug}", Scope: server.ScopeAdmin, Summary: "Rename a workspace",
			Handler: server.Answer(http.StatusOK, server.Checked(checkRename), w.rename)},
	}
}

type workspaceRequest struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

type workspaceCreated struct {
	WorkspaceID string `json:"workspaceId"`
	Slug        string `json:"slug"`
	Status      string `json:"status"`
}

// decodeWorkspace refuses apps, OAuth clients and computers before it validates the input: a workspace must belong to a
// person.
func decodeWorkspace(c *server.Call) (workspaceRequest, error) {
	if !entity.Human(c.Caller.Principal) {
		return workspaceRequest{}, server.ErrForbidden
	}
	return server.Body[workspaceRequest](c)
}

// create claims the slug and waits until the workspace and the membership of its creator exist. Errors: slug_taken,
// limit_reached.
func (w workspaces) create(c *server.Call, in workspaceRequest) (workspaceCreated, error) {
	var none workspaceCreated
	switch {
	case in.Slug == "":
		return none, server.Invalid("slug is required")
	case in.Name == "":
		return none, server.Invalid("name is required")
	}
	if err := slug.Check(in.Slug); err != nil { // activate no entity for a name that no workspace can have
		return none, err
	}
	creator, err := account.DescribeCaller(c)
	if err != nil {
		return none, err
	}
	id := c.NewID("ws_")
	if err := w.reserve(c, creator.GetId(), id); err != nil {
		return none, err
	}
	if err := claimSlug(c, in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: id, WorkspaceName: in.Name, CreatorId: creator.GetId(),
		CreatorEmail: creator.GetEmail(), CreatorName: creator.GetName(),
		ImpersonatorId: c.Caller.Principal.GetImpersonatorId(),
	}); err != nil {
		if entity.IsRefusal(err) { // after other errors the workspace may still be created
			releaseReservation(c, creator.GetId(), id)
		}
		return none, err
	}
	return workspaceCreated{id, in.Slug, StatusNames[workspacev1.Status_STATUS_PROVISIONING]}, nil
}

// reserve takes a place among the workspaces that a person may have created. Errors: limit_reached.
func (w workspaces) reserve(c *server.Call, userID, id string) error {
	limit := w.limit
	if limit < 0 {
		return nil
	}
	_, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.NewID("cmd_"),
		Message: &userv1.ReserveWorkspace{WorkspaceId: id, Limit: int32(limit)},
	})
	return err
}

// releaseReservation returns the place of a workspace that was not created. If that fails, the place is returned after some
// minutes.
func releaseReservation(c *server.Call, userID, id string) {
	if _, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.NewID("cmd_"),
		Message: &userv1.ForgetWorkspace{WorkspaceId: id},
	}); err != nil {
		c.Log().Warn("cannot release the reservation of a workspace that was not created; it expires by itself", "workspace", id, "error", err)
	}
}

// claimSlug claims a slug for a workspace, and waits until the reactions of the slug and then of the workspace are done.
// Errors: slug_taken.
func claimSlug(c *server.Call, name string, claim *slugv1.ClaimSlug) error {
	if _, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), ID: c.NewID("cmd_"),
		Message: claim,
	}); err != nil {
		return err
	}
	c.InvalidateSlug(name)
	if err := c.Settle(entity.KindSlug, name); err != nil {
		return err
	}
	return c.Settle(entity.KindWorkspace, claim.GetWorkspaceId())
}

type renameRequest struct {
	Slug                       string  `json:"slug"`
	PublicURLBreakAcknowledged *bool   `json:"publicUrlBreakAcknowledged"`
	Name                       *string `json:"name"`
}

type workspaceRenamed struct {
	OK               bool `json:"ok"`
	BreaksPublicURLs bool `json:"breaksPublicUrls"`
}

func checkRename(in *renameRequest) error {
	switch {
	case in.Slug == "":
		return server.Invalid("slug is required")
	case in.PublicURLBreakAcknowledged == nil:
		return server.Invalid("publicUrlBreakAcknowledged is required")
	case !*in.PublicURLBreakAcknowledged:
		return server.Invalid("publicUrlBreakAcknowledged must be true")
	}
	if err := slug.Check(in.Slug); err != nil {
		return err
	}
	if in.Name == nil {
		return nil
	}
	if err := rules.CheckName(*in.Name); err != nil {
		return err
	}
	return nil
}

// rename claims the new slug, and waits until the workspace has it and has released its previous slug. If the workspace has the
// slug already, only its name changes. Errors: the errors of Authorize, slug_taken.
func (w workspaces) rename(c *server.Call, in renameRequest) (workspaceRenamed, error) {
	done := workspaceRenamed{true, true}
	if err := c.Authorize(); err != nil {
		return workspaceRenamed{}, err
	}
	now, err := describePathWorkspace(c)
	if err != nil {
		return workspaceRenamed{}, err
	}
	name := ""
	if in.Name != nil {
		name = *in.Name
	}
	if in.Slug == now.GetSlug() {
		_, err := server.Ask[proto.Message](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: c.Workspace.ID, ID: c.NewID("cmd_"),
			Message: &workspacev1.RenameWorkspace{Slug: in.Slug, Name: name, NameOnly: true},
		})
		return done, err
	}
	claim := c.NewID("cmd_")
	if err := claimSlug(c, in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: c.Workspace.ID, Rename: &slugv1.Rename{Id: claim, Principal: c.Caller.Principal, Name: name},
	}); err != nil {
		return workspaceRenamed{}, err
	}
	c.InvalidateSlug(now.GetSlug())
	c.InvalidateSlug(c.Workspace.Slug)
	return done, checkRenamed(c, claim, in.Slug)
}

// checkRenamed returns the outcome of a claim: nil if the workspace got the slug, even if another rename has followed, or
// the refusal of the workspace. Errors: unavailable if a later claim to the same slug has replaced the outcome.
func checkRenamed(c *server.Call, claim, name string) error {
	c.InvalidateSlug(name)
	found, err := server.Ask[*slugv1.Slug](c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	switch {
	case err != nil:
		return err
	case found.GetRefusedClaimId() == claim:
		if err := c.Authorize(); err != nil {
			return err
		}
	case found.GetClaimId() == claim:
		return nil
	}
	return server.ErrOverloaded
}
