package http

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"hash/maphash"
	"net/netip"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/pages"
)

const (
	forgottenPath = signInPath + "/forgotten"
	// forgottenTime is how long a link is good that anybody may have mailed.
	forgottenTime = 24 * time.Hour
	// sameTime is how long asking again has the same link mailed: who asks over and over makes none useless before.
	sameTime = time.Hour
	// mostForgotten is how many may be on their way at a time.
	mostForgotten = 32
)

var (
	perAsker   = allowance{10, time.Minute}
	perMailbox = allowance{3, 10 * time.Minute}
)

// forgotten mails links to who forgot their password. Whether an address is anybody's is found out behind the answer,
// which is the same for all. An address of the network is limited openly, a person's mail in silence; the memory is fixed.
type forgotten struct {
	seed           maphash.Seed
	askers, people [1 << 13]bucket
	// key is derived from the installation's secret: the task that mails a link makes its secret anew.
	key  []byte
	ways chan struct{}
	// turns has a person's links made one after the other, so that who asks twice at once has the same one mailed.
	turns [64]chan struct{}
	work  sync.WaitGroup
	// ctx ends what is under way.
	ctx  context.Context
	stop context.CancelFunc
}

func newForgotten(installation []byte) *forgotten {
	f := &forgotten{seed: maphash.MakeSeed(), key: derivedKey(installation, "password link"), ways: make(chan struct{}, mostForgotten)}
	for i := range f.turns {
		f.turns[i] = make(chan struct{}, 1)
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// mayAsk counts somebody who asks, or refuses them. Errors: rate_limited.
func (f *forgotten) mayAsk(now time.Time, source netip.Addr) error {
	if wait := slot(f.seed, &f.askers, network(source)).takeEach(now, perAsker.each, perAsker.burst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many links were asked for", RetryAfter: wait}
	}
	return nil
}

// secret is that of a person's link. It follows from when the link ends, so that it can be mailed again, and from the
// password that it replaces, so that it does not come again once it was used.
func (f *forgotten) secret(userID, password string, expiresAt int64) string {
	mac := hmac.New(sha256.New, f.key)
	mac.Write(walk(userID, password, strconv.FormatInt(expiresAt, 10)))
	return secretEncoding.EncodeToString(mac.Sum(nil)[:secretBytes])
}

// begin does work behind an answer; false: too much is under way.
func (f *forgotten) begin(work func()) bool {
	select {
	case f.ways <- struct{}{}:
	default:
		return false
	}
	f.work.Go(func() {
		defer func() { <-f.ways }()
		work()
	})
	return true
}

// turn waits until nobody makes a link for a person, or until ctx ends; done lets the next one.
func (f *forgotten) turn(ctx context.Context, userID string) (done func(), err error) {
	turn := f.turns[maphash.Comparable(f.seed, userID)%uint64(len(f.turns))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drain waits for what is under way. When ctx ends it cuts that off, and says so.
func (f *forgotten) drain(ctx context.Context) error {
	inTime := context.AfterFunc(ctx, f.stop)
	f.work.Wait()
	if !inTime() {
		return ctx.Err()
	}
	return nil
}

func (s *Server) showForgotten(*call) (sheet, error) {
	if s.options.Mail == nil {
		return sheet{}, errNotFound
	}
	return sheet{name: "forgotten", data: pages.Forgotten{}}, nil
}

// takeForgotten answers before anybody looks whose the address is.
func (s *Server) takeForgotten(c *call) (sheet, error) {
	if s.options.Mail == nil {
		return sheet{}, errNotFound
	}
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	if err := s.forgotten.mayAsk(s.now(), c.address()); err != nil {
		return sheet{}, err
	}
	if address, err := checkEmail(form.Get("email")); err == nil {
		request := c.w.id
		if !s.forgotten.begin(func() { s.remind(request, address) }) {
			s.log.Warn("too many links are being mailed, and one was left out", "request", request)
		}
	}
	return sheet{name: "forgotten", data: pages.Forgotten{Asked: true}}, nil
}

// remind has a link mailed to the account that owns the address, if there is one.
func (s *Server) remind(request, address string) {
	ctx, cancel := context.WithTimeout(s.forgotten.ctx, s.options.Limits.RequestTime)
	defer cancel()
	log := s.log.With("request", request)
	defer func() {
		if p := recover(); p != nil { // here it would end the process
			log.Error("asking for a password-reset link panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err := (&call{ctx: ctx, server: s, w: &response{id: request}}).askForLink(address); err != nil && !hidden(err) {
		log.Error("a password-reset link was not asked for", "error", err)
	}
}

// askForLink has a link mailed to the account that owns an address, unless there is none or it was mailed enough of them.
func (c *call) askForLink(address string) error {
	userID, err := c.personAt(address)
	if err != nil || userID == "" {
		return err
	}
	person, err := c.describe(userID)
	if err != nil || person.GetDisabledAt() != 0 {
		return err
	}
	f, now := c.server.forgotten, c.server.now()
	if slot(f.seed, &f.people, userID).takeEach(now, perMailbox.each, perMailbox.burst) > 0 {
		return nil
	}
	return c.forgottenLink(userID, now)
}

// forgottenLink has a link mailed that sets a person's password: the one that was mailed last, while it is young, or a
// new one.
func (c *call) forgottenLink(userID string, now time.Time) error {
	f := c.server.forgotten
	done, err := f.turn(c.ctx, userID)
	if err != nil {
		return err
	}
	defer done()
	password, err := c.passwordOf(userID)
	if err != nil {
		return err
	}
	ends := password.GetLink().GetExpiresAt()
	secret := f.secret(userID, password.GetHash(), ends)
	young := now.Add(forgottenTime - sameTime).UnixMilli() // one that is still good then was made less than sameTime ago
	if !user.LinkOpens(password.GetLink(), hashOf(secret), young) {
		ends = now.Add(forgottenTime).UnixMilli()
		secret = f.secret(userID, password.GetHash(), ends)
	}
	_, err = c.offerSecret(userID, secret, ends, c.server.options.NewID("mail_"))
	return err
}
