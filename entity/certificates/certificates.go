// Package certificates implements the rules of the store of certificates, with the accounts at their authorities, and of the locks
// and budgets of the members that use it. There is one store (Identity). Only the platform sends commands.
//
// Files are rows of FileList, encrypted by their sender. They have no events, because no state depends on them. Files that are
// stored by one command are replaced together or not at all.
//
// A lock is leased:
//
//	free ──AcquireLock──► held ──ReleaseLock, or the end of the lease and another AcquireLock──► free, or held by another
//	                       └─RenewLock: a later end of the lease
//
// Each acquisition has a greater token than all before it. A change of files names the locks that its sender holds, with their
// tokens (Fence), and is refused if one of them was lost: a member that was paused for longer than its lease cannot overwrite the
// files of its successor. A lock is not lost when its lease ends, but when another member then acquires a lock.
//
// A budget limits the orders at an authority over all members and names: a bucket of orders that is refilled at a constant rate
// (TakeOrder), as authorities limit them themselves.
package certificates

import (
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
)

// Identity is the identity of the store.
const Identity = "store"

// The lists of the store. Their keys are the names of files. ExpiryList has the files with certificates.
const (
	FileList   = "certificates.file"
	ExpiryList = "certificates.expiry"
)

// The bounds of the store.
const (
	// MaxFileBytes is the greatest size of an encrypted file, MaxFiles the greatest number of files in a command.
	MaxFileBytes = 256 << 10
	MaxFiles     = 64
	// MaxNameBytes is the greatest length of the names of files, locks and authorities.
	MaxNameBytes = 1024
	// MaxLocks is the greatest number of locks that are held at a time, MaxBudgets the greatest number of budgets.
	MaxLocks   = 1024
	MaxBudgets = 16
	// MinLease and MaxLease limit the lease of a lock.
	MinLease  = time.Second
	MaxLease  = 10 * time.Minute
	maxFences = 16
	maxOrders = 1_000_000
	maxPeriod = 31 * 24 * time.Hour
)

var (
	errLockLost = entity.Errorf(entity.Forbidden, "the lock was lost")
	errName     = entity.Errorf(entity.InvalidRequest, "a name must be a path of 1 to %d printable ASCII characters", MaxNameBytes)
	errFiles    = entity.Errorf(entity.InvalidRequest, "a change must have 1 to %d files of at most %d bytes and at most %d fences", MaxFiles, MaxFileBytes, maxFences)
	errLease    = entity.Errorf(entity.InvalidRequest, "a lease must be %s to %s", MinLease, MaxLease)
	errLocks    = entity.Errorf(entity.LimitReached, "more than %d locks are held", MaxLocks)
	errBudget   = entity.Errorf(entity.InvalidRequest, "a budget must have 1 to %d orders in at most %s", maxOrders, maxPeriod)
	errBudgets  = entity.Errorf(entity.LimitReached, "more than %d authorities have budgets", MaxBudgets)
)

// Kind describes the store to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of the store.
var Rules = entity.Rules[*certificatesv1.Store, certificatesv1.Command, certificatesv1.Event]{
	Name: entity.KindCertificates, Version: 2, Zero: func(string) *certificatesv1.Store { return &certificatesv1.Store{} },
	Decide: Decide, Evolve: Evolve, Reply: Reply, Rows: Rows, Lists: map[string]entity.List{FileList: {}, ExpiryList: {Most: 1000}},
}

// Decide turns a command into events. Errors: invalid_request, forbidden if a lock was lost, limit_reached.
func Decide(call entity.Call, s *certificatesv1.Store, c certificatesv1.Command) ([]certificatesv1.Event, error) {
	switch c := c.(type) {
	case *certificatesv1.StoreFiles:
		return nil, checkFiles(s, c)
	case *certificatesv1.RemoveFiles:
		return nil, checkRemoval(s, c)
	case *certificatesv1.AcquireLock:
		return acquire(call, s, c)
	case *certificatesv1.RenewLock:
		return renew(call, s, c)
	case *certificatesv1.ReleaseLock:
		if !holds(s, c.GetName(), c.GetToken()) {
			return nil, nil
		}
		return []certificatesv1.Event{&certificatesv1.LockReleased{Name: c.GetName()}}, nil
	case *certificatesv1.TakeOrder:
		return takeOrder(call, s, c)
	}
	return nil, entity.UnknownCommand(entity.KindCertificates, c)
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *certificatesv1.Store, e certificatesv1.Event) *certificatesv1.Store {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *certificatesv1.LockAcquired:
		next.LastToken = max(s.GetLastToken(), e.GetLock().GetToken())
		next.Locks = entity.With(locksAt(s, e.GetAt()), e.GetName(), e.GetLock())
	case *certificatesv1.LockReleased:
		next.Locks = entity.Without(s.GetLocks(), e.GetName())
	case *certificatesv1.OrderTaken:
		next.Budgets = entity.With(budgetsAt(s, e.GetAt()), e.GetAuthority(), e.GetBudget())
	}
	return next
}

