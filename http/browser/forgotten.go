package browser

import (
	"context"
	"hash/maphash"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
)

const (
	forgottenPath = signInPath + "/forgotten"
	// forgottenTime is how long a link is good that anybody may have mailed.
	resetLinkTime = 24 * time.Hour
	// sameTime is how long asking again has the same link mailed: who asks over and over makes none useless before.
	reuseTime = time.Hour
	// mostForgotten is how many may be on their way at a time.
	maxResets = 32
)

var (
	resetsPerNetwork = server.Allowance{Burst: 10, Interval: time.Minute}
	resetsPerAccount = server.Allowance{Burst: 3, Interval: 10 * time.Minute}
)

// Reminders mails links to who forgot their password. Whether an address is anybody's is found out behind the answer,
// which is the same for all. An address of the network is limited openly, a person's mail in silence; the memory is fixed.
type PasswordResets struct {
	networks server.Buckets[netip.Prefix]
	// People limits the mail to each person.
	Accounts server.Buckets[string]
	slots    chan struct{}
	seed     maphash.Seed
	// turns has a person's links made one after the other, so that who asks twice at once has the same one mailed.
	accountLocks [64]chan struct{}
	work         sync.WaitGroup
	// ctx ends what is under way.
	ctx  context.Context
	stop context.CancelFunc
}

func NewPasswordResets() *PasswordResets {
	f := &PasswordResets{seed: maphash.MakeSeed(), networks: server.NewBuckets[netip.Prefix](), Accounts: server.NewBuckets[string](), slots: make(chan struct{}, maxResets)}
	for i := range f.accountLocks {
		f.accountLocks[i] = make(chan struct{}, 1)
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// mayAsk counts somebody who asks, or refuses them. Errors: rate_limited.
func (f *PasswordResets) limitNetwork(now time.Time, source netip.Addr) error {
	if wait := f.networks.Take(now, server.Network(source), resetsPerNetwork); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many links were asked for", RetryAfter: wait}
	}
	return nil
}

// begin does work behind an answer; false: too much is under way.
func (f *PasswordResets) start(work func()) bool {
	select {
	case f.slots <- struct{}{}:
	default:
		return false
	}
	f.work.Go(func() {
		defer func() { <-f.slots }()
		work()
	})
	return true
}

// turn waits until nobody makes a link for a person, or until ctx ends; done lets the next one.
func (f *PasswordResets) lockAccount(ctx context.Context, userID string) (done func(), err error) {
	turn := f.accountLocks[maphash.Comparable(f.seed, userID)%uint64(len(f.accountLocks))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Wait waits until the work that has begun so far is done.
func (f *PasswordResets) Wait() { f.work.Wait() }

// Drain waits for what is under way. When ctx ends it cuts that off, and says so.
func (f *PasswordResets) drain(ctx context.Context) error {
	inTime := context.AfterFunc(ctx, f.stop)
	f.work.Wait()
	if !inTime() {
		return ctx.Err()
	}
	return nil
}

// forgottenPages has a link mailed to people who forgot their password.
type forgottenPages struct {
	links  *api.Links
	resets *PasswordResets
}

func (f forgottenPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, forgottenPath, server.ScopePublic, "Show the form for a forgotten password", f.show),
		page(http.MethodPost, forgottenPath, server.ScopePublic, "Have a link mailed that sets a password", f.request),
	}
}

func (f forgottenPages) show(*server.Call) (result, error) {
	if !f.links.SendsMail() {
		return result{}, server.ErrNotFound
	}
	return result{page: "forgotten", data: pages.Forgotten{}}, nil
}

// request answers before anybody looks whose the address is.
func (f forgottenPages) request(c *server.Call) (result, error) {
	if !f.links.SendsMail() {
		return result{}, server.ErrNotFound
	}
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	if err := f.resets.limitNetwork(c.Now(), c.Address()); err != nil {
		return result{}, err
	}
	if address, err := api.CanonicalEmail(form.Get("email")); err == nil {
		if !f.resets.start(func() { f.sendResetLink(c, address) }) {
			c.Log().Warn("too many links are being mailed, and one was left out")
		}
	}
	return result{page: "forgotten", data: pages.Forgotten{Requested: true}}, nil
}

// remind has a link mailed to the account that owns the address, if there is one.
func (f forgottenPages) sendResetLink(asking *server.Call, address string) {
	ctx, cancel := context.WithTimeout(f.resets.ctx, asking.RequestTime())
	defer cancel()
	c := asking.InBackground(ctx)
	defer func() {
		if p := recover(); p != nil { // here it would end the process
			c.Log().Error("asking for a password-reset link panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err := f.offerLinkTo(c, address); err != nil && !api.IsHidden(err) {
		c.Log().Error("a password-reset link was not asked for", "error", err)
	}
}

// askForLink has a link mailed to the account that owns an address, unless there is none or it was mailed enough of them.
func (f forgottenPages) offerLinkTo(c *server.Call, address string) error {
	userID, err := api.LookUpUserID(c, address)
	if err != nil || userID == "" {
		return err
	}
	person, err := api.DescribeUser(c, userID)
	if err != nil || person.GetDisabledAt() != 0 {
		return err
	}
	now := c.Now()
	if f.resets.Accounts.Take(now, userID, resetsPerAccount) > 0 {
		return nil
	}
	return f.offerLink(c, userID, now)
}

// mailLink has a link mailed that sets a person's password: the one that was mailed last, while it is young, or a
// new one.
func (f forgottenPages) offerLink(c *server.Call, userID string, now time.Time) error {
	done, err := f.resets.lockAccount(c.Context, userID)
	if err != nil {
		return err
	}
	defer done()
	password, err := api.DescribePassword(c, userID)
	if err != nil {
		return err
	}
	ends := password.GetLink().GetExpiresAt()
	secret := f.links.PasswordSecret(userID, password.GetHash(), ends)
	young := now.Add(resetLinkTime - reuseTime).UnixMilli() // one that is still good then was made less than sameTime ago
	if !user.LinkOpens(password.GetLink(), server.Hash(secret), young) {
		ends = now.Add(resetLinkTime).UnixMilli()
		secret = f.links.PasswordSecret(userID, password.GetHash(), ends)
	}
	_, err = api.OfferPasswordLinkWithSecret(c, userID, secret, ends, c.NewID("mail_"))
	return err
}
