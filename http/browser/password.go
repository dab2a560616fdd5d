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
	"golang.org/x/text/unicode/norm"

	"github.com/atelier-run/atelier/http/server"
)

// The length of a password, in characters.
const (
	minPasswordLength = 10
	maxPasswordLength = 200
	// maxPasswordBytes bounds the verified part of an entered password. A character has several code points in decomposed forms.
	maxPasswordBytes = 16*maxPasswordLength + 1
)

// currentParameters are the parameters that the Password Storage Cheat Sheet of OWASP recommends for argon2id: 19 MiB, two passes.
var currentParameters = argonParameters{memory: 19 << 10, passes: 2, lanes: 1}

// argonParameters are the parameters of argon2id; memory is in KiB.
type argonParameters struct {
	memory, passes uint32
	lanes          uint8
}

const (
	saltBytes = 16
	hashBytes = 32
	// maxHashers bounds the number of passwords that are hashed at a time: each takes 19 MiB and a processor.
	maxHashers = 4
	// hasherWait bounds the time that a request waits for its turn, and hasherQueue the number of waiting requests: about as
	// many as get their turn in that time. More of them would only occupy the server's limit on concurrent requests.
	hasherWait  = 2 * time.Second
	hasherQueue = 64
)

// hasherCount returns the number of concurrent hashes. It leaves half of the processors to all other work.
func hasherCount() int { return max(1, min(maxHashers, runtime.GOMAXPROCS(0)/2)) }

// PasswordHasher hashes and verifies passwords, a few at a time. Hashes are in PHC string format.
type PasswordHasher struct {
	slots   chan struct{}
	waiting atomic.Int64
	// decoy returns the hash of a random password. It is verified if there is no account.
	decoy func() string
}

// NewPasswordHasher returns a hasher for the number of processors.
func NewPasswordHasher() *PasswordHasher {
	return &PasswordHasher{slots: make(chan struct{}, hasherCount()), decoy: sync.OnceValue(func() string { return currentParameters.hash(rand.Text()) })}
}

// acquire waits for a slot. Errors: unavailable, ctx.Err().
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

// normalize returns a password as RFC 8265, section 4.2.2, prepares it: browsers and keyboards enter the same character in several
// forms.
func normalize(password string) string {
	return norm.NFC.String(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Zs, r) {
			return ' '
		}
		return r
	}, password))
}

// formsOf returns the forms of a password that a hash may be of: the normalized one, and if the password has further forms, one for hashes
// that were made before passwords were normalized. That is the password as it is, or decomposed if it is normalized already, as some
// keyboards enter it. Each form costs a hash.
func formsOf(password string) []string {
	normalized, other := normalize(password), password
	if other == normalized {
		other = norm.NFD.String(password)
	}
	if other == normalized {
		return []string{normalized}
	}
	return []string{normalized, other}
}

// Hash returns the hash of a password, which it normalizes. Errors: unavailable.
func (p *PasswordHasher) Hash(ctx context.Context, password string) (string, error) {
	done, err := p.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return currentParameters.hash(normalize(password)), nil
}

// matches reports whether a hash is of the password. An empty hash matches nothing, and takes as long. Errors: unavailable.
func (p *PasswordHasher) matches(ctx context.Context, hash, password string) (bool, error) {
	done, err := p.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	stored := hash
	if stored == "" {
		stored = p.decoy()
	}
	// All forms are verified, so that the time does not depend on the form that matches.
	matches := false
	for _, form := range formsOf(password) {
		matches = verify(stored, form) || matches
	}
	return matches && hash != "", nil
}

var phcEncoding = base64.RawStdEncoding.Strict()

func (a argonParameters) hash(password string) string {
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails, according to its documentation
	sum := argon2.IDKey([]byte(password), salt, a.passes, a.memory, a.lanes, hashBytes)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, a.memory, a.passes, a.lanes,
		phcEncoding.EncodeToString(salt), phcEncoding.EncodeToString(sum))
}

// verify uses the parameters in the hash, which may be older than the current ones. Hashes with parameters that cost far
// more than any that were ever used do not match.
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

// describePasswordProblem returns the reason why a text cannot be a password; "" if it can.
func describePasswordProblem(password string) string {
	switch n := utf8.RuneCountInString(normalize(password)); {
	case !utf8.ValidString(password), strings.ContainsFunc(password, unicode.IsControl):
		return "The password contains a control character or invalid text."
	case n < minPasswordLength:
		return fmt.Sprintf("The password is too short: it needs at least %d characters.", minPasswordLength)
	case n > maxPasswordLength:
		return fmt.Sprintf("The password is too long: it may have at most %d characters.", maxPasswordLength)
	}
	return ""
}
