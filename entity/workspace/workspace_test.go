package workspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/workspace"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const acme = "ws_1"

var noon = time.UnixMilli(1_800_000_000_000)

func callBy(p *wirev1.Principal) entity.Call {
	return entity.Call{Now: noon, Identity: acme, Principal: p}
}

var rules = entitytest.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{Decide: workspace.Rules.AuthorizeAndDecide, Evolve: workspace.Evolve}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(
	t rapid.TB, call entity.Call, s *workspacev1.Workspace, c workspacev1.Command,
) (*workspacev1.Workspace, []workspacev1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	if reply := workspace.Reply(call, s, c, events); reply == nil {
		t.Fatalf("%T: no reply", c)
	}
	return s, events, nil
}

// peopled returns a workspace with a member of each role.
func peopled() *workspacev1.Workspace {
	member := func(id string, role workspacev1.Role) *workspacev1.Membership {
		return &workspacev1.Membership{UserId: id, Role: role, JoinedAt: 1}
	}
	return &workspacev1.Workspace{
		Id: acme, Slug: "acme", Name: "Acme", BillingUserId: "owner", CreatedAt: 1,
		Status: workspacev1.Status_STATUS_ACTIVE,
		Members: map[string]*workspacev1.Membership{
			"owner":  member("owner", workspacev1.Role_ROLE_OWNER),
			"editor": member("editor", workspacev1.Role_ROLE_EDITOR),
			"viewer": member("viewer", workspacev1.Role_ROLE_VIEWER),
		},
	}
}

// fullWorkspace returns a workspace with every field set.
func fullWorkspace() *workspacev1.Workspace {
	s := peopled()
	s.Suspension = &workspacev1.Suspension{At: 2, Reason: "rent"}
	s.ServicingChangedAt = 2
	s.DefaultTier = workspacev1.Tier_TIER_FRONTIER
	s.Invitations = map[string]*workspacev1.Invitation{"inv_1": {Id: "inv_1", Email: "new@example.com", Position: 2}}
	s.Anchors = map[string]*workspacev1.Anchor{"anc_1": {Id: "anc_1", Path: "app", Position: 3}}
	s.LockRemovals = map[string]*workspacev1.LockRemoval{"former": {UserId: "former", TaskId: "locks.4", RequestedAt: 4}}
	s.AnchorCheck = 5
	s.DefaultSessions = map[string]string{"root": "ses_1"}
	s.AgentUsage = &workspacev1.AgentUsage{Day: 1, Used: &workspacev1.AgentWork{InputTokens: 1}}
	s.SessionStop = &workspacev1.SessionStop{TaskId: "stop.6", RequestedAt: 2, Code: "workspace_suspended"}
	return s
}