// Reply returns the answer to a command, which is Acquired for locks, Taken for orders and the state for others.
func Reply(call entity.Call, s *certificatesv1.Store, c certificatesv1.Command, events []certificatesv1.Event) proto.Message {
	switch c := c.(type) {
	case *certificatesv1.AcquireLock:
		held := &certificatesv1.Acquired{ExpiresAt: s.GetLocks()[c.GetName()].GetExpiresAt()}
		if len(events) > 0 {
			held.Token = s.GetLocks()[c.GetName()].GetToken()
		}
		return held
	case *certificatesv1.RenewLock:
		return &certificatesv1.Acquired{Token: c.GetToken(), ExpiresAt: s.GetLocks()[c.GetName()].GetExpiresAt()}
	case *certificatesv1.TakeOrder:
		if len(events) > 0 {
			return &certificatesv1.Taken{}
		}
		return &certificatesv1.Taken{RetryAt: max(nextOrderAt(call, s, c), call.At()+1)}
	case *certificatesv1.StoreFiles, *certificatesv1.RemoveFiles, *certificatesv1.ReleaseLock:
	}
	return s
}

// Rows returns the rows of the files that a command stores or removes.
func Rows(call entity.Call, _, _ *certificatesv1.Store, c certificatesv1.Command, _ []certificatesv1.Event) []entity.Row {
	var rows []entity.Row
	switch c := c.(type) {
	case *certificatesv1.StoreFiles:
		for _, f := range c.GetFiles() {
			stored := entity.ShallowCopy(f)
			stored.ModifiedAt = call.At()
			expiry := entity.Row{List: ExpiryList, Key: f.GetName()}
			if f.GetNotAfter() != 0 {
				expiry.Message = &certificatesv1.Expiry{NotAfter: f.GetNotAfter()}
			}
			rows = append(rows, entity.Row{List: FileList, Key: f.GetName(), Message: stored}, expiry)
		}
	case *certificatesv1.RemoveFiles:
		for _, name := range c.GetNames() {
			rows = append(rows, entity.Row{List: FileList, Key: name}, entity.Row{List: ExpiryList, Key: name})
		}
	default:
	}
	return rows
}

func checkFiles(s *certificatesv1.Store, c *certificatesv1.StoreFiles) error {
	if len(c.GetFiles()) == 0 || len(c.GetFiles()) > MaxFiles {
		return errFiles
	}
	for _, f := range c.GetFiles() {
		if !IsName(f.GetName()) {
			return errName
		}
		if len(f.GetSealed()) > MaxFileBytes {
			return errFiles
		}
	}
	return checkFences(s, c.GetFences())
}

func checkRemoval(s *certificatesv1.Store, c *certificatesv1.RemoveFiles) error {
	if len(c.GetNames()) == 0 || len(c.GetNames()) > MaxFiles {
		return errFiles
	}
	for _, name := range c.GetNames() {
		if !IsName(name) {
			return errName
		}
	}
	return checkFences(s, c.GetFences())
}

// checkFences returns an error unless the sender holds all the locks.
func checkFences(s *certificatesv1.Store, fences []*certificatesv1.Fence) error {
	if len(fences) > maxFences {
		return errFiles
	}
	for _, f := range fences {
		if !holds(s, f.GetLock(), f.GetToken()) {
			return errLockLost
		}
	}
	return nil
}

func holds(s *certificatesv1.Store, lock string, token uint64) bool {
	return token != 0 && s.GetLocks()[lock].GetToken() == token
}

