package http

import (
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// scope says who may use an operation, in the words of the specification.
type scope string

const (
	// public operations are anybody's, as fast as their address may ask; probe ones are for monitoring and have no limit.
	public scope = "public"
	probe  scope = "probe"
	anyKey scope = "api_key"
	human  scope = "human"
	// operator operations are those of the Unix socket.
	operator    scope = "operator"
	member      scope = "workspace_member"
	admin       scope = inWorkspace + "admin"
	filesRead   scope = inWorkspace + "files:read"
	filesEdit   scope = inWorkspace + "files:write"
	inviters    scope = inWorkspace + "members"
	memberSeers scope = inWorkspace + "sessions or " + inWorkspace + "files:read"
	anchorers   scope = inWorkspace + "apps or " + inWorkspace + "publish or " + inWorkspace + "share"

	inWorkspace = "ws:{workspaceSlug}:"
)

// need is what the scope asks for in the path's workspace; ok is false where the path names none.
func (s scope) need() (need entity.Need, ok bool) {
	if s == member {
		return need, true
	}
	for _, one := range strings.Split(string(s), " or ") {
		if capability, ok := strings.CutPrefix(one, inWorkspace); ok {
			need.Any = append(need.Any, capability)
		}
	}
	return need, len(need.Any) > 0
}

// manner says how long an operation may take and what it counts against.
type manner int

const (
	// brief operations have a deadline.
	brief manner = iota
	// transfer operations last as long as bytes move.
	transfer
	// streaming operations last a segment and have a limit of their own.
	streaming
)

type route struct {
	method     string
	path       string
	scope      scope
	idempotent bool
	summary    string
	handler    handler
	manner     manner
	// evenSuspended operations change a workspace that takes no other changes.
	evenSuspended bool
}

const (
	workspacePath = "/v1/ws/{workspaceSlug}"
	activityPath  = workspacePath + "/file-activity"
	drivePath     = workspacePath + "/drive"
)

// routes is the table of operations. The router tries paths in this order: hot ones come first.
func (s *Server) routes() []route {
	const get = http.MethodGet
	table := s.activityRoutes()
	table = append(table, s.driveRoutes()...)
	table = append(table, s.workspaceRoutes()...)
	table = append(table, s.memberRoutes()...)
	table = append(table, s.userRoutes()...)
	table = append(table,
		route{get, "/v1/openapi.json", public, false, "This document", s.openAPI, brief, false},
		route{get, "/healthz", probe, false, "Tell whether the process runs", answer(http.StatusOK, nothing, s.health), brief, false},
		route{get, "/readyz", probe, false, "Tell whether requests can be answered", answer(http.StatusOK, nothing, s.readiness), brief, false},
		route{get, "/metrics", probe, false, "Prometheus metrics", s.metrics.serve, brief, false},
	)
	return append(append(table, s.pageRoutes()...), s.oauthRoutes()...)
}

func (s *Server) activityRoutes() []route {
	const get, ok = http.MethodGet, http.StatusOK
	return []route{
		{get, activityPath + "/feed", filesRead, false, "List the workspace's file activity", answer(ok, decodeFeed, s.readFeed), brief, false},
		{get, activityPath + "/events", filesRead, false, "Follow the workspace's file activity", s.streamActivity, streaming, false},
		{get, activityPath, filesRead, false, "List the activity of one file", answer(ok, decodeHistory, s.readHistory), brief, false},
		{get, activityPath + "/seen-by", filesRead, false, "List who read and wrote one file", answer(ok, s.decodeSeenBy, s.readSeenBy), brief, false},
		{get, activityPath + "/latest-writers", filesRead, false, "Tell the last writer of entries of one folder", answer(ok, decodeLatestWriters, s.readLatestWriters), brief, false},
	}
}

func (s *Server) workspaceRoutes() []route {
	const get, post, put, patch = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch
	const ok, suspension = http.StatusOK, workspacePath + "/admin/suspension"
	return []route{
		{get, "/v1/whoami", anyKey, false, "Tell whom the credential speaks for", answer(ok, nothing, s.whoami), brief, false},
		{post, "/v1/workspaces", anyKey, false, "Create a workspace", answer(http.StatusCreated, decodeWorkspace, s.createWorkspace), brief, false},
		{patch, "/v1/workspaces/{workspaceSlug}", admin, false, "Rename a workspace", answer(ok, checked(checkRename), s.renameWorkspace), brief, false},
		{post, workspacePath + "/reprovision", admin, false, "Replace the workspace's computer", answer(ok, nothing, s.reprovision), brief, false},
		{put, suspension, admin, false, "Suspend or resume a workspace", answer(ok, checked(checkSuspension), s.changeSuspension), brief, true},
		{get, suspension, admin, false, "Tell whether a workspace is suspended", answer(ok, nothing, s.readSuspension), brief, false},
		{get, workspacePath + "/anchors", filesRead, false, "List what is bound to paths of the drive", answer(ok, decodePage, s.listAnchors), brief, false},
		{post, workspacePath + "/anchors/{anchorId}/reanchor", anchorers, false, "Bind an anchor to another path", answer(ok, checked(checkReanchor), s.reanchor), brief, false},
		{put, workspacePath + "/default-model", admin, false, "Choose the model that sessions have by default", answer(ok, checked(checkTier), s.changeDefaultModel), brief, false},
		{get, workspacePath + "/audit", filesRead, false, "List the workspace's audit log", answer(ok, decodePage, s.listAudit), brief, false},
		{get, workspacePath + "/telemetry", member, false, "Tell how busy the workspace's computer was", answer(ok, decodeSince, s.readTelemetry), brief, false},
	}
}

func (s *Server) memberRoutes() []route {
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	const ok, one = http.StatusOK, workspacePath + "/members/{userId}"
	return []route{
		{get, workspacePath + "/members", memberSeers, false, "List the workspace's members", answer(ok, decodeSearch, s.listMembers), brief, false},
		{patch, one, admin, false, "Change a member's role", answer(ok, checked(checkRole), s.changeRole), brief, false},
		{del, one, admin, false, "Remove a member", answer(ok, nothing, s.removeMember), brief, false},
		{post, workspacePath + "/invites", inviters, false, "Invite somebody into the workspace", answerMade(checked(checkInvite), s.invite), brief, false},
		{get, workspacePath + "/invites", inviters, false, "List the workspace's invitations", answer(ok, decodePage, s.listInvitations), brief, false},
		{del, workspacePath + "/invites/{inviteId}", inviters, true, "Revoke an invitation", answer(ok, nothing, s.revokeInvitation), brief, false},
	}
}

func (s *Server) userRoutes() []route {
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	const ok, of = http.StatusOK, "/v1/user"
	return []route{
		{get, of + "/profile", human, false, "Tell the caller's profile", answer(ok, nothing, s.readProfile), brief, false},
		{patch, of + "/profile", human, false, "Change the caller's profile", answer(ok, body[profileRequest], s.changeProfile), brief, false},
		{get, of + "/api-keys", human, false, "List the caller's API keys", answer(ok, decodePage, s.listAPIKeys), brief, false},
		{post, of + "/api-keys", human, false, "Issue an API key", answer(http.StatusCreated, decodeAPIKey, s.createAPIKey), brief, false},
		{del, of + "/api-keys/{keyId}", human, true, "Revoke an API key of the caller", answer(ok, nothing, s.revokeAPIKey), brief, false},
		{get, of + "/oauth-grants", human, false, "List what the caller allowed OAuth clients", answer(ok, decodePage, s.listGrants), brief, false},
		{del, of + "/oauth-grants/{grantId}", human, true, "Revoke what the caller allowed an OAuth client", answer(ok, nothing, s.revokeGrant), brief, false},
		{post, of + "/sync-machines", human, true, "Register a sync machine of the caller", answerMade(checked(checkMachine), s.registerMachine), brief, false},
		{get, of + "/sync-machines", human, false, "List the caller's sync machines", answer(ok, decodePage, s.listMachines), brief, false},
		{del, of + "/sync-machines/{machineId}", human, true, "Remove a sync machine of the caller", answer(ok, nothing, s.removeMachine), brief, false},
		{get, of + "/invitations", human, false, "List the invitations that the caller may accept", answer(ok, decodePage, s.listUserInvitations), brief, false},
		{post, of + "/invitations/{inviteId}/accept", human, true, "Accept an invitation", answer(ok, nothing, s.acceptInvitation), brief, false},
	}
}
