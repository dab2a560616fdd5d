package client

import (
	"context"
	"io"
	"net/http"
	"strings"
)

const ws = "/v1/ws/{workspaceSlug}"

const slug = "{workspaceSlug}"

func listing[Item any](list func(*Client) Collection[Item]) func(context.Context, *Client) error {
	return func(ctx context.Context, c *Client) error { return errorOf(list(c).Page(ctx, page)) }
}

var text = "text"

// Inputs of sessions with every field.
const (
	requestID = "6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"
	userID    = "usr_01j9zq4m8s7r6t5v4w3x2y1z0a"
)

var (
	sessionsQuery  = SessionsQuery{"done", true, text, text, true, true}
	images         = []SessionImage{{"image/png", []byte(text)}}
	attachments    = []SessionAttachment{{text, text, 1, "text/plain"}}
	newSession     = NewSession{text, "balanced", "steer", requestID, images, attachments, &text, &[]string{userID}, text, "auto"}
	sessionMessage = SessionMessage{text, "balanced", "steer", images, attachments, requestID, text}
)

var operations = []operation{
	{route: "GET /v1/whoami", answer: Whoami{}, send: func(ctx context.Context, c *Client) error { return errorOf(c.Whoami(ctx)) }},
	{route: "POST /v1/workspaces", answer: WorkspaceCreated{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.CreateWorkspace(ctx, NewWorkspace{"acme", "Acme"}))
	}},
	{route: "PATCH /v1/workspaces/{workspaceSlug}", answer: WorkspaceRenamed{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RenameWorkspace(ctx, slug, WorkspaceRename{"acme", true, "Acme"}))
	}},
	{route: "POST " + ws + "/reprovision", answer: Reprovisioned{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Reprovision(ctx, slug))
	}},
	{route: "GET " + ws + "/admin/suspension", answer: Suspension{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Suspension(ctx, slug))
	}},
	{route: "PUT " + ws + "/admin/suspension", answer: Suspension{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SetSuspension(ctx, slug, SuspensionChange{true, text}))
	}},
	{route: "GET " + ws + "/anchors", answer: Page[Anchor]{}, send: listing(func(c *Client) Collection[Anchor] { return c.Anchors(slug) })},
	{route: "POST " + ws + "/anchors/{anchorId}/reanchor", answer: anchorAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Reanchor(ctx, slug, "{anchorId}", NewAnchorPath{text}))
	}},
	{route: "GET " + ws + "/agents", answer: Page[Agent]{}, send: listing(func(c *Client) Collection[Agent] { return c.Agents(slug) })},
	{route: "POST " + ws + "/agents", answer: agentAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RegisterAgent(ctx, slug, NewAgent{text, "release-notes"}))
	}},
	{route: "GET " + ws + "/agents/{agentSlug}", answer: agentAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Agent(ctx, slug, "{agentSlug}"))
	}},
	{route: "DELETE " + ws + "/agents/{agentSlug}", answer: removedAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RemoveAgent(ctx, slug, "{agentSlug}"))
	}},
	{route: "GET " + ws + "/skills", answer: Page[Skill]{}, send: listing(func(c *Client) Collection[Skill] { return c.Skills(slug, text) })},
	{route: "GET " + ws + "/members", answer: Page[Member]{}, send: listing(func(c *Client) Collection[Member] { return c.Members(slug, text) })},
	{route: "PATCH " + ws + "/members/{userId}", answer: memberAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.ChangeRole(ctx, slug, "{userId}", RoleChange{"viewer"}))
	}},
	{route: "DELETE " + ws + "/members/{userId}", answer: removedAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RemoveMember(ctx, slug, "{userId}"))
	}},
	{route: "PUT " + ws + "/default-model", answer: DefaultModel{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SetDefaultModel(ctx, slug, DefaultModel{"balanced"}))
	}},
	{route: "GET " + ws + "/audit", answer: Page[AuditEvent]{}, send: listing(func(c *Client) Collection[AuditEvent] { return c.Audit(slug) })},
	{route: "GET " + ws + "/telemetry", answer: samplesAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Telemetry(ctx, slug, 1))
	}},
	{route: "POST " + ws + computerPath + "/exec", send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Exec(ctx, slug, ExecRequest{[]string{text}, text, map[string]string{"A": text}, text, 7}, io.Discard, io.Discard))
	}},
	{route: "GET " + ws + computerPath + "/terminal", streams: true, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.OpenTerminal(ctx, slug, TerminalOptions{Columns: 90, Rows: 30, Cwd: text, ID: text, Position: 1}))
	}},
	{route: "GET " + profilePath, answer: Profile{}, send: func(ctx context.Context, c *Client) error { return errorOf(c.Profile(ctx)) }},
	{route: "PATCH " + profilePath, answer: Profile{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.ChangeProfile(ctx, ProfileChange{&text, &text}))
	}},
	{route: "GET " + apiKeysPath, answer: Page[APIKey]{}, send: listing((*Client).APIKeys)},
	{route: "POST " + apiKeysPath, answer: APIKeyCreated{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.CreateAPIKey(ctx, NewAPIKey{text, 1}))
	}},
	{route: "GET " + limitedKeysPath, answer: Page[LimitedKey]{}, send: listing((*Client).LimitedKeys)},
	{route: "POST " + limitedKeysPath, answer: LimitedKeyCreated{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.CreateLimitedKey(ctx, NewLimitedKey{text, 1, []string{"admin"}, []string{"acme"}, true}))
	}},
	{route: "DELETE " + apiKeysPath + "/{keyId}", answer: APIKeyRevoked{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RevokeAPIKey(ctx, "{keyId}"))
	}},
	{route: "GET " + grantsPath, answer: Page[OAuthGrant]{}, send: listing((*Client).OAuthGrants)},
	{route: "DELETE " + grantsPath + "/{grantId}", answer: OAuthGrantRevoked{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RevokeOAuthGrant(ctx, "{grantId}"))
	}},
	{route: "GET " + machinesPath, answer: Page[SyncMachine]{}, send: listing((*Client).SyncMachines)},
	{route: "POST " + machinesPath, answer: SyncMachine{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RegisterSyncMachine(ctx, NewSyncMachine{text, "ABCDEFG-ABCDEFG"}))
	}},
	{route: "DELETE " + machinesPath + "/{machineId}", answer: SyncMachineRemoved{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RemoveSyncMachine(ctx, "{machineId}"))
	}},
	{route: "GET /v1/user/invitations", answer: Page[ReceivedInvitation]{}, send: listing((*Client).ReceivedInvitations)},
	{route: "POST /v1/user/invitations/{inviteId}/accept", answer: InvitationAccepted{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.AcceptInvitation(ctx, "{inviteId}"))
	}},
	{route: "POST " + ws + "/invites", answer: Invitation{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Invite(ctx, slug, NewInvitation{"ada@example.org", "viewer"}))
	}},
	{route: "GET " + ws + "/invites", answer: Page[Invitation]{}, send: listing(func(c *Client) Collection[Invitation] { return c.Invitations(slug) })},
	{route: "GET " + ws + "/invite-deliveries", answer: Page[InvitationDelivery]{}, send: listing(func(c *Client) Collection[InvitationDelivery] {
		return c.InvitationDeliveries(slug)
	})},
	{route: "DELETE " + ws + "/invites/{inviteId}", answer: revokedAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RevokeInvitation(ctx, slug, "{inviteId}"))
	}},

	{route: "GET " + ws + activityPath, answer: Page[Row]{}, send: listing(func(c *Client) Collection[Row] {
		return c.FileHistory(slug, text, false)
	})},
	{route: "GET " + ws + activityPath + "/feed", answer: Page[Row]{}, send: listing(func(c *Client) Collection[Row] {
		return c.Feed(slug, FeedQuery{Reads: true, Newest: true, Path: text, Subtree: true})
	})},
	{route: "GET " + ws + activityPath + "/seen-by", answer: Page[Reader]{}, send: listing(func(c *Client) Collection[Reader] {
		return c.SeenBy(slug, text)
	})},
	{route: "GET " + ws + activityPath + "/latest-writers", answer: writersAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.LatestWriters(ctx, slug, "", text))
	}},
	{route: "GET " + ws + activityPath + "/events", streams: true, send: func(ctx context.Context, c *Client) error {
		for _, err := range c.Events(ctx, slug, EventsQuery{Cursor: "c", Reads: true}) {
			return err
		}
		return nil
	}},

	{route: "GET " + ws + sessionsPath, answer: Page[Session]{}, send: listing(func(c *Client) Collection[Session] { return c.Sessions(slug, sessionsQuery) })},
	{route: "POST " + ws + sessionsPath, answer: SessionStarted{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.StartSession(ctx, slug, newSession))
	}},
	{route: "POST " + ws + sessionsPath + "/wait", answer: SessionWaited{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.StartSessionAndWait(ctx, slug, newSession))
	}},
	{route: "POST " + ws + sessionsPath + "/uploads", answer: Upload{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.OfferUpload(ctx, slug, UploadOffer{text, 1, "text/plain"}))
	}},
	{route: "GET " + ws + sessionsPath + "/{sessionId}", answer: SessionDetail{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.Session(ctx, slug, "{sessionId}"))
	}},
	{route: "PATCH " + ws + sessionsPath + "/{sessionId}", answer: sessionAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.RenameSession(ctx, slug, "{sessionId}", SessionRename{text}))
	}},
	{route: http.MethodDelete + " " + ws + sessionsPath + "/{sessionId}", send: func(ctx context.Context, c *Client) error {
		return c.DeleteSession(ctx, slug, "{sessionId}")
	}},
	{route: "GET " + ws + sessionsPath + "/{sessionId}/history", answer: Page[SessionRow]{}, send: listing(func(c *Client) Collection[SessionRow] {
		return c.SessionHistory(slug, "{sessionId}", HistoryQuery{true, 1})
	})},
	{route: "GET " + ws + sessionsPath + "/{sessionId}/events", streams: true, send: func(ctx context.Context, c *Client) error {
		for _, err := range c.SessionEvents(ctx, slug, "{sessionId}", "c") {
			return err
		}
		return nil
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/messages", answer: SessionSent{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SendMessage(ctx, slug, "{sessionId}", sessionMessage))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/messages/wait", answer: SessionWaited{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SendMessageAndWait(ctx, slug, "{sessionId}", sessionMessage))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/answer", answer: SessionSent{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.AnswerSession(ctx, slug, "{sessionId}", SessionAnswer{text, text, requestID, text}))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/answer/wait", answer: SessionWaited{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.AnswerSessionAndWait(ctx, slug, "{sessionId}", SessionAnswer{text, text, requestID, text}))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/notes", answer: SessionSent{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.NoteSession(ctx, slug, "{sessionId}", SessionNote{text, requestID, text}))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/interrupt", answer: interruptedAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.InterruptSession(ctx, slug, "{sessionId}"))
	}},
	{route: "POST " + ws + sessionsPath + "/{sessionId}/cwd", answer: sessionAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.MoveSession(ctx, slug, "{sessionId}", SessionMove{text}))
	}},
	{route: "PUT " + ws + sessionsPath + "/{sessionId}/archive", answer: sessionAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.ArchiveSession(ctx, slug, "{sessionId}", SessionArchive{"global", true}))
	}},
	{route: "PATCH " + ws + sessionsPath + "/{sessionId}/audience", answer: sessionAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.ChangeAudience(ctx, slug, "{sessionId}", SessionAudienceChange{[]string{userID}, []string{text}, "specific"}))
	}},
	{route: "PUT " + ws + sessionsPath + "/{sessionId}/read", answer: sessionAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.MarkSessionRead(ctx, slug, "{sessionId}", SessionRead{1}))
	}},
	{route: "GET " + ws + sessionsPath + "/{parentSessionId}/sessions", answer: Page[Session]{}, send: listing(func(c *Client) Collection[Session] {
		return c.ChildSessions(slug, "{parentSessionId}", sessionsQuery)
	})},
	{route: "POST " + ws + sessionsPath + "/{parentSessionId}/sessions", answer: SessionStarted{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.StartChildSession(ctx, slug, "{parentSessionId}", newSession))
	}},
	{route: "POST " + ws + sessionsPath + "/{parentSessionId}/sessions/wait", answer: SessionWaited{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.StartChildSessionAndWait(ctx, slug, "{parentSessionId}", newSession))
	}},
	{route: "GET " + ws + "/agent/defaults/{owner}", answer: defaultAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.DefaultSession(ctx, slug, "{owner}"))
	}},
	{route: "PUT " + ws + "/agent/defaults/{owner}", answer: defaultAnswer{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.ChooseDefaultSession(ctx, slug, "{owner}", DefaultSessionChoice{}))
	}},
	{route: "GET " + ws + "/agent/defaults/{owner}/history", answer: Page[SessionRow]{}, send: listing(func(c *Client) Collection[SessionRow] {
		return c.DefaultSessionHistory(slug, "{owner}", HistoryQuery{true, 1})
	})},
	{route: "GET " + ws + "/agent/defaults/{owner}/events", streams: true, send: func(ctx context.Context, c *Client) error {
		for _, err := range c.DefaultSessionEvents(ctx, slug, "{owner}", "c") {
			return err
		}
		return nil
	}},
	{route: "POST " + ws + "/agent/defaults/{owner}/messages", answer: DefaultSessionSent{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SendDefaultMessage(ctx, slug, "{owner}", sessionMessage))
	}},
	{route: "POST " + ws + "/agent/defaults/{owner}/messages/wait", answer: SessionWaited{}, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.SendDefaultMessageAndWait(ctx, slug, "{owner}", sessionMessage))
	}},

	{route: "GET " + ws + "/drive/{path}", send: func(ctx context.Context, c *Client) error { return errorOf(c.ReadFile(ctx, slug, "{path}")) }},
	{route: "PUT " + ws + "/drive/{path}", once: true, send: func(ctx context.Context, c *Client) error {
		return errorOf(c.WriteFile(ctx, slug, "{path}", strings.NewReader(text)))
	}},
	{route: http.MethodDelete + " " + ws + "/drive/{path}", once: true, send: func(ctx context.Context, c *Client) error {
		return c.Delete(ctx, slug, "{path}")
	}},
}
