package browser

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// People lists the users of the installation and stores rows. It reads stored rows, and activates no entity.
type People interface {
	// Owners returns the ids of the entities that have rows in a list, in a stable order: at most limit of them, after the
	// id after. An empty result ends the list. Errors: *entity.Error.
	Owners(ctx context.Context, list, after string, limit int) ([]string, error)
	// Rows returns a page of the list of one entity. Errors: *entity.Error.
	Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error)
	// Put writes rows of the lists of one entity. Errors: *entity.Error.
	Put(ctx context.Context, owner string, rows ...entity.Row) error
}

// subjects claims free subjects of an OpenID Connect provider (package subject).
//
// Links that were made before subjects were claimed are claimed once, for all users, before the first free subject is
// claimed: such a subject may be linked to another user. That continues in the background after the request that began it, while
// further claims are unavailable. A row of cursorList records the users that are done, so that a later claim continues there if the
// node ends meanwhile, and a row of indexedList that all are. Several members may do it at the same time: a claim that was made has no
// effect.
//
// That is no leased task. A task belongs to one entity, but a free subject must wait for the links of all users; the rows are this barrier.
// Every step is a durable command that may be repeated, and the goroutine has no state that is missed after its end.
type subjects struct {
	// people is nil if there are no such links.
	people People

	// indexed is true when all links are claimed, and indexing has the work in the background.
	indexed  atomic.Bool
	indexing singleflight.Group
}

const (
	// indexedList is the list with the row that records that all earlier links are claimed, cursorList the list with the row of the
	// next page of users, and indexedOwner the owner of both.
	indexedList  = "subjects.indexed"
	cursorList   = "subjects.cursor"
	indexedOwner = "subjects"
	// indexPage is the number of users that are listed at once.
	indexPage = 100
	// indexTime limits the work in the background, and indexWait how long a claim waits for it.
	indexTime = 10 * time.Minute
	indexWait = 3 * time.Second
)

var errIndexing = &entity.Error{
	Code: entity.Unavailable, Message: "the identities of all accounts are being prepared after an upgrade; try again",
	RetryAfter: 5 * time.Second,
}

// claim is account.ClaimSubject, after the links of all users are claimed. Errors: errIndexing, the errors of account.ClaimSubject.
func (s *subjects) claim(c *server.Call, identity *userv1.LinkedIdentity, userID string) (owner string, err error) {
	if err := s.index(c); err != nil {
		return "", err
	}
	return account.ClaimSubject(c, identity, userID)
}

// index claims the subjects of all links, unless that has been done. It returns errIndexing if that takes longer than indexWait.
func (s *subjects) index(c *server.Call) error {
	if s.indexed.Load() || s.people == nil {
		return nil
	}
	indexing := s.indexing.DoChan("", func() (any, error) { return nil, s.indexInBackground(c) })
	timer := time.NewTimer(indexWait)
	defer timer.Stop()
	select {
	case result := <-indexing:
		return result.Err
	case <-timer.C:
		return errIndexing
	case <-c.Context.Done():
		return c.Context.Err()
	}
}

// indexInBackground is indexMissing for index. It goes on when the request has ended.
func (s *subjects) indexInBackground(asking *server.Call) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(asking.Context), indexTime)
	defer cancel()
	c := asking.InBackground(ctx)
	defer func() {
		if p := recover(); p != nil { // singleflight would end the process
			c.Log().Error("claiming the identities of all accounts panicked", "panic", p, "stack", string(debug.Stack()))
			err = errIndexing
		}
	}()
	if err := s.indexMissing(c); err != nil {
		c.Log().Warn("cannot claim the identities of all accounts; the next sign-in continues", "error", err)
		return err
	}
	s.indexed.Store(true)
	return nil
}

// indexMissing is indexAll, unless that has been done.
func (s *subjects) indexMissing(c *server.Call) error {
	done, err := s.people.Rows(c.Context, indexedOwner, &wirev1.List{Name: indexedList, Limit: 1})
	if err != nil || len(done.GetRows()) > 0 {
		return err
	}
	return s.indexAll(c)
}

func (s *subjects) indexAll(c *server.Call) error {
	after, err := s.readCursor(c)
	if err != nil {
		return err
	}
	for {
		page, err := s.people.Owners(c.Context, user.People, after, indexPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.people.Put(c.Context, indexedOwner, entity.Row{List: indexedList, Key: "done", Message: &wirev1.Done{}})
		}
		if err := service.ForEach(len(page), func(i int) error { return account.ClaimLinkedSubjects(c, page[i]) }); err != nil {
			return err
		}
		after = page[len(page)-1]
		next := &wirev1.List{Name: user.People, After: []byte(after), Limit: indexPage}
		if err := s.people.Put(c.Context, indexedOwner, entity.Row{List: cursorList, Key: "next", Message: next}); err != nil {
			return err
		}
	}
}

// readCursor returns the last user with claimed links.
func (s *subjects) readCursor(c *server.Call) (after string, err error) {
	stored, err := s.people.Rows(c.Context, indexedOwner, &wirev1.List{Name: cursorList, Limit: 1})
	if err != nil || len(stored.GetRows()) == 0 {
		return "", err
	}
	next := &wirev1.List{}
	if err := proto.Unmarshal(stored.GetRows()[0], next); err != nil {
		return "", err
	}
	return string(next.GetAfter()), nil
}
