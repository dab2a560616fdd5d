package workspace_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var capabilities = rapid.SampledFrom([]string{
	"", entity.Admin, entity.FilesRead, entity.FilesWrite, entity.Memory, entity.Sessions, entity.Agents, entity.Services,
	entity.Integrations, entity.Apps, entity.Share, entity.Publish, entity.Members, "files:*", "no such",
})

func reads(capability string) entity.Need {
	if capability == "" {
		return entity.Need{}
	}
	return entity.Reads(capability)
}

func person(id string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: id}
}

func principals() *rapid.Generator[*wirev1.Principal] {
	return rapid.Custom(func(t *rapid.T) *wirev1.Principal {
		return &wirev1.Principal{
			Kind:         wirev1.CredentialKind(rapid.Int32Range(0, 9).Draw(t, "kind")),
			UserId:       rapid.SampledFrom([]string{"owner", "editor", "viewer", "stranger", ""}).Draw(t, "person"),
			WorkspaceId:  rapid.SampledFrom([]string{"", acme, "ws_2"}).Draw(t, "bound to"),
			Grants:       rapid.SliceOfN(capabilities, 0, 4).Draw(t, "grants"),
			WorkspaceIds: rapid.SampledFrom([][]string{nil, {acme}, {"ws_2"}, {"ws_2", acme}}).Draw(t, "limited to"),
			ReadOnly:     rapid.Bool().Draw(t, "read only"),
		}
	})
}

// authorize returns the reply of the workspace to Authorize, or its refusal.
func authorize(call entity.Call, s *workspacev1.Workspace, need entity.Need) (*workspacev1.Authorized, error) {
	c := &workspacev1.Authorize{Any: need.Any, Changes: need.Changes}
	if _, err := workspace.Rules.AuthorizeAndDecide(call, s, c); err != nil {
		return nil, err
	}
	return workspace.Reply(call, s, c, nil).(*workspacev1.Authorized), nil
}

func TestCheckAgreesWithAuthorize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call, capability := callBy(principals().Draw(t, "principal")), capabilities.Draw(t, "capability")
		s := rapid.SampledFrom([]*workspacev1.Workspace{peopled(), workspace.Zero(acme)}).Draw(t, "workspace")
		err := workspace.Check(call, s, reads(capability))
		if entity.IsPlatform(call.Principal) { // authorized for every command without Check
			return
		}
		access, refused := authorize(call, s, reads(capability))
		if !errors.Is(err, refused) || (err == nil) != (access != nil) {
			t.Fatalf("Check returns %v, Authorize %v and %v", err, access, refused)
		}
		all, outside := authorize(call, s, entity.Need{})
		granted := outside == nil && (capability == "" || slices.Contains(all.GetCapabilities(), capability))
		if granted != (err == nil) {
			t.Fatalf("Check returns %v for %q, although the capabilities are %v", err, capability, all)
		}
		if !slices.IsSorted(all.GetCapabilities()) {
			t.Fatalf("the capabilities are not sorted: %v", all)
		}
	})
}

func TestOutsidersGetNotFound(t *testing.T) {
	unknown := workspace.Check(callBy(person("owner")), workspace.Zero(acme), entity.Reads(entity.Admin))
	if entitytest.Code(unknown) != entity.NotFound {
		t.Fatal(unknown)
	}
	vm := wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM
	for name, p := range map[string]*wirev1.Principal{
		"no principal":            nil,
		"no kind":                 {UserId: "owner"},
		"a kind of the future":    {Kind: 99, UserId: "owner"},
		"a stranger":              person("stranger"),
		"no user id":              person(""),
		"bound elsewhere":         {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "owner", WorkspaceId: "ws_2", Grants: []string{entity.FilesRead}},
		"another's computer":      {Kind: vm, UserId: "owner", WorkspaceId: "ws_2"},
		"an unbound computer":     {Kind: vm, UserId: "owner"},
		"an unbound OAuth key":    {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "owner", Grants: []string{entity.FilesRead}},
		"an unbound app":          {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "owner", Grants: []string{entity.FilesRead}},
		"a stranger's OAuth key":  {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "stranger", Grants: []string{entity.FilesRead}},
		"a person bound elsewise": {Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "owner", WorkspaceId: "ws_2"},
	} {
		for _, c := range []workspacev1.Command{
			&workspacev1.Authorize{}, &workspacev1.Authorize{Any: []string{entity.FilesRead}}, &workspacev1.DescribeWorkspace{},
		} {
			if _, err := workspace.Rules.AuthorizeAndDecide(callBy(p), peopled(), c); !errors.Is(err, unknown) {
				t.Errorf("%s, %T: %v", name, c, err)
			}
		}
	}
}