func commands() *rapid.Generator[workspacev1.Command] {
	return rapid.Custom(func(t *rapid.T) workspacev1.Command {
		switch rapid.IntRange(0, 3).Draw(t, "command") {
		case 0:
			return &workspacev1.CreateWorkspace{
				Slug:      "acme",
				Name:      rapid.StringN(0, 3, -1).Draw(t, "name"),
				CreatorId: rapid.SampledFrom([]string{"owner", "owner", "editor", ""}).Draw(t, "creator"),
			}
		case 1:
			return &workspacev1.ReportReady{}
		case 2:
			return &workspacev1.Authorize{Any: reads(capabilities.Draw(t, "capability")).Any}
		default:
			return &workspacev1.DescribeWorkspace{}
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := workspace.Zero(acme)
		var log []workspacev1.Event
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			p := rapid.OneOf(rapid.Just(entity.Platform()), principals()).Draw(t, "principal")
			next, events, _ := execute(t, callBy(p), s, commands().Draw(t, "command"))
			if !entity.IsPlatform(p) && len(events) > 0 {
				t.Fatalf("%v changed the workspace: %v", p, events)
			}
			if owner := s.GetBillingUserId(); owner != "" && next.GetBillingUserId() != owner {
				t.Fatalf("%s's became %s's", owner, next.GetBillingUserId())
			}
			s, log = next, append(log, events...)
		}
		replayed := workspace.Zero(acme)
		for _, e := range log {
			replayed = workspace.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func TestCreate(t *testing.T) {
	create := &workspacev1.CreateWorkspace{
		Slug: "acme", Name: "Acme", CreatorId: "usr_1", CreatorEmail: "ann@example.com", CreatorName: "Ann",
	}
	s, _, err := execute(t, callBy(entity.Platform()), workspace.Zero(acme), create)
	if err != nil {
		t.Fatal(err)
	}
	want := &workspacev1.Workspace{
		Id: acme, Slug: "acme", Name: "Acme", BillingUserId: "usr_1", CreatedAt: noon.UnixMilli(),
		Status: workspacev1.Status_STATUS_PROVISIONING,
		Members: map[string]*workspacev1.Membership{
			"usr_1": {
				UserId: "usr_1", Role: workspacev1.Role_ROLE_OWNER, JoinedAt: noon.UnixMilli(),
				Email: "ann@example.com", Name: "Ann", Position: 1, Billing: true,
			},
		},
	}
	if !proto.Equal(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
	for name, c := range map[string]*workspacev1.CreateWorkspace{
		"creatorId": {Slug: "acme", Name: "Acme"},
		"name":      {Slug: "acme", CreatorId: "usr_1"},
	} {
		_, _, err := execute(t, callBy(entity.Platform()), workspace.Zero(acme), c)
		if entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), name) {
			t.Errorf("no %s: %v", name, err)
		}
	}
	for _, c := range []workspacev1.Command{create, &workspacev1.ReportReady{}} {
		if _, _, err := execute(t, callBy(person("owner")), peopled(), c); entitytest.Code(err) != entity.Forbidden {
			t.Errorf("an owner's %T: %v", c, err)
		}
	}
}

func TestReportReady(t *testing.T) {
	const (
		none         = workspacev1.Status_STATUS_UNSPECIFIED
		provisioning = workspacev1.Status_STATUS_PROVISIONING
		active       = workspacev1.Status_STATUS_ACTIVE
		unhealthy    = workspacev1.Status_STATUS_UNHEALTHY
		archived     = workspacev1.Status_STATUS_ARCHIVED
		retired      = workspacev1.Status_STATUS_RETIRED
		deleted      = workspacev1.Status_STATUS_DELETED
	)
	for from, to := range map[workspacev1.Status]workspacev1.Status{
		none: none, provisioning: active, active: active, unhealthy: active,
		archived: archived, retired: retired, deleted: deleted,
	} {
		s := peopled()
		s.Status = from
		s, _, err := execute(t, callBy(entity.Platform()), s, &workspacev1.ReportReady{})
		if s.GetStatus() != to || (entitytest.Code(err) == entity.NotFound) != (from == none) {
			t.Errorf("from %v: %v, %v, want %v", from, s.GetStatus(), err, to)
		}
	}
}

func TestDescribe(t *testing.T) {
	for who, role := range map[string]workspacev1.Role{
		"owner":  workspacev1.Role_ROLE_OWNER,
		"viewer": workspacev1.Role_ROLE_VIEWER,
	} {
		s := fullWorkspace()
		reply := workspace.Reply(callBy(person(who)), s, &workspacev1.DescribeWorkspace{}, nil).(*workspacev1.Description)
		if reply.GetRole() != role || !slices.Equal(reply.GetCapabilities(), entity.Capabilities(person(who), role)) {
			t.Errorf("%s: %v", who, reply)
		}
		want := fullWorkspace()
		want.Members, want.Invitations, want.Anchors = nil, nil, nil
		want.LockRemovals, want.AnchorCheck, want.SessionStop = nil, 0, nil
		want.DefaultSessions, want.AgentUsage = nil, nil
		if !proto.Equal(reply.GetWorkspace(), want) || !proto.Equal(s, fullWorkspace()) {
			t.Errorf("%s sees %v of %v", who, reply.GetWorkspace(), s)
		}
	}
}

func TestEvolveKeepsOtherFields(t *testing.T) {
	s := fullWorkspace()
	fields := s.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !s.ProtoReflect().Has(fields.Get(i)) {
			t.Fatalf("the sample lacks %s", fields.Get(i).FullName())
		}
	}
	if next := workspace.Evolve(s, &workspacev1.WorkspaceReady{At: 1}); !proto.Equal(next, s) {
		t.Errorf("active again: %v", next)
	}
}
