package browser

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/atelier-run/atelier/http/server"
)

// The length of a password, in characters.
const (
	minPasswordLength = 10
	maxPasswordLength = 200
)

// cost is what OWASP's Password Storage Cheat Sheet asks of argon2id: 19 MiB, two passes.
var currentParameters = argonParameters{memory: 19 << 10, passes: 2, lanes: 1}

// argon is the parameters of argon2id; memory is in KiB.
type argonParameters struct {
	memory, passes uint32
	lanes          uint8
}

const (
	saltBytes = 16
	hashBytes = 32
	// mostHashers is how many passwords are worked on at a time at the most: each takes 19 MiB and a processor.
	maxHashers = 4
	// hasherTime is how long a request waits for its turn, and hasherQueue how many wait for one: about as many as get
	// theirs in that time. The others would but keep requests from the rest of the API.
	hasherWait  = 2 * time.Second
	hasherQueue = 64
)

// hashers leaves half of the processors to all else, however many try to sign in.
func hasherCount() int { return max(1, min(maxHashers, runtime.GOMAXPROCS(0)/2)) }

// Passwords makes and checks hashes in PHC form, a few at a time.
type PasswordHasher struct {
	slots   chan struct{}
	waiting atomic.Int64
	// decoy is the hash of a password that nobody knows.
	decoy func() string
}

func NewPasswordHasher() *PasswordHasher {
	return &PasswordHasher{slots: make(chan struct{}, hasherCount()), decoy: sync.OnceValue(func() string { return currentParameters.hash(rand.Text()) })}
}

// turn waits for one. Errors: unavailable.
func (p *PasswordHasher) acquire(ctx context.Context) (done func(), err error) {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > int64(hasherQueue*cap(p.slots)) {
		return nil, server.ErrOverloaded
	}
	timer := time.NewTimer(hasherWait)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-timer.C:
		return nil, server.ErrOverloaded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *PasswordHasher) Hash(ctx context.Context, password string) (string, error) {
	done, err := p.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return currentParameters.hash(password), nil
}

// matches tells whether a password is the one of a hash. Without a hash it costs the same and the answer is no.
func (p *PasswordHasher) matches(ctx context.Context, hash, password string) (bool, error) {
	done, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if hash == "" {
		verify(p.decoy(), password)
		return false, nil
	}
	return verify(hash, password), nil
}

var phcEncoding = base64.RawStdEncoding.Strict()

func (a argonParameters) hash(password string) string {
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails, as its documentation has it
	sum := argon2.IDKey([]byte(password), salt, a.passes, a.memory, a.lanes, hashBytes)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, a.memory, a.passes, a.lanes,
		phcEncoding.EncodeToString(salt), phcEncoding.EncodeToString(sum))
}

// verify goes by the parameters in the hash, which may be older than the cost. Those that would cost far more than any
// that was ever used match nothing.
func verify(hash, password string) bool {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return false
	}
	var a argonParameters
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &a.memory, &a.passes, &a.lanes); n != 3 || err != nil {
		return false
	}
	if a.memory > 8*currentParameters.memory || a.passes < 1 || a.passes > 8*currentParameters.passes || a.lanes < 1 {
		return false
	}
	salt, badSalt := phcEncoding.DecodeString(parts[4])
	want, badHash := phcEncoding.DecodeString(parts[5])
	if badSalt != nil || badHash != nil || len(want) < 16 || len(want) > 64 {
		return false
	}
	sum := argon2.IDKey([]byte(password), salt, a.passes, a.memory, a.lanes, uint32(len(want)))
	return subtle.ConstantTimeCompare(sum, want) == 1
}

// passwordProblem says why a text is no password to set; "" where it may be one.
func describePasswordProblem(password string) string {
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password), strings.ContainsFunc(password, unicode.IsControl):
		return "The password has a character that cannot be typed everywhere."
	case n < minPasswordLength:
		return fmt.Sprintf("The password is too short: it needs at least %d characters.", minPasswordLength)
	case n > maxPasswordLength:
		return fmt.Sprintf("The password is too long: it may have %d characters.", maxPasswordLength)
	}
	return ""
}