// TestLimitedKeys compares each limited key of each member with the capabilities that its limits and the role of the member allow.
func TestLimitedKeys(t *testing.T) {
	roles := map[string]workspacev1.Role{
		"owner": workspacev1.Role_ROLE_OWNER, "editor": workspacev1.Role_ROLE_EDITOR, "viewer": workspacev1.Role_ROLE_VIEWER,
	}
	rapid.Check(t, func(t *rapid.T) {
		p := principals().Draw(t, "principal")
		p.Kind, p.WorkspaceId = wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, ""
		role := roles[p.GetUserId()]
		if p.GetReadOnly() && role != 0 {
			role = workspacev1.Role_ROLE_VIEWER
		}
		need := entity.Need{Any: []string{rapid.SampledFrom(entity.AllCapabilities()).Draw(t, "capability")}}
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 1:
			need.Changes = true
		case 2:
			need.Personal = true
		}
		reaches := len(p.GetWorkspaceIds()) == 0 || slices.Contains(p.GetWorkspaceIds(), acme)
		want := entity.Code("")
		switch ofRole := entity.Capabilities(unlimited, role); {
		case role == 0 || !reaches:
			want = entity.NotFound
		case !slices.Contains(p.GetGrants(), need.Any[0]), !slices.Contains(ofRole, need.Any[0]), need.Changes && role == workspacev1.Role_ROLE_VIEWER,
			p.GetReadOnly() && (need.Changes || need.Personal):
			want = entity.Forbidden
		}
		if got := entitytest.Code(workspace.Check(callBy(p), peopled(), need)); got != want {
			t.Fatalf("%v: %q, want %q", need, got, want)
		}
	})
}

var unlimited = person("owner")

func TestCapabilities(t *testing.T) {
	const (
		owner, editor, viewer = workspacev1.Role_ROLE_OWNER, workspacev1.Role_ROLE_EDITOR, workspacev1.Role_ROLE_VIEWER
		app, oauth            = wirev1.CredentialKind_CREDENTIAL_KIND_APP, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH
	)
	grants := []string{entity.Admin, entity.FilesWrite, entity.FilesRead}
	for name, test := range map[string]struct {
		who    *wirev1.Principal
		role   workspacev1.Role
		may    []string
		mayNot []string
	}{
		"platform": {entity.Platform(), owner, []string{entity.Admin, entity.FilesWrite}, nil},
		"owner":    {person("owner"), owner, []string{entity.Admin, entity.Members}, nil},
		"editor":   {person("editor"), editor, []string{entity.Members, entity.FilesWrite}, []string{entity.Admin}},
		"viewer":   {person("viewer"), viewer, []string{entity.FilesRead, entity.Apps}, []string{entity.FilesWrite, entity.Members}},
		"computer": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, WorkspaceId: acme}, editor,
			[]string{entity.FilesWrite, entity.Members}, []string{entity.Admin},
		},
		"owner's app": {
			&wirev1.Principal{Kind: app, UserId: "owner", WorkspaceId: acme, Grants: grants}, owner,
			[]string{entity.FilesRead, entity.FilesWrite}, []string{entity.Admin, entity.Sessions},
		},
		"owner's client": {
			&wirev1.Principal{Kind: oauth, UserId: "owner", WorkspaceId: acme, Grants: grants}, owner,
			[]string{entity.FilesRead, entity.Admin}, []string{entity.Sessions},
		},
		"viewer's client": {
			&wirev1.Principal{Kind: oauth, UserId: "viewer", WorkspaceId: acme, Grants: grants}, viewer,
			[]string{entity.FilesRead}, []string{entity.Admin, entity.FilesWrite, entity.Apps},
		},
	} {
		access, err := authorize(callBy(test.who), peopled(), entity.Need{})
		if err != nil || access.GetRole() != test.role {
			t.Errorf("%s: %v, %v", name, access, err)
		}
		for _, capability := range test.may {
			if err := workspace.Check(callBy(test.who), peopled(), reads(capability)); err != nil {
				t.Errorf("%s, %s: %v", name, capability, err)
			}
		}
		for _, capability := range test.mayNot {
			if err := workspace.Check(callBy(test.who), peopled(), reads(capability)); entitytest.Code(err) != entity.Forbidden {
				t.Errorf("%s, %s: %v", name, capability, err)
			}
		}
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	s := peopled()
	for _, kind := range []wirev1.CredentialKind{
		wirev1.CredentialKind_CREDENTIAL_KIND_USER, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
	} {
		call := callBy(&wirev1.Principal{Kind: kind, UserId: "owner", Grants: []string{entity.FilesRead}})
		need := entity.Reads(entity.FilesRead)
		if n := testing.AllocsPerRun(100, func() { _ = workspace.Check(call, s, need) }); n != 0 {
			t.Errorf("%v: %v allocations", kind, n)
		}
	}
}
