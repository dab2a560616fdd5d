package actors_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// archive is a workspace kind with the list "summary", and the list "recent" of references to its rows. Editors see only the rows
// with the title "public". A filter selects the rows of an agent.
const archive = "archive"

func withArchives(b *bench) {
	visible := func(call entity.Call, row, filter []byte) (bool, error) {
		var stored sessionv1.SummaryRow
		var f sessionv1.Filter
		if err := proto.Unmarshal(row, &stored); err != nil {
			return false, err
		}
		if proto.Unmarshal(filter, &f) != nil {
			return false, entity.Errorf(entity.InvalidRequest, "the filter is invalid")
		}
		s := stored.GetSession()
		return (call.Role == workspacev1.Role_ROLE_OWNER || s.GetTitle() == "public") &&
			(f.GetAgentId() == "" || f.GetAgentId() == s.GetAgentId()), nil
	}
	match := func(row []byte, search string) bool {
		var stored sessionv1.SummaryRow
		return proto.Unmarshal(row, &stored) == nil && stored.GetSession().GetTitle() == search
	}
	b.extra = append(b.extra, entity.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
		Name: archive, Zero: workspace.Zero, Access: workspaceAccess, Check: workspace.Check, Role: workspace.Role,
		Decide: workspace.Decide, Evolve: workspace.Evolve, Reply: workspace.Reply,
		Lists: map[string]entity.List{
			"summary": {Visible: visible, Match: match},
			"recent": {Of: "summary", Visible: visible, Match: match, Key: func(row []byte) (string, error) {
				var ref sessionv1.Reference
				err := proto.Unmarshal(row, &ref)
				return ref.GetKey(), err
			}},
			"plain": {},
		},
	}.Kind())
}

// createArchive creates an archive with 20 summaries. Their references are in the opposite order under two prefixes. Every
// third summary is public, the odd summaries are of the agent "a". Two references have no row.
func (b *bench) createArchive() {
	b.t.Helper()
	ask := func(p *wirev1.Principal, m proto.Message) {
		b.mustAsk(entity.Command{Kind: archive, Identity: "ws_1", Principal: p, Message: m})
	}
	ask(entity.Platform(), &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	ask(person("usr_1"), &workspacev1.Invite{InvitationId: "inv_2", Email: "usr_2@example.com", Role: workspacev1.Role_ROLE_EDITOR,
		SecretSha256: make([]byte, 32), Inviter: &workspacev1.Person{UserId: "usr_1", Email: "usr_1@example.com"}})
	ask(entity.Platform(), &workspacev1.AcceptInvitation{InvitationId: "inv_2",
		Person: &workspacev1.Person{UserId: "usr_2", Email: "usr_2@example.com"}})
	var all []entity.Row
	for i := range 20 {
		s := &sessionv1.Session{Id: fmt.Sprintf("s%02d", i)}
		if i%3 == 0 {
			s.Title = "public"
		}
		if i%2 == 1 {
			s.AgentId = "a"
		}
		all = append(all, entity.Row{List: "summary", Key: s.GetId(), Message: &sessionv1.SummaryRow{Session: s}})
		key := fmt.Sprintf("%d/", i%2) + entity.DescendingKey(uint64(i))
		all = append(all, entity.Row{List: "recent", Key: key, Message: &sessionv1.Reference{Key: s.GetId()}})
	}
	for i := range uint64(2) {
		all = append(all, entity.Row{List: "recent", Key: "0/" + entity.DescendingKey(5+i), Message: &sessionv1.Reference{Key: "none"}})
	}
	if err := b.router.Put(b.t.Context(), "ws_1", all...); err != nil {
		b.t.Fatal(err)
	}
}

// summaries reads a list of the archive page by page.
func (b *bench) summaries(p *wirev1.Principal, l *wirev1.List) (ids []string) {
	b.t.Helper()
	for {
		m := b.mustAsk(entity.Command{Kind: archive, Identity: "ws_1", Principal: p, Message: l})
		page := m.(*wirev1.Page)
		for _, row := range page.GetRows() {
			var stored sessionv1.SummaryRow
			if err := proto.Unmarshal(row, &stored); err != nil {
				b.t.Fatal(err)
			}
			ids = append(ids, stored.GetSession().GetId())
		}
		if len(page.GetNext()) == 0 {
			return ids
		}
		l = proto.CloneOf(l)
		l.After = page.GetNext()
	}
}

// selected returns the ids of the summaries that a condition selects, descending.
func selected(condition func(i int) bool) (ids []string) {
	for i := 19; i >= 0; i-- {
		if condition(i) {
			ids = append(ids, fmt.Sprintf("s%02d", i))
		}
	}
	return ids
}

func TestFilteredLists(t *testing.T) {
	b := newBench(t, withArchives)
	b.createArchive()
	ofAgent, err := proto.Marshal(&sessionv1.Filter{AgentId: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int32{1, 3, 100} {
		for name, test := range map[string]struct {
			who  *wirev1.Principal
			list *wirev1.List
			want []string
		}{
			"references by prefix": {person("usr_1"), &wirev1.List{Name: "recent", Prefix: []byte("1/")},
				selected(func(i int) bool { return i%2 == 1 })},
			"references without a row": {person("usr_1"), &wirev1.List{Name: "recent", Prefix: []byte("0/")},
				selected(func(i int) bool { return i%2 == 0 && i != 6 })},
			"a prefix without rows": {person("usr_1"), &wirev1.List{Name: "recent", Prefix: []byte("2/")}, nil},
			"for an editor": {person("usr_2"), &wirev1.List{Name: "recent", Prefix: []byte("1/")},
				selected(func(i int) bool { return i%2 == 1 && i%3 == 0 })},
			"for the platform": {entity.Platform(), &wirev1.List{Name: "recent", Prefix: []byte("1/")},
				selected(func(i int) bool { return i%2 == 1 })},
			"searched": {person("usr_1"), &wirev1.List{Name: "recent", Prefix: []byte("0/"), Search: "public"},
				selected(func(i int) bool { return i%2 == 0 && i%3 == 0 && i != 6 })},
			"filtered": {person("usr_2"), &wirev1.List{Name: "recent", Filter: ofAgent},
				selected(func(i int) bool { return i%2 == 1 && i%3 == 0 })},
			"rows of the list itself": {person("usr_1"), &wirev1.List{Name: "summary", Prefix: []byte("s1"), Filter: ofAgent},
				[]string{"s11", "s13", "s15", "s17", "s19"}},
		} {
			l := proto.CloneOf(test.list)
			l.Limit = limit
			if got := b.summaries(test.who, l); !slices.Equal(got, test.want) {
				t.Errorf("%s, limit %d: %v, want %v", name, limit, got, test.want)
			}
		}
	}
	for name, l := range map[string]*wirev1.List{
		"an invalid filter":             {Name: "recent", Filter: []byte{0xff}},
		"a filter of a list without":    {Name: "plain", Filter: ofAgent},
		"a search in a list without it": {Name: "plain", Search: "x"},
	} {
		_, err := b.ask(entity.Command{Kind: archive, Identity: "ws_1", Principal: person("usr_1"), Message: l})
		if code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
