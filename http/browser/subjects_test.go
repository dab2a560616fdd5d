package browser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// An oldNode has users that were linked before subjects were claimed, and the rows and claims that were made. Each user takes some time.
type oldNode struct {
	users []string
	slow  time.Duration
	// broken is the user with links that cannot be read.
	broken string

	mu      sync.Mutex
	rows    map[string][]byte
	asked   []string
	claimed map[string]bool
}

func (n *oldNode) Owners(_ context.Context, _, after string, limit int) ([]string, error) {
	at, found := slices.BinarySearch(n.users, after)
	if found {
		at++
	}
	return n.users[at:min(at+limit, len(n.users))], nil
}

func (n *oldNode) Rows(_ context.Context, _ string, asked *wirev1.List) (*wirev1.Page, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if row, is := n.rows[asked.GetName()]; is {
		return &wirev1.Page{Rows: [][]byte{row}}, nil
	}
	return &wirev1.Page{}, nil
}

func (n *oldNode) Put(_ context.Context, _ string, rows ...entity.Row) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, row := range rows {
		content, err := proto.Marshal(row.Message)
		if err != nil {
			return err
		}
		n.rows[row.List] = content
	}
	return nil
}

func (n *oldNode) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *userv1.DescribeIdentities:
		select {
		case <-time.After(n.slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asked = append(n.asked, c.Identity)
		if c.Identity == n.broken {
			return nil, errors.New("no answer")
		}
		return &userv1.LinkedIdentities{Identities: []*userv1.LinkedIdentity{{Issuer: "https://id", Subject: c.Identity, LinkedAt: 1}}}, nil
	case *subjectv1.ClaimSubject:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.claimed[m.GetSubject()] = true
		return &wirev1.Done{}, nil
	}
	return nil, fmt.Errorf("unexpected %T", c.Message)
}

func (n *oldNode) Settle(context.Context, string, string) error { return nil }

func isIndexing(err error) bool {
	refusal, is := errors.AsType[*entity.Error](err)
	return is && refusal.Code == entity.Unavailable && refusal.RetryAfter > 0
}

// TestEarlierLinksAreClaimedInTheBackground has more users than one request can claim. A member fails half-way; a second member goes on
// where the first member was.
func TestEarlierLinksAreClaimedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &oldNode{slow: time.Second, rows: map[string][]byte{}, claimed: map[string]bool{}}
		for i := range 1000 {
			n.users = append(n.users, fmt.Sprintf("usr_%04d", i))
		}
		n.broken = n.users[550]
		s, err := server.New(server.Options{Asker: n, Secret: make([]byte, 32), Hosts: []string{"example.com"}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		request := func(one *subjects) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // the indexing that the request began goes on
			return one.index(s.Background(ctx, "req_1"))
		}
		first := &subjects{people: n}
		for range 2 {
			if err := request(first); !isIndexing(err) {
				t.Fatalf("a sign-in meanwhile: %v", err)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n.rows[indexedList] != nil || len(n.claimed) < 500 {
			t.Fatalf("%d are claimed", len(n.claimed))
		}
		n.broken, n.asked = "", nil
		second := &subjects{people: n} // of another member
		if err := request(second); !isIndexing(err) {
			t.Errorf("a sign-in at another member: %v", err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(n.claimed) != len(n.users) || slices.Min(n.asked) != n.users[500] {
			t.Errorf("%d of %d are claimed, the other member began with %s", len(n.claimed), len(n.users), slices.Min(n.asked))
		}
		n.asked = nil
		if err := errors.Join(request(second), request(first), request(&subjects{people: n})); err != nil || len(n.asked) > 0 {
			t.Errorf("after all are claimed: %v, %d users", err, len(n.asked))
		}
	})
}
