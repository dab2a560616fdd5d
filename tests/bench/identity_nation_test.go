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

// nation is a member whose clock can be moved on: a workspace makes only so many invitations a month.
type nation struct {
	*Member
	b     testing.TB
	ahead atomic.Int64
}

func newNation(b testing.TB) *nation {
	n := &nation{b: b}
	started, err := node.Start(context.Background(), node.Options{
		Dir: Disk(b), Clock: func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		HTTP: api.Options{Options: server.Options{Limits: server.Limits{Rate: -1, AddressRate: -1}}},
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

// together does something n times, some at a time.
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

// settle makes a workspace with that many members, its founder one of them. The second and the last are twins by name.
func (n *nation) settle(slug string, members int) {
	var made struct{ WorkspaceID string }
	if err := send(n.Node.Server, "/v1/workspaces", n.Key, fmt.Sprintf(`{"slug":%q,"name":"Members"}`, slug), &made); err != nil {
		n.b.Fatal(err)
	}
	const atMost = 4000 // invitations a month
	n.join(slug, made.WorkspaceID, 1, 2, "Twin")
	for from := 2; from < members-1; from += atMost {
		n.ahead.Add(int64(31 * 24 * time.Hour))
		n.join(slug, made.WorkspaceID, from, min(from+atMost, members-1), "Person")
	}
	n.join(slug, made.WorkspaceID, members-1, members, "Twin")
	for settled := 0; settled < 4; { // chains have several steps, and much to do
		if err := n.Node.Router.SettleAll(context.Background(), n.Node.Router.Partition(made.WorkspaceID)); err == nil {
			settled++
		}
	}
}

// join makes people, whom the platform invites and whose invitations it accepts.
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

// ask gets a page and tells how long that took.
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

// walk asks for one page, or for all of them, on which there must be so many members.
func (n *nation) walk(whole bool, path string, members int) (took time.Duration) {
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

// cursor is where the pages before end.
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
