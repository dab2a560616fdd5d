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
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/limit"
	"github.com/atelier-run/atelier/service/account"
)

const (
	forgottenPath = signInPath + "/forgotten"
	// maxResets bounds the number of requests that are processed at a time.
	maxResets = 32
)

var (
	resetsPerNetwork = limit.Allowance{Burst: 10, Interval: time.Minute}
	resetsPerAccount = limit.Allowance{Burst: 3, Interval: 10 * time.Minute}
)

// PasswordResets mails links to people who forgot their password. It looks up the account after the response, which is the
// same for all email addresses. The limit for a network refuses requests; the limit for an account drops them silently. Its
// memory is fixed.
type PasswordResets struct {
	networks limit.ClientBuckets
	// Accounts limits the mail to each account.
	Accounts limit.Buckets[string]
	slots    chan struct{}
	seed     maphash.Seed
	// accountLocks serializes the requests for one account, so that two concurrent requests mail the same link.
	accountLocks [64]chan struct{}
	work         sync.WaitGroup
	// ctx cancels the requests in flight.
	ctx  context.Context
	stop context.CancelFunc
}

// NewPasswordResets returns resets with limits that are not used up.
func NewPasswordResets() *PasswordResets {
	p := &PasswordResets{seed: maphash.MakeSeed(), networks: limit.NewClientBuckets(), Accounts: limit.NewBuckets[string](), slots: make(chan struct{}, maxResets)}
	for i := range p.accountLocks {
		p.accountLocks[i] = make(chan struct{}, 1)
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// limitNetwork counts a request against the network of an address. Errors: rate_limited.
func (p *PasswordResets) limitNetwork(now time.Time, source netip.Addr) error {
	if wait := p.networks.Take(now, limit.Client{Address: source}, resetsPerNetwork); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many links were requested", RetryAfter: wait}
	}
	return nil
}

// startWork runs work in the background. It returns false if maxResets are in flight.
func (p *PasswordResets) startWork(work func()) bool {
	select {
	case p.slots <- struct{}{}:
	default:
		return false
	}
	p.work.Go(func() {
		defer func() { <-p.slots }()
		work()
	})
	return true
}

// lockAccount locks an account until unlock is called. Errors: ctx.Err().
func (p *PasswordResets) lockAccount(ctx context.Context, userID string) (unlock func(), err error) {
	lock := p.accountLocks[maphash.Comparable(p.seed, userID)%uint64(len(p.accountLocks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Wait waits until all work that was started is done.
func (p *PasswordResets) Wait() { p.work.Wait() }

// drain waits for the work in flight. When ctx ends it cancels the work, and returns the number of requests that were in flight.
func (p *PasswordResets) drain(ctx context.Context) (canceled int) {
	ended := make(chan struct{})
	go func() { p.work.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		canceled = len(p.slots)
		p.stop()
		<-ended
	}
	return canceled
}

// forgottenPages mails links to people who forgot their password.
type forgottenPages struct {
	links  *account.Links
	resets *PasswordResets
}

func (f forgottenPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, forgottenPath, server.ScopePublic, "Show the form for a forgotten password", f.show),
		page(http.MethodPost, forgottenPath, server.ScopePublic, "Email a password-reset link", f.request),
	}
}

func (f forgottenPages) show(*server.Call) (result, error) {
	if !f.links.SendsMail() {
		return result{}, server.ErrNotFound
	}
	return result{page: pages.Forgotten{}}, nil
}

// request answers before the account is looked up, so that the response does not depend on whether there is one.
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
	if address, err := account.CanonicalEmail(form.Get("email")); err == nil {
		if !f.resets.startWork(func() { f.sendResetLink(c, address) }) {
			c.Log().Warn("dropped a request for a password-reset link: too many are in flight")
		}
	}
	return result{page: pages.Forgotten{Requested: true}}, nil
}

// sendResetLink has a link mailed to the account that owns the address, if there is one.
func (f forgottenPages) sendResetLink(asking *server.Call, address string) {
	ctx, cancel := context.WithTimeout(f.resets.ctx, asking.RequestTime())
	defer cancel()
	c := asking.InBackground(ctx)
	defer func() {
		if p := recover(); p != nil { // outside a request a panic would end the process
			c.Log().Error("the request for a password-reset link panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	err := f.links.OfferReset(c, address, func(userID string) (func(), error) { return f.resets.admit(c, userID) })
	if err != nil && !entity.IsHidden(err) {
		c.Log().Error("cannot offer a password-reset link", "error", err)
	}
}

// admit counts a link against the limit of an account, and locks the account until unlock is called. unlock is nil if the limit is used up.
// Errors: the errors of lockAccount.
func (p *PasswordResets) admit(c *server.Call, userID string) (unlock func(), err error) {
	if p.Accounts.Take(c.Now(), userID, resetsPerAccount) > 0 {
		return nil, nil
	}
	return p.lockAccount(c.Context, userID)
}
