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
	activityPath = "/v1/ws/{workspaceSlug}/file-activity"
	drivePath    = "/v1/ws/{workspaceSlug}/drive"
)

// routes is the table of operations. The router tries paths in this order: hot ones come first.
func (s *Server) routes() []route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	ok, created := http.StatusOK, http.StatusCreated
	table := []route{
		{get, activityPath + "/feed", filesRead, false, "List the workspace's file activity", answer(ok, decodeFeed, s.readFeed), brief, false},
		{get, activityPath + "/events", filesRead, false, "Follow the workspace's file activity", s.streamActivity, streaming, false},
		{get, activityPath, filesRead, false, "List the activity of one file", answer(ok, decodeHistory, s.readHistory), brief, false},
		{get, activityPath + "/seen-by", filesRead, false, "List who read and wrote one file", answer(ok, s.decodeSeenBy, s.readSeenBy), brief, false},
		{get, activityPath + "/latest-writers", filesRead, false, "Tell the last writer of entries of one folder", answer(ok, decodeLatestWriters, s.readLatestWriters), brief, false},
		{get, "/v1/whoami", anyKey, false, "Tell whom the credential speaks for", answer(ok, nothing, s.whoami), brief, false},
	}
	table = append(table, s.driveRoutes()...)
	table = append(table,
		route{post, "/v1/workspaces", anyKey, false, "Create a workspace", answer(created, decodeWorkspace, s.createWorkspace), brief, false},
		route{get, "/v1/user/api-keys", human, false, "List the caller's API keys", answer(ok, s.decodeAPIKeyList, s.listAPIKeys), brief, false},
		route{post, "/v1/user/api-keys", human, false, "Issue an API key", answer(created, body[apiKeyRequest], s.createAPIKey), brief, false},
		route{del, "/v1/user/api-keys/{keyId}", human, true, "Revoke an API key of the caller", answer(ok, nothing, s.revokeAPIKey), brief, false},
		route{get, "/v1/openapi.json", public, false, "This document", s.openAPI, brief, false},
		route{get, "/healthz", probe, false, "Tell whether the process runs", answer(ok, nothing, s.health), brief, false},
		route{get, "/readyz", probe, false, "Tell whether requests can be answered", answer(ok, nothing, s.readiness), brief, false},
		route{get, "/metrics", probe, false, "Prometheus metrics", s.metrics.serve, brief, false},
	)
	return append(append(table, s.pageRoutes()...), s.oauthRoutes()...)
}
