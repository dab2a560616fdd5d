package http

import (
	"net/http"
	"strings"
)

// scope says who may use an operation, in the words of the specification.
type scope string

const (
	public    scope = "public"
	anyKey    scope = "api_key"
	human     scope = "human"
	operator  scope = "operator"
	filesRead scope = "ws:{workspaceSlug}:files:read"
	filesEdit scope = "ws:{workspaceSlug}:files:write"
)

// capability is what the scope asks for in the path's workspace; empty: the path has none.
func (s scope) capability() string {
	capability, _ := strings.CutPrefix(string(s), "ws:{workspaceSlug}:")
	if capability == string(s) {
		return ""
	}
	return capability
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
		{get, activityPath + "/feed", filesRead, false, "List the workspace's file activity", answer(ok, decodeFeed, s.readFeed), brief},
		{get, activityPath + "/events", filesRead, false, "Follow the workspace's file activity", s.streamActivity, streaming},
		{get, activityPath, filesRead, false, "List the activity of one file", answer(ok, decodeHistory, s.readHistory), brief},
		{get, activityPath + "/seen-by", filesRead, false, "List who read and wrote one file", answer(ok, s.decodeSeenBy, s.readSeenBy), brief},
		{get, activityPath + "/latest-writers", filesRead, false, "Tell the last writer of entries of one folder", answer(ok, decodeLatestWriters, s.readLatestWriters), brief},
		{get, "/v1/whoami", anyKey, false, "Tell whom the credential speaks for", answer(ok, nothing, s.whoami), brief},
	}
	table = append(table, s.driveRoutes()...)
	return append(table,
		route{post, "/v1/workspaces", anyKey, false, "Create a workspace", answer(created, decodeWorkspace, s.createWorkspace), brief},
		route{get, "/v1/user/api-keys", human, false, "List the caller's API keys", answer(ok, s.decodeAPIKeyList, s.listAPIKeys), brief},
		route{post, "/v1/user/api-keys", human, false, "Issue an API key", answer(created, body[apiKeyRequest], s.createAPIKey), brief},
		route{del, "/v1/user/api-keys/{keyId}", human, true, "Revoke an API key of the caller", answer(ok, nothing, s.revokeAPIKey), brief},
		route{get, "/v1/openapi.json", public, false, "This document", s.openAPI, brief},
		route{get, "/healthz", public, false, "Tell whether the process runs", answer(ok, nothing, s.health), brief},
		route{get, "/readyz", public, false, "Tell whether requests can be answered", answer(ok, nothing, s.readiness), brief},
		route{get, "/metrics", public, false, "Prometheus metrics", s.metrics.serve, brief},
	)
}

// adminRoutes is the table of the Unix socket.
func (s *Server) adminRoutes() []route {
	return []route{
		{http.MethodPost, "/admin/users", operator, false, "Create a person with a first API key", answer(http.StatusCreated, body[personRequest], s.createPerson), brief},
		{http.MethodPost, "/admin/keys", operator, false, "Issue a further API key for a person", answer(http.StatusCreated, body[personKeyRequest], s.createPersonKey), brief},
	}
}
