package certificates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/certificates"
	"github.com/atelier-run/atelier/entity/entitytest"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
)

type store struct {
	testing.TB
	state  *certificatesv1.Store
	now    time.Time
	events []certificatesv1.Event
}

func newStore(t testing.TB) *store {
	return &store{TB: t, state: certificates.Rules.Zero(certificates.Identity), now: time.UnixMilli(1_800_000_000_000)}
}

// do decides a command and returns its reply and its error.
func (s *store) do(c certificatesv1.Command) (proto.Message, error) {
	s.Helper()
	call := entity.Call{Now: s.now, Identity: certificates.Identity, Principal: entity.Platform()}
	events, err := certificates.Decide(call, s.state, c)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		before := proto.Clone(s.state)
		next := certificates.Evolve(s.state, e)
		if !proto.Equal(before, s.state) {
			s.Fatalf("Evolve changed its argument for %T", e)
		}
		s.state = next
	}
	s.events = append(s.events, events...)
	return certificates.Reply(call, s.state, c, events), nil
}

func (s *store) acquire(name string, lease time.Duration) uint64 {
	s.Helper()
	reply, err := s.do(&certificatesv1.AcquireLock{Name: name, LeaseMs: lease.Milliseconds()})
	if err != nil {
		s.Fatal(err)
	}
	return reply.(*certificatesv1.Acquired).GetToken()
}

// write returns the error of a change with a fence.
func (s *store) write(lock string, token uint64) error {
	s.Helper()
	_, err := s.do(&certificatesv1.StoreFiles{
		Files: []*certificatesv1.File{{Name: "a/b"}}, Fences: []*certificatesv1.Fence{{Lock: lock, Token: token}},
	})
	return err
}

