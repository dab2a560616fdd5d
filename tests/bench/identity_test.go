package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	api "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// BenchmarkMembers requests the same pages of workspaces with a hundred and with ten thousand members, in turns: a page of
// fifty members at the start and in the middle, and a search for a name that the second and the last member have. For the
// search it reports the time of one member.
func BenchmarkMembers(b *testing.B) {
	sizes := []int{100, 10_000}
	n := newNation(b)
	questions := map[int]map[string]string{}
	for _, members := range sizes {
		slug := fmt.Sprint("members-", members)
		n.found(slug, members)
		path := "/v1/ws/" + slug + "/members?limit=50"
		questions[members] = map[string]string{
			"first": path, "middle": path + "&cursor=" + n.cursor(path, members/100), "search": path + "&search=twin",
		}
	}
	for _, question := range []string{"first", "middle", "search"} {
		found := map[string]int{"first": 50, "middle": 50, "search": 2}[question]
		b.Run(question, func(b *testing.B) {
			took := map[int][]time.Duration{}
			for b.Loop() {
				for turn := range Turns * len(sizes) {
					members := sizes[turn%len(sizes)]
					for range 64 {
						took[members] = append(took[members], n.readPages(question == "search", questions[members][question], found))
					}
				}
			}
			reportSizes(b, sizes, took, func(members int) float64 {
				if question == "search" { // the search reads every member
					return float64(members)
				}
				return 1
			})
		})
	}
}

// BenchmarkWhoami requests whoami for people with ten and with a thousand workspaces, in turns, and reports the time of one
// workspace.
func BenchmarkWhoami(b *testing.B) {
	sizes := []int{10, 1000}
	n := newNation(b)
	keys := map[int]string{}
	for _, workspaces := range sizes {
		keys[workspaces] = n.person(fmt.Sprintf("owner-of-%d@example.com", workspaces))
		n.together(workspaces, func(i int) error {
			body := fmt.Sprintf(`{"slug":"place-%d-of-%d","name":"Place"}`, i, workspaces)
			return send(n.Node.Server, "/v1/workspaces", keys[workspaces], body, &struct{}{})
		})
	}
	took := map[int][]time.Duration{}
	for b.Loop() {
		for turn := range Turns * len(sizes) {
			workspaces := sizes[turn%len(sizes)]
			for range 3 + 200/workspaces {
				n.Key = keys[workspaces]
				took[workspaces] = append(took[workspaces], n.ask("/v1/whoami", new(struct{ Workspaces []struct{ ID string } })))
			}
		}
	}
	reportSizes(b, sizes, took, func(workspaces int) float64 { return float64(workspaces) })
}

// reportSizes reports the median time for each size, divided by of(size), and its ratio to that for the first size.
func reportSizes(b *testing.B, sizes []int, took map[int][]time.Duration, of func(size int) float64) {
	b.ReportMetric(0, "ns/op")
	for _, size := range sizes {
		b.ReportMetric(1000*micros(took[size])/of(size), fmt.Sprintf("at-%d-ns", size))
	}
	first, last := sizes[0], sizes[len(sizes)-1]
	b.ReportMetric(micros(took[last])/of(last)/(micros(took[first])/of(first)), fmt.Sprintf("of-%d-at-%d", first, last))
}

// A nation is a member with a clock that the benchmark advances, because a workspace may send a limited number of invitations a
// month.
type nation struct {
	*Member
	b     testing.TB
	ahead atomic.Int64
}