// IsName reports whether a text may be the name of a file or lock: segments of printable ASCII characters with slashes between
// them. No segment is empty, "." or "..".
func IsName(name string) bool {
	if !entity.IsPrintableASCII(name, MaxNameBytes) {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// acquire acquires a lock. It has no effect if another holder has it.
func acquire(call entity.Call, s *certificatesv1.Store, c *certificatesv1.AcquireLock) ([]certificatesv1.Event, error) {
	lease, err := leaseOf(c.GetLeaseMs())
	switch held := locksAt(s, call.At()); {
	case !IsName(c.GetName()):
		return nil, errName
	case err != nil:
		return nil, err
	case held[c.GetName()] != nil:
		return nil, nil
	case len(held) >= MaxLocks:
		return nil, errLocks
	}
	return []certificatesv1.Event{&certificatesv1.LockAcquired{Name: c.GetName(), At: call.At(), Lock: &certificatesv1.Lock{
		Token: s.GetLastToken() + 1, ExpiresAt: call.At() + lease,
	}}}, nil
}

// renew extends the lease of a lock. It has no effect if the lease ends later already.
func renew(call entity.Call, s *certificatesv1.Store, c *certificatesv1.RenewLock) ([]certificatesv1.Event, error) {
	lease, err := leaseOf(c.GetLeaseMs())
	switch {
	case err != nil:
		return nil, err
	case !holds(s, c.GetName(), c.GetToken()):
		return nil, errLockLost
	case locksAt(s, call.At())[c.GetName()].GetExpiresAt() >= call.At()+lease:
		return nil, nil
	}
	return []certificatesv1.Event{&certificatesv1.LockAcquired{Name: c.GetName(), At: call.At(), Lock: &certificatesv1.Lock{
		Token: c.GetToken(), ExpiresAt: call.At() + lease,
	}}}, nil
}

func leaseOf(ms int64) (int64, error) {
	if ms < MinLease.Milliseconds() || ms > MaxLease.Milliseconds() {
		return 0, errLease
	}
	return ms, nil
}

// locksAt returns the locks with leases that have not ended at a time. A lease that the clock has begun while it was ahead has ended.
func locksAt(s *certificatesv1.Store, at int64) map[string]*certificatesv1.Lock {
	held := maps.Clone(s.GetLocks())
	maps.DeleteFunc(held, func(_ string, l *certificatesv1.Lock) bool {
		return entity.HasPassed(l.GetExpiresAt()-MaxLease.Milliseconds(), at, MaxLease)
	})
	return held
}

// takeOrder takes an order from a budget. It has no effect if the bucket is empty.
func takeOrder(call entity.Call, s *certificatesv1.Store, c *certificatesv1.TakeOrder) ([]certificatesv1.Event, error) {
	switch {
	case !entity.IsPrintableASCII(c.GetAuthority(), MaxNameBytes):
		return nil, errName
	case c.GetOrders() == 0, c.GetOrders() > maxOrders, c.GetPeriodMs() < int64(c.GetOrders()), c.GetPeriodMs() > maxPeriod.Milliseconds():
		return nil, errBudget
	case call.At() < nextOrderAt(call, s, c):
		return nil, nil
	}
	budgets := budgetsAt(s, call.At())
	if budgets[c.GetAuthority()] == nil && len(budgets) >= MaxBudgets {
		return nil, errBudgets
	}
	return []certificatesv1.Event{&certificatesv1.OrderTaken{Authority: c.GetAuthority(), At: call.At(), Budget: &certificatesv1.Budget{
		FullAt: max(fullAt(call, s, c), call.At()) + perOrder(c),
	}}}, nil
}

// perOrder returns the time in which a bucket is refilled by one order, in milliseconds.
func perOrder(c *certificatesv1.TakeOrder) int64 {
	return c.GetPeriodMs() / max(int64(c.GetOrders()), 1)
}

// nextOrderAt returns the first time when the bucket has an order. An empty bucket is full after a period.
func nextOrderAt(call entity.Call, s *certificatesv1.Store, c *certificatesv1.TakeOrder) int64 {
	return fullAt(call, s, c) + perOrder(c) - c.GetPeriodMs()
}

// fullAt returns the time at which the bucket is full, and 0 if it is. A bucket is full if its last order was taken while the clock was
// ahead.
func fullAt(call entity.Call, s *certificatesv1.Store, c *certificatesv1.TakeOrder) int64 {
	at := s.GetBudgets()[c.GetAuthority()].GetFullAt()
	if period := time.Duration(c.GetPeriodMs()) * time.Millisecond; entity.HasPassed(at-c.GetPeriodMs(), call.At(), period) {
		return 0
	}
	return at
}

// budgetsAt returns the budgets that are not full at a time.
func budgetsAt(s *certificatesv1.Store, at int64) map[string]*certificatesv1.Budget {
	used := maps.Clone(s.GetBudgets())
	maps.DeleteFunc(used, func(_ string, b *certificatesv1.Budget) bool {
		return entity.HasPassed(b.GetFullAt()-maxPeriod.Milliseconds(), at, maxPeriod)
	})
	return used
}