func TestLocks(t *testing.T) {
	s := newStore(t)
	a := s.acquire("name", time.Minute)
	if a == 0 || s.acquire("name", time.Minute) != 0 || s.acquire("other", time.Minute) <= a {
		t.Fatalf("locks: %v", s.state)
	}
	if err := s.write("name", a); err != nil {
		t.Errorf("a write of the holder: %v", err)
	}
	s.now = s.now.Add(50 * time.Second)
	if _, err := s.do(&certificatesv1.RenewLock{Name: "name", Token: a, LeaseMs: 60_000}); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	s.now = s.now.Add(59 * time.Second)
	if s.acquire("name", time.Minute) != 0 {
		t.Error("a renewed lock was acquired by another holder")
	}
	s.now = s.now.Add(time.Second)
	if err := s.write("name", a); err != nil {
		t.Errorf("a write after the lease, before another holder: %v", err)
	}
	b := s.acquire("name", time.Minute)
	if b <= a {
		t.Fatalf("the token %d follows %d", b, a)
	}
	for what, err := range map[string]error{
		"write": s.write("name", a), "without a token": s.write("name", 0), "of an unknown lock": s.write("unknown", a),
	} {
		if entitytest.Code(err) != entity.Forbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.do(&certificatesv1.RenewLock{Name: "name", Token: a, LeaseMs: 60_000}); entitytest.Code(err) != entity.Forbidden {
		t.Errorf("the renewal of a lost lock: %v", err)
	}
	if _, err := s.do(&certificatesv1.ReleaseLock{Name: "name", Token: a}); err != nil || s.write("name", b) != nil {
		t.Errorf("the release of a lost lock has an effect (%v)", err)
	}
	if _, err := s.do(&certificatesv1.ReleaseLock{Name: "name", Token: b}); err != nil || s.write("name", b) == nil {
		t.Errorf("a released lock is held (%v)", err)
	}
}

func TestLocksAreBounded(t *testing.T) {
	s := newStore(t)
	for i := range certificates.MaxLocks {
		s.acquire(fmt.Sprint(i), time.Minute)
	}
	if _, err := s.do(&certificatesv1.AcquireLock{Name: "more", LeaseMs: 1000}); entitytest.Code(err) != entity.LimitReached {
		t.Errorf("another lock: %v", err)
	}
	s.now = s.now.Add(time.Minute)
	s.acquire("more", time.Minute)
	if len(s.state.GetLocks()) != 1 {
		t.Errorf("%d locks are left", len(s.state.GetLocks()))
	}
}

func TestFiles(t *testing.T) {
	call := entity.Call{Now: time.UnixMilli(5)}
	store := &certificatesv1.StoreFiles{Files: []*certificatesv1.File{{Name: "a.crt", Sealed: []byte("x"), NotAfter: 9}, {Name: "a.key", ModifiedAt: 1}}}
	rows := certificates.Rows(call, nil, nil, store, nil)
	want := []entity.Row{
		{List: certificates.FileList, Key: "a.crt", Message: &certificatesv1.File{Name: "a.crt", Sealed: []byte("x"), NotAfter: 9, ModifiedAt: 5}},
		{List: certificates.ExpiryList, Key: "a.crt", Message: &certificatesv1.Expiry{NotAfter: 9}},
		{List: certificates.FileList, Key: "a.key", Message: &certificatesv1.File{Name: "a.key", ModifiedAt: 5}},
		{List: certificates.ExpiryList, Key: "a.key"},
	}
	same := func(a, b entity.Row) bool {
		return a.List == b.List && a.Key == b.Key && proto.Equal(a.Message, b.Message)
	}
	if !slices.EqualFunc(rows, want, same) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	removed := certificates.Rows(call, nil, nil, &certificatesv1.RemoveFiles{Names: []string{"a.crt"}}, nil)
	if !slices.EqualFunc(removed, []entity.Row{{List: certificates.FileList, Key: "a.crt"}, {List: certificates.ExpiryList, Key: "a.crt"}}, same) {
		t.Errorf("rows of a removal: %v", removed)
	}
}

func TestInvalidCommands(t *testing.T) {
	file := func(name string, size int) *certificatesv1.StoreFiles {
		return &certificatesv1.StoreFiles{Files: []*certificatesv1.File{{Name: name, Sealed: make([]byte, size)}}}
	}
	for what, c := range map[string]certificatesv1.Command{
		"no_files":        &certificatesv1.StoreFiles{},
		"many_files":      &certificatesv1.RemoveFiles{Names: slices.Repeat([]string{"a"}, certificates.MaxFiles+1)},
		"large_file":      file("a", certificates.MaxFileBytes+1),
		"empty_name":      file("", 1),
		"long_name":       file(strings.Repeat("a", certificates.MaxNameBytes+1), 1),
		"parent":          file("a/../b", 1),
		"empty_segment":   file("a//b", 1),
		"zero_byte":       file("a\x00b", 1),
		"short_lease":     &certificatesv1.AcquireLock{Name: "a", LeaseMs: 1},
		"long_lease":      &certificatesv1.RenewLock{Name: "a", Token: 1, LeaseMs: 1 << 40},
		"no_lock":         &certificatesv1.AcquireLock{LeaseMs: 1000},
		"no_authority":    &certificatesv1.TakeOrder{Orders: 1, PeriodMs: 1000},
		"no_orders":       &certificatesv1.TakeOrder{Authority: "a", PeriodMs: 1000},
		"too_many_orders": &certificatesv1.TakeOrder{Authority: "a", Orders: 1001, PeriodMs: 1000},
		"long_period":     &certificatesv1.TakeOrder{Authority: "a", Orders: 1, PeriodMs: 1 << 50},
	} {
		if _, err := newStore(t).do(c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBudget(t *testing.T) {
	s := newStore(t)
	take := func() int64 {
		t.Helper()
		reply, err := s.do(&certificatesv1.TakeOrder{Authority: "ca", Orders: 10, PeriodMs: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return reply.(*certificatesv1.Taken).GetRetryAt()
	}
	for i := range 10 {
		if take() != 0 {
			t.Fatalf("order %d was refused", i)
		}
	}
	if wait := take() - s.now.UnixMilli(); wait != 100 {
		t.Fatalf("the next order is in %d ms", wait)
	}
	s.now = s.now.Add(100 * time.Millisecond)
	if take() != 0 || take() == 0 {
		t.Error("want one order after the tenth part of the period")
	}
}

// TestClockSteps restarts the node with a clock that is right, after the clock was ahead or behind when a lock was acquired and a budget was
// used up. The next caller then waits no longer than one period.
func TestClockSteps(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, ahead := range map[string]time.Duration{"ahead": year, "right": 0, "behind": -year} {
		s := newStore(t)
		order := &certificatesv1.TakeOrder{Authority: "ca", Orders: 10, PeriodMs: time.Hour.Milliseconds()}
		take := func() (wait time.Duration) {
			t.Helper()
			reply, err := s.do(order)
			if err != nil {
				t.Fatal(err)
			}
			if at := reply.(*certificatesv1.Taken).GetRetryAt(); at != 0 {
				wait = time.UnixMilli(at).Sub(s.now)
			}
			return wait
		}
		s.now = s.now.Add(ahead)
		held := s.acquire("name", time.Minute)
		for take() == 0 {
		}
		s.now = s.now.Add(-ahead)
		if ahead != 0 {
			if wait := take(); wait != 0 {
				t.Errorf("%s: the next order is in %v", name, wait)
			}
			if s.acquire("name", time.Minute) == 0 || s.write("name", held) == nil {
				t.Errorf("%s: the lock is held", name)
			}
			continue
		}
		if wait := take(); wait != 6*time.Minute || s.acquire("name", time.Minute) != 0 || s.write("name", held) != nil {
			t.Errorf("%s: the next order is in %v, or the lock is free", name, wait)
		}
	}
	s := newStore(t)
	s.now = s.now.Add(year)
	held := s.acquire("name", time.Minute)
	s.now = s.now.Add(-year)
	if _, err := s.do(&certificatesv1.RenewLock{Name: "name", Token: held, LeaseMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	if s.acquire("name", time.Minute) != 0 {
		t.Error("a lock is free that its holder has renewed since the clock is right")
	}
}

// TestLaws checks that a lock has one holder with a lease that has not ended, that tokens increase, that a budget is never
// exceeded, and that replay equals the live state.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t)
		began, taken, last := s.now, 0, uint64(0)
		ends := map[uint64]time.Time{}
		for range rapid.IntRange(1, 50).Draw(rt, "commands") {
			s.now = s.now.Add(time.Duration(rapid.Int64Range(0, 2000).Draw(rt, "ms")) * time.Millisecond)
			token := rapid.Uint64Range(0, last+1).Draw(rt, "token")
			lease := rapid.Int64Range(1000, 5000).Draw(rt, "lease")
			switch rapid.IntRange(0, 4).Draw(rt, "command") {
			case 0:
				if got := s.acquire("name", time.Duration(lease)*time.Millisecond); got != 0 {
					if got <= last || ends[last].After(s.now) {
						rt.Fatalf("token %d was acquired while %d is held", got, last)
					}
					last = got
					ends[got] = s.now.Add(time.Duration(lease) * time.Millisecond)
				}
			case 1:
				if _, err := s.do(&certificatesv1.RenewLock{Name: "name", Token: token, LeaseMs: lease}); err == nil {
					if token != last {
						rt.Fatalf("the lost token %d was renewed", token)
					}
					ends[token] = time.UnixMilli(max(ends[token].UnixMilli(), s.now.UnixMilli()+lease))
				}
			case 2:
				if _, err := s.do(&certificatesv1.ReleaseLock{Name: "name", Token: token}); err != nil {
					rt.Fatal(err)
				}
				if token == last {
					ends[token] = time.Time{}
				}
			case 3:
				if s.write("name", token) == nil && token != last {
					rt.Fatalf("a write with the token %d, the last one is %d", token, last)
				}
			case 4:
				reply, err := s.do(&certificatesv1.TakeOrder{Authority: "ca", Orders: 3, PeriodMs: 3000})
				if err != nil {
					rt.Fatal(err)
				}
				if reply.(*certificatesv1.Taken).GetRetryAt() == 0 {
					taken++
				}
				if most := 3 + int(s.now.Sub(began)/time.Second) + 1; taken > most {
					rt.Fatalf("%d orders were taken, the budget is %d", taken, most)
				}
			}
		}
		replayed := certificates.Rules.Zero(certificates.Identity)
		for _, e := range s.events {
			replayed = certificates.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s.state) {
			rt.Fatalf("replayed %v, want %v", replayed, s.state)
		}
	})
}
