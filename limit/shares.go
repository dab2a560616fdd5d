package limit

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Errors of Shares.
var (
	// ErrFull is returned if no slot is free for a holder that may have one.
	ErrFull = errors.New("limit: no slot is free")
	// ErrShare is returned if the holder may have no further slot, whether one is free or not.
	ErrShare = errors.New("limit: the holder has its share of the slots")
)

const (
	// Elasticity is the number of common slots that a holder may have for each free one.
	Elasticity = 16
	// ReservedPart: one in ReservedPart slots is reserved for holders with few slots, or the few slots of leastHolders if that is more.
	ReservedPart = 8
	leastHolders = 16
	// smallPart: a holder has few slots while they are at most one in smallPart of all, or leastSmall where one in leastSmallPart of all is
	// more: a client needs several connections also on a node that has few.
	smallPart      = 256
	leastSmall     = 4
	leastSmallPart = 64
)

// Shares divides slots among the holders that want them, such as client addresses and users. A slot is taken before the resource that
// it stands for is allocated.
//
// One in eight slots, of a few hundred up to one in four, is reserved for holders with few slots. The other slots are common. A holder may
// take one while it has less than 16 times as many slots as common slots are free. One holder alone can therefore have four of five slots,
// of a few hundred two of three, and another holder still gets a part of the common slots at once, however long the first keeps its own. As
// slots are released, holders with many of them get none until holders with few have caught up (Choudhury and Hahne, "Dynamic Queue Length
// Thresholds for Shared-Memory Packet Switches", 1998). Several holders that take all they can get leave the reserve to all others: it has
// room for the few slots of at least 16 of them. The rule needs no timer and takes no slot away.
//
// The memory of Shares is bounded by the number of slots. It is safe for concurrent use.
type Shares[Holder comparable] struct {
	mu             sync.Mutex
	capacity, used int
	held           map[Holder]int
	refused        uint64
	// groupOf returns the group of a holder, if it has one; nil: none has. grouped has the slots of each group.
	groupOf func(Holder) (group Holder, has bool)
	grouped map[Holder]int
}

// NewShares returns slots that are all free. Without a positive capacity each slot is refused.
func NewShares[Holder comparable](capacity int) *Shares[Holder] {
	return &Shares[Holder]{capacity: capacity, held: map[Holder]int{}, grouped: map[Holder]int{}}
}

// NewGroupedShares is NewShares for holders that a client can easily have many of, such as networks within a larger network. The holders of
// a group together have at most the slots of one holder, but for the reserve: a group has SiteFactor times as much of the reserve.
func NewGroupedShares[Holder comparable](capacity int, groupOf func(Holder) (group Holder, has bool)) *Shares[Holder] {
	s := NewShares[Holder](capacity)
	s.groupOf = groupOf
	return s
}

// Acquire takes a slot for a holder, which must Release it. Errors: ErrFull, ErrShare.
func (s *Shares[Holder]) Acquire(h Holder) error { return s.AcquireMany(h, 1) }

// AcquireMany takes n slots for a holder, or none; the holder must release them. A holder without a slot may have all of them in any case
// if they are free. Errors: ErrFull, ErrShare.
func (s *Shares[Holder]) AcquireMany(h Holder, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(h, n); err != nil {
		s.refused++
		return err
	}
	s.take(h, n)
	return nil
}

// Move passes a slot of one holder on to another. If the other may have none, the slot stays where it is. Errors: ErrShare.
func (s *Shares[Holder]) Move(from, to Holder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == to {
		return nil
	}
	s.release(from, 1)
	if err := s.check(to, 1); err != nil { // the slot itself is free now
		s.take(from, 1)
		s.refused++
		return err
	}
	s.take(to, 1)
	return nil
}

// Release frees a slot of a holder.
func (s *Shares[Holder]) Release(h Holder) { s.ReleaseMany(h, 1) }

// ReleaseMany frees n slots of a holder.
func (s *Shares[Holder]) ReleaseMany(h Holder, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(h, n)
}

// Used returns the number of slots that are taken.
func (s *Shares[Holder]) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// check returns an error unless a holder may take n more slots. The caller holds mu.
func (s *Shares[Holder]) check(h Holder, n int) error {
	least := min(s.capacity/leastSmallPart, leastSmall)
	few := max(s.capacity/smallPart, least)
	common := s.capacity - max(s.capacity/ReservedPart, leastHolders*least) - s.used
	mayHave := func(held, few int) bool {
		isSmall := held == 0 || held+n <= few
		return isSmall || n <= common && held+n <= Elasticity*common
	}
	group, has := s.group(h)
	switch {
	case !mayHave(s.held[h], few) || has && !mayHave(s.grouped[group], SiteFactor*few):
		return ErrShare
	case s.used+n > s.capacity:
		return ErrFull
	}
	return nil
}

// group returns the group of a holder, if it has one.
func (s *Shares[Holder]) group(h Holder) (group Holder, has bool) {
	if s.groupOf == nil {
		return group, false
	}
	return s.groupOf(h)
}

// take takes n slots. The caller holds mu.
func (s *Shares[Holder]) take(h Holder, n int) {
	s.used += n
	s.held[h] += n
	if group, has := s.group(h); has {
		s.grouped[group] += n
	}
}

// release frees n slots. The caller holds mu.
func (s *Shares[Holder]) release(h Holder, n int) {
	s.used -= n
	if s.held[h] -= n; s.held[h] == 0 {
		delete(s.held, h)
	}
	if group, has := s.group(h); has {
		if s.grouped[group] -= n; s.grouped[group] == 0 {
			delete(s.grouped, group)
		}
	}
}

// Register registers the metrics of the slots. The label kind names the resource of the slots.
func (s *Shares[Holder]) Register(r prometheus.Registerer, kind string) error {
	labels := prometheus.Labels{"kind": kind}
	return errors.Join(
		r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atelier_limit_slots", Help: "Slots by what they are taken for.", ConstLabels: labels,
		}, func() float64 { return float64(s.capacity) })),
		r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atelier_limit_used_slots", Help: "Slots that are taken.", ConstLabels: labels,
		}, func() float64 { return float64(s.Used()) })),
		r.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "atelier_limit_refused_total", Help: "Refused slots: none was free, or the client or person had its share.", ConstLabels: labels,
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.refused)
		})),
	)
}