func newNation(b testing.TB) *nation {
	n := &nation{b: b}
	started, err := node.Start(context.Background(), node.Options{
		Dir: Disk(b), Clock: func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		HTTP: api.Options{Options: server.Options{Hosts: []string{"example.com"}, Limits: server.Limits{Rate: -1, AddressRate: -1}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	n.Member = &Member{Node: started, Slug: "bench", served: make(chan error, 1)}
	b.Cleanup(func() {
		if err := n.Stop(); err != nil {
			b.Error(err)
		}
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { n.served <- started.Server.Serve(l) }()
	if err := n.enrol(); err != nil {
		b.Fatal(err)
	}
	return n
}

func (n *nation) person(email string) (key string) {
	var made struct{ Key string }
	if err := send(n.Node.Server.Admin(), "/admin/users", "", fmt.Sprintf(`{"email":%q,"name":"Owner"}`, email), &made); err != nil {
		n.b.Fatal(err)
	}
	return made.Key
}

// together calls do n times, some of the calls at a time.
func (n *nation) together(times int, do func(i int) error) {
	const atOnce = 32
	var next atomic.Int64
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(times); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					n.b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	if n.b.Failed() {
		n.b.FailNow()
	}
}

// found creates a workspace with a number of members, including its creator. The second and the last have the same name.
func (n *nation) found(slug string, members int) {
	var made struct{ WorkspaceID string }
	if err := send(n.Node.Server, "/v1/workspaces", n.Key, fmt.Sprintf(`{"slug":%q,"name":"Members"}`, slug), &made); err != nil {
		n.b.Fatal(err)
	}
	const atMost = 4000 // the limit of invitations a month
	n.join(slug, made.WorkspaceID, 1, 2, "Twin")
	for from := 2; from < members-1; from += atMost {
		n.ahead.Add(int64(31 * 24 * time.Hour))
		n.join(slug, made.WorkspaceID, from, min(from+atMost, members-1), "Person")
	}
	n.join(slug, made.WorkspaceID, members-1, members, "Twin")
	for round := 0; round < 4; { // chains have several steps
		if err := n.Node.Router.SettleAll(context.Background(), n.Node.Router.Partition(made.WorkspaceID)); err == nil {
			round++
		}
	}
}

// join creates people and adds them to the workspace by invitations.
func (n *nation) join(slug, workspace string, from, to int, name string) {
	n.together(to-from, func(i int) error {
		i += from
		person := &workspacev1.Person{
			UserId: fmt.Sprint("usr_", slug, "-", i), Email: fmt.Sprintf("%d@%s.example.com", i, slug), Name: name,
		}
		invitation := fmt.Sprintf("inv_%d", i)
		for _, c := range []entity.Command{
			{Kind: entity.KindUser, Identity: person.UserId, Message: &userv1.CreateUser{Email: person.Email, Name: name}},
			{Kind: entity.KindWorkspace, Identity: workspace, Message: &workspacev1.Invite{
				InvitationId: invitation, Email: person.Email, Role: workspacev1.Role_ROLE_EDITOR,
			}},
			{Kind: entity.KindWorkspace, Identity: workspace, Message: &workspacev1.AcceptInvitation{
				InvitationId: invitation, Person: person,
			}},
		} {
			if err := n.command(c); err != nil {
				return fmt.Errorf("%T: %w", c.Message, err)
			}
		}
		return nil
	})
}

func (n *nation) command(c entity.Command) error {
	c.Principal = entity.Platform()
	_, err := n.Node.Router.Ask(context.Background(), c)
	return err
}

type listPage struct {
	Items      []json.RawMessage
	NextCursor *string
}

// ask requests a page and returns the time that it took.
func (n *nation) ask(path string, into any) time.Duration {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+n.Key)
	w := httptest.NewRecorder()
	began := time.Now()
	n.Node.Server.ServeHTTP(w, r)
	took := time.Since(began)
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
		n.b.Fatalf("%s: %d %s %v", path, w.Code, w.Body, err)
	}
	return took
}

// readPages requests one page, or all pages, and fails unless they have all members.
func (n *nation) readPages(whole bool, path string, members int) (took time.Duration) {
	for at := path; ; {
		var page listPage
		took += n.ask(at, &page)
		members -= len(page.Items)
		if !whole || page.NextCursor == nil {
			if members != 0 {
				n.b.Fatalf("%d members are missing from %s", members, path)
			}
			return took
		}
		at = path + "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

// cursor returns the cursor after a number of pages.
func (n *nation) cursor(path string, pages int) string {
	cursor := ""
	for at := path; pages > 0; pages-- {
		var page listPage
		n.ask(at, &page)
		if len(page.Items) != 50 || page.NextCursor == nil {
			n.b.Fatalf("%d members on a page of %s", len(page.Items), path)
		}
		cursor = url.QueryEscape(*page.NextCursor)
		at = path + "&cursor=" + cursor
	}
	return cursor
}
