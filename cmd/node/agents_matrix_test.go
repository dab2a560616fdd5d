package node

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service"
)

// toolNeeds has, for each tool of the platform, the capability that the tool needs, which is the capability that the operation of the API
// needs, and arguments such that a caller with the capability is not refused for lack of a capability. The tools that are not here
// concern only the turn of their caller, or only the caller.
var toolNeeds = map[string]struct {
	capability string
	changes    bool
	arguments  fields
}{
	"start_session":   {entity.Sessions, true, fields{"prompt": "say Hello."}},
	"await_sessions":  {entity.Sessions, false, fields{"sessionIds": []string{"ses_01jd0000000000000000000009"}, "timeoutSeconds": 1}},
	"message_session": {entity.Sessions, true, fields{"sessionId": "ses_01jd0000000000000000000009", "text": "a"}},
	"read_session":    {entity.Sessions, false, fields{"sessionId": "ses_01jd0000000000000000000009"}},
	"list_sessions":   {entity.Sessions, false, fields{}},
	"read_activity":   {entity.FilesRead, false, fields{}},
	"last_writers":    {entity.FilesRead, false, fields{"names": []string{"a"}}},
	"read_file":       {entity.FilesRead, false, fields{"path": "a"}},
	"list_files":      {entity.FilesRead, false, fields{}},
	"write_file":      {entity.FilesWrite, true, fields{"path": "a", "text": "a"}},
	"list_apps":       {entity.Apps, false, fields{}},
	"register_app":    {entity.Apps, true, fields{"path": "nowhere", "slug": "site", "command": "true"}},
	"update_app":      {entity.Apps, true, fields{"app": "nowhere", "name": "a"}},
	"restart_app":     {entity.Apps, true, fields{"app": "nowhere"}},
	"read_app_logs":   {entity.Apps, true, fields{"app": "nowhere"}},
}

// freeTools are the tools that need no capability.
var freeTools = []string{"ask", "sleep_until", "report_progress", "list_workspaces"}

// credentialKind is a row of the matrix.
type credentialKind struct {
	kind wirev1.CredentialKind
	// hasGrants: the grants of the credential limit it, and not the role alone.
	hasGrants bool
	// isBound: the credential is of one workspace.
	isBound bool
	// readOnly: the credential is a limited key that only reads.
	readOnly bool
}

// credentialKinds has a row for each kind of credential of a person, an app, an agent or a computer.
var credentialKinds = []credentialKind{
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, isBound: true},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, hasGrants: true},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, hasGrants: true, readOnly: true},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, hasGrants: true, isBound: true},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, hasGrants: true, isBound: true},
	{kind: wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, hasGrants: true, isBound: true},
}

// TestToolsByGrants is the matrix of capabilities, kinds of credentials, and what an agent can do with them: it calls each tool of the
// platform with each kind of credential, with each capability alone, with all but one, with all and with none. Only a caller with the
// tool's capability is not refused; a session that it starts has exactly the caller's capabilities; and an app that it registers gets
// no scope that the caller lacks, and no command unless the caller has what a process has. A kind that is not in the table fails the test.
func TestToolsByGrants(t *testing.T) {
	for value, name := range wirev1.CredentialKind_name {
		kind := wirev1.CredentialKind(value)
		isKnown := slices.ContainsFunc(credentialKinds, func(c credentialKind) bool { return c.kind == kind })
		if !isKnown && kind > wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM {
			t.Errorf("the test does not know the kind %s", name)
		}
	}
	s := newAgentSite(t, func(o *Options) { o.HoldTurns, o.HoldApps = true, true })
	s.must(http.StatusCreated, s.request("MKCOL", "/drive/taken", nil), nil)
	parent := s.startSession("say Hello.", nil)
	owner := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: s.userID}
	registered, _ := s.connect(tools.Caller{Caller: service.Caller{Principal: owner}}).call("register_app", takenApp)
	if registered.IsError {
		t.Fatal(registered.Content[0])
	}
	all := entity.AgentCapabilities()
	sets := [][]string{all, nil}
	for i, c := range all {
		sets = append(sets, []string{c}, slices.Delete(slices.Clone(all), i, i+1))
	}
	for _, c := range credentialKinds {
		if !c.hasGrants {
			s.expectTools(c, parent, nil)
			continue
		}
		for _, granted := range sets {
			s.expectTools(c, parent, granted)
		}
	}
}

