package limit_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/limit"
)

// fill takes slots for a holder until one is refused, and returns their number.
func fill(s *limit.Shares[string], holder string) int {
	for n := 0; ; n++ {
		if s.Acquire(holder) != nil {
			return n
		}
	}
}

// Many slots at a time are shared as single slots, and a holder without slots gets as many as are free.
func TestSharesOfManySlots(t *testing.T) {
	const slots, many = 900, 40
	s := limit.NewShares[string](slots)
	alone := 0
	for s.AcquireMany("greedy", many) == nil {
		alone += many
	}
	if alone < slots*3/4 || alone > slots*7/8 || s.Used() != alone {
		t.Fatalf("alone a holder has %d of %d slots", alone, slots)
	}
	if err := s.AcquireMany("greedy", many); !errors.Is(err, limit.ErrShare) {
		t.Errorf("beyond the share: %v", err)
	}
	if err := s.AcquireMany("late", slots-alone); err != nil {
		t.Errorf("all that is free, for a holder that has none: %v", err)
	}
	if err := s.AcquireMany("third", 1); !errors.Is(err, limit.ErrFull) {
		t.Errorf("beyond all slots: %v", err)
	}
	s.ReleaseMany("greedy", alone)
	s.ReleaseMany("late", slots-alone)
	if s.Used() != 0 {
		t.Errorf("%d slots are taken in the end", s.Used())
	}
}

// The networks of one site share the slots of one holder, and leave room to others.
func TestNetworksOfOneSite(t *testing.T) {
	const slots = 900
	s := limit.NewGroupedShares(slots, limit.Site)
	network := func(site, n int) netip.Prefix {
		return limit.Network(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", site, n)))
	}
	taken := 0
	for n := range slots {
		if s.Acquire(network(1, n)) == nil {
			taken++
		}
	}
	if taken < slots*4/5 || taken > slots*7/8 {
		t.Errorf("the networks of one site have %d of %d slots", taken, slots)
	}
	for _, other := range []string{"2001:db8:2::1", "192.0.2.1"} {
		for range 3 {
			if err := s.Acquire(limit.Network(netip.MustParseAddr(other))); err != nil {
				t.Errorf("%s: %v", other, err)
			}
		}
	}
	for n := range slots {
		if taken > 0 {
			taken--
			s.Release(network(1, n))
		}
	}
	if err := s.Acquire(network(1, 0)); err != nil || s.Used() != 7 {
		t.Errorf("after the release: %v, %d slots are taken", err, s.Used())
	}
}

func TestSharesAreElastic(t *testing.T) {
	const slots = 900
	s := limit.NewShares[string](slots)
	alone := fill(s, "greedy")
	if alone < slots*4/5 || alone > slots*7/8 {
		t.Fatalf("alone a holder has %d of %d slots", alone, slots)
	}
	if err := s.Acquire("greedy"); !errors.Is(err, limit.ErrShare) {
		t.Errorf("beyond the share: %v", err)
	}
	if late := fill(s, "late"); late < slots/25 {
		t.Errorf("beside it another one has %d at once", late)
	}
	// Both take the slots that become free, the greedy holder first.
	held := map[string]int{"greedy": alone, "late": s.Used() - alone}
	for range 10 * slots {
		s.Release("greedy")
		held["greedy"]--
		for _, h := range []string{"greedy", "late"} {
			if s.Acquire(h) == nil {
				held[h]++
			}
		}
	}
	if held["late"] < slots/3 {
		t.Errorf("in the end the holders have %v", held)
	}
}

func TestSharesKeepSlotsForNewHolders(t *testing.T) {
	s := limit.NewShares[int](1000)
	for holder := range 30 {
		for s.Acquire(holder) == nil {
		}
	}
	if err := s.Acquire(-1); err != nil {
		t.Errorf("beside 30 greedy holders: %v", err)
	}
}

// A client of a node with few slots gets the slots that it needs beside many others that take all they can get at the same time. Beside
// others that took the slots earlier, no slot is free, and the client is not refused for its share.
func TestSharesKeepSeveralSlots(t *testing.T) {
	const slots, holders, newcomers, needed = 289, 17, 3, 4
	together, before := limit.NewShares[int](slots), limit.NewShares[int](slots)
	for range slots {
		for holder := range holders {
			_ = together.Acquire(holder)
		}
	}
	for holder := range holders {
		for before.Acquire(holder) == nil {
		}
	}
	for newcomer := range newcomers {
		for n := range needed {
			if err := together.Acquire(-1 - newcomer); err != nil {
				t.Errorf("slot %d of newcomer %d: %v", n, newcomer, err)
			}
			if err := before.Acquire(-1 - newcomer); err != nil && !errors.Is(err, limit.ErrFull) {
				t.Errorf("slot %d of late newcomer %d: %v", n, newcomer, err)
			}
		}
	}
}

func TestSmallShares(t *testing.T) {
	for slots, want := range map[int]int{-1: 0, 0: 0, 1: 1, 7: 7, 8: 7} {
		s := limit.NewShares[string](slots)
		if n := fill(s, "a"); n != want {
			t.Errorf("%d of %d slots", n, slots)
		}
		if err := s.Acquire("b"); (err == nil) != (slots == 8) || err != nil && !errors.Is(err, limit.ErrFull) {
			t.Errorf("of %d slots: %v", slots, err)
		}
	}
}

func TestMoveSlot(t *testing.T) {
	s := limit.NewShares[string](90)
	full := fill(s, "user")
	if err := s.Acquire("address"); err != nil {
		t.Fatal(err)
	}
	if err := s.Move("address", "user"); !errors.Is(err, limit.ErrShare) || s.Used() != full+1 {
		t.Errorf("%v, %d used", err, s.Used())
	}
	if err := s.Move("address", "other"); err != nil || s.Used() != full+1 {
		t.Errorf("%v, %d used", err, s.Used())
	}
	s.Release("other")
	for range full {
		s.Release("user")
	}
	if s.Used() != 0 || fill(s, "address") != full {
		t.Errorf("%d used", s.Used())
	}
}

// The number of used slots is the sum over the holders, and never above the capacity.
func TestSharesCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
		s, held, sum := limit.NewShares[int](capacity), map[int]int{}, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			from, to := rapid.IntRange(0, 3).Draw(t, "from"), rapid.IntRange(0, 3).Draw(t, "to")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				if s.Acquire(from) == nil {
					held[from]++
					sum++
				} else if sum < capacity && held[from] == 0 {
					t.Fatal("a holder without slots was refused a free one")
				}
			case 1:
				if held[from] > 0 {
					s.Release(from)
					held[from]--
					sum--
				}
			case 2:
				if held[from] > 0 && s.Move(from, to) == nil {
					held[from]--
					held[to]++
				}
			}
			if s.Used() != sum || sum > capacity {
				t.Fatalf("%d of %d slots are used, and %d held", s.Used(), capacity, sum)
			}
		}
	})
}

// TestRefusalsOfUsedSlots refuses further slots while none is free: to a holder with its share because of that, and to one with few
// slots because none is free, so that the caller frees a slot for the latter alone.
func TestRefusalsOfUsedSlots(t *testing.T) {
	s := limit.NewShares[string](16)
	for s.Acquire("many") == nil {
	}
	for i := 0; s.Used() < 16; i++ {
		if err := s.Acquire(fmt.Sprint("few", i)); err != nil {
			t.Fatal(err)
		}
	}
	if many, none := s.Acquire("many"), s.Acquire("none"); !errors.Is(many, limit.ErrShare) || !errors.Is(none, limit.ErrFull) {
		t.Errorf("%v, %v", many, none)
	}
}
