package http

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
)

const (
	adminPeople     = "/admin/users"
	adminWorkspaces = "/admin/workspaces"
	adminWorkspace  = adminWorkspaces + "/{slug}"
	adminReactions  = "/admin/reactions"
)

// adminRoutes is the table of the Unix socket: JSON for the commands of the same machine, and no promise to others.
func (s *Server) adminRoutes() []route {
	const get, post, put, patch = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch
	const ok, created = http.StatusOK, http.StatusCreated
	return []route{
		{post, adminPeople, operator, false, "Create a person with a first API key", answer(created, body[personRequest], s.createPerson), brief, false},
		{get, adminPeople, operator, false, "List the people", answer(ok, decodeOwners, s.listPeople), brief, false},
		{patch, adminPeople, operator, true, "Disable or enable a person, make one an internal admin, or unlink one from the provider", answer(ok, body[personChange], s.changePerson), brief, false},
		{post, "/admin/keys", operator, false, "Issue a further API key for a person", answer(created, body[personNamed], s.createPersonKey), brief, false},
		{post, "/admin/links", operator, false, "Make a link that sets a person's password", answer(created, body[linkRequest], s.createLink), brief, false},
		{post, "/admin/impersonations", operator, false, "Make a key with which an internal admin acts as a person", answer(created, body[impersonationRequest], s.impersonate), brief, false},
		{get, adminWorkspaces, operator, false, "List the workspaces", answer(ok, decodeOwners, s.listWorkspaces), brief, false},
		{get, adminWorkspace, operator, false, "Tell how a workspace and its computer are", answer(ok, nothing, s.describeTenant), brief, false},
		{put, adminWorkspace + "/status", operator, true, "Archive, retire, delete or reopen a workspace", answer(ok, body[statusRequest], s.changeStatus), brief, false},
		{put, adminWorkspace + "/suspension", operator, true, "Suspend a workspace, or take it up again", answer(ok, checked(checkSuspension), s.suspendTenant), brief, false},
		{get, adminWorkspace + "/members", operator, false, "List a workspace's members", answer(ok, decodeRows, s.listTenantMembers), brief, false},
		{get, adminWorkspace + "/backups", operator, false, "List a workspace's backups", answer(ok, nothing, s.listBackups), brief, false},
		{post, adminWorkspace + "/backups", operator, false, "Back a workspace's drive up", answer(created, nothing, s.createBackup), brief, false},
		{post, adminWorkspace + "/restores", operator, false, "Restore a workspace's drive from a backup", answer(created, body[restoreRequest], s.createRestore), brief, false},
		{get, adminReactions, operator, false, "List the streams whose reactions are parked", answer(ok, nothing, s.listParked), brief, false},
		{post, adminReactions + "/retry", operator, false, "Carry out the reactions of parked streams again", answer(ok, body[resumptionRequest], s.retryParked), brief, false},
		{post, adminReactions + "/skip", operator, false, "Skip the event at which a parked stream failed", answer(ok, body[resumptionRequest], s.skipParked), brief, false},
		{get, "/admin/audit", operator, false, "Export the audit logs", s.exportAudit, transfer, false},
	}
}

// roster is a page for operators.
type roster[Item any] struct {
	Items []Item `json:"items"`
	// Next continues it; left out: this was the end.
	Next string `json:"next,omitzero"`
}

// decodeOwners reads which page of everybody is asked for; after is an id.
func decodeOwners(c *call) (listing, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "after", "limit")
	if err != nil {
		return listing{}, err
	}
	return listing{after: q.text("after"), limit: q.limit()}, q.err
}

// readOwners is a page of what has rows in a list.
func readOwners[Item any](c *call, list string, in listing, view func(id string) (Item, error)) (roster[Item], error) {
	ids, err := c.server.options.Directory.Owners(c.ctx, list, in.after, int(in.limit))
	if err != nil {
		return roster[Item]{}, err
	}
	found := roster[Item]{Items: make([]Item, len(ids))}
	if len(ids) == int(in.limit) {
		found.Next = ids[len(ids)-1]
	}
	return found, each(len(ids), func(i int) (err error) {
		found.Items[i], err = view(ids[i])
		return err
	})
}

// asPlatform is a command of an operator, who is on the server's own machine.
func (c *call) asPlatform(kind, identity string, m proto.Message) entity.Command {
	return entity.Command{
		Kind: kind, Identity: identity, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"), Message: m,
	}
}

// tenant is the workspace that the path names, as it is now.
func (c *call) tenant() (*workspace, error) {
	name := strings.ToLower(c.variable("slug"))
	if slug.Check(name) != nil {
		return nil, errNotFound
	}
	return c.server.resolveSlug(c.ctx, name, nil)
}