// takenApp registers an app. After the first time it is refused for its slug, and before that for scopes that the caller lacks.
var takenApp = fields{"path": "taken", "slug": "taken", "command": "true", "timeoutSeconds": 1}

// A toolClient calls tools as one caller.
type toolClient struct {
	*agentSite
	caller  tools.Caller
	session *mcp.ClientSession
}

func (s *agentSite) connect(caller tools.Caller) toolClient {
	s.Helper()
	here, there := mcp.NewInMemoryTransports()
	_, err := s.serving.Load().tools.Connect(s.Context(), there, caller)
	s.check(err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(s.Context(), here, nil)
	s.check(err)
	s.Cleanup(func() { session.Close() })
	return toolClient{s, caller, session}
}

// call calls a tool, and reports whether it is forbidden.
func (c toolClient) call(tool string, arguments fields) (result *mcp.CallToolResult, isForbidden bool) {
	c.Helper()
	in := maps.Clone(arguments)
	if c.caller.Session == nil {
		in["workspace"] = "acme"
	}
	result, err := c.session.CallTool(c.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	c.check(err)
	return result, result.IsError && strings.HasPrefix(result.Content[0].(*mcp.TextContent).Text, string(entity.Forbidden))
}

// capabilities returns the capabilities that an agent of an owner's credential with grants has.
func (c credentialKind) capabilities(granted []string) []string {
	switch {
	case !c.hasGrants:
		return entity.AgentCapabilities()
	case c.readOnly:
		return slices.DeleteFunc(slices.Clone(granted), func(one string) bool {
			return !slices.Contains([]string{entity.Apps, entity.FilesRead, entity.Sessions}, one)
		})
	}
	return granted
}

// expectTools calls each tool as a caller with a credential that has grants.
func (s *agentSite) expectTools(c credentialKind, parent string, granted []string) {
	s.Helper()
	p := &wirev1.Principal{Kind: c.kind, CredentialId: "app_01jd0000000000000000000001", UserId: s.userID, Grants: granted, ReadOnly: c.readOnly}
	if c.isBound {
		p.WorkspaceId = s.workspaceID
	}
	if c.kind == wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY {
		p.WorkspaceIds = []string{"ws_01jd0000000000000000000001", s.workspaceID}
	}
	caller := tools.Caller{Caller: service.Caller{Principal: p}}
	if c.kind == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION {
		caller = tools.SessionCaller(s.workspaceID, parent, s.userID, granted, &sessionv1.Participant{UserId: s.userID}, nil)
	}
	client := s.connect(caller)
	offered, err := client.session.ListTools(s.Context(), nil)
	s.check(err)
	has := c.capabilities(granted)
	for _, tool := range offered.Tools {
		need, known := toolNeeds[tool.Name]
		if !known {
			if !slices.Contains(freeTools, tool.Name) {
				s.Errorf("the test does not know the tool %s", tool.Name)
			}
			continue
		}
		arguments := need.arguments
		if tool.Name == "message_session" && c.readOnly { // a session that does not exist is not found
			arguments = fields{"sessionId": parent, "text": "a"}
		}
		result, isForbidden := client.call(tool.Name, arguments)
		switch isAllowed := slices.Contains(has, need.capability); {
		case isAllowed && c.readOnly && need.changes && !result.IsError, isAllowed && !c.readOnly && isForbidden, !isAllowed && !isForbidden:
			s.Errorf("%s as %s with %q, read only: %v: %v", tool.Name, c.kind, granted, c.readOnly, result.Content[0])
		}
		if tool.Name == "start_session" && !result.IsError {
			s.expectChild(result, has)
		}
	}
	if !slices.Contains(has, entity.Apps) || c.readOnly {
		return
	}
	hasProcesses := len(entity.MissingForProcesses(has)) == 0
	for _, scope := range entity.AgentCapabilities() {
		in := maps.Clone(takenApp)
		in["apiScopes"] = []string{scope}
		result, isForbidden := client.call("register_app", in)
		if mayRegister := hasProcesses && slices.Contains(has, scope); !result.IsError || isForbidden == mayRegister {
			s.Errorf("an app with %s as %s with %q: %v", scope, c.kind, granted, result.Content[0])
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
