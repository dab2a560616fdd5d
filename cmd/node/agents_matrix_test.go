package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner/tools"
)

// toolNeeds has, for each tool of the platform, the capability that the tool needs, which is the capability that the operation of the API
// needs, and arguments with which a caller that has the capability is not refused for lack of a capability. The tools that are not here
// concern only the turn of their caller, or only the caller.
var toolNeeds = map[string]struct {
	capability string
	arguments  fields
}{
	"start_session":   {entity.Sessions, fields{"prompt": "say Hello."}},
	"await_sessions":  {entity.Sessions, fields{"sessionIds": []string{"ses_01jd0000000000000000000009"}, "timeoutSeconds": 1}},
	"message_session": {entity.Sessions, fields{"sessionId": "ses_01jd0000000000000000000009", "text": "a"}},
	"read_session":    {entity.Sessions, fields{"sessionId": "ses_01jd0000000000000000000009"}},
	"list_sessions":   {entity.Sessions, fields{}},
	"read_activity":   {entity.FilesRead, fields{}},
	"last_writers":    {entity.FilesRead, fields{"names": []string{"a"}}},
	"read_file":       {entity.FilesRead, fields{"path": "a"}},
	"list_files":      {entity.FilesRead, fields{}},
	"write_file":      {entity.FilesWrite, fields{"path": "a", "text": "a"}},
	"list_apps":       {entity.Apps, fields{}},
	"register_app":    {entity.Apps, fields{"path": "nowhere", "slug": "site", "command": "true"}},
	"update_app":      {entity.Apps, fields{"app": "nowhere", "name": "a"}},
	"restart_app":     {entity.Apps, fields{"app": "nowhere"}},
	"read_app_logs":   {entity.Apps, fields{"app": "nowhere"}},
}

// freeTools are the tools that need no capability.
var freeTools = []string{"ask", "sleep_until", "report_progress", "list_workspaces"}

// TestToolsByGrants calls each tool of the platform as the turn of a session, as an app and as an OAuth client, with each capability
// alone and with all but one. Only a caller with the tool's capability is not refused.
func TestToolsByGrants(t *testing.T) {
	s := newAgentSite(t, func(o *Options) { o.HoldTurns = true })
	parent := s.startSession("say Hello.", nil)
	all := entity.AgentCapabilities()
	var sets [][]string
	for i, c := range all {
		sets = append(sets, []string{c}, slices.Delete(slices.Clone(all), i, i+1))
	}
	for _, kind := range []wirev1.CredentialKind{
		wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, wirev1.CredentialKind_CREDENTIAL_KIND_APP, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH,
	} {
		for _, granted := range append(sets, all, nil) {
			s.expectTools(kind, parent, granted)
		}
	}
}

// expectTools calls each tool as a caller of a kind with grants.
func (s *agentSite) expectTools(kind wirev1.CredentialKind, parent string, granted []string) {
	s.Helper()
	caller := tools.Caller{Principal: &wirev1.Principal{
		Kind: kind, CredentialId: "app_01jd0000000000000000000001", UserId: s.userID, WorkspaceId: s.workspaceID, Grants: granted,
	}}
	if kind == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION {
		caller = tools.SessionCaller(s.workspaceID, parent, s.userID, granted, &sessionv1.Participant{UserId: s.userID}, nil)
	}
	here, there := mcp.NewInMemoryTransports()
	_, err := s.serving.Load().tools.Connect(s.Context(), there, caller)
	s.check(err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(s.Context(), here, nil)
	s.check(err)
	defer client.Close()
	offered, err := client.ListTools(s.Context(), nil)
	s.check(err)
	for _, tool := range offered.Tools {
		need, known := toolNeeds[tool.Name]
		if !known {
			if !slices.Contains(freeTools, tool.Name) {
				s.Errorf("the test does not know the tool %s", tool.Name)
			}
			continue
		}
		in := fields{}
		for name, value := range need.arguments {
			in[name] = value
		}
		if caller.Session == nil {
			in["workspace"] = "acme"
		}
		result, err := client.CallTool(s.Context(), &mcp.CallToolParams{Name: tool.Name, Arguments: in})
		s.check(err)
		text := result.Content[0].(*mcp.TextContent).Text
		isRefused := result.IsError && strings.HasPrefix(text, string(entity.Forbidden))
		if has := slices.Contains(granted, need.capability); isRefused == has {
			s.Errorf("%s as %s with %q: %s", tool.Name, kind, granted, text)
		}
		if tool.Name == "start_session" && !result.IsError {
			s.expectChild(result, granted)
		}
	}
}

// expectChild fails the test unless the turn of a session that was started has exactly the grants of its sender.
func (s *agentSite) expectChild(started *mcp.CallToolResult, granted []string) {
	s.Helper()
	id := started.StructuredContent.(map[string]any)["sessionId"].(string)
	reply, err := s.serving.Load().Router.Ask(s.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(s.workspaceID, id), Principal: entity.Platform(), Message: &sessionv1.DescribeSession{},
	})
	s.check(err)
	turn := reply.(*sessionv1.Description).GetSession().GetTurn()
	if got := session.Granted(turn.GetBounds()); turn == nil || !slices.Equal(got, granted) {
		s.Errorf("a sender with %q has started a turn with %q", granted, got)
	}
}
