package browser

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
)

const goodPassword = "a long way to the sea"

func TestPasswordHasher(t *testing.T) {
	p := NewPasswordHasher()
	hash, err := p.Hash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash %q", hash)
	}
	if again, _ := p.Hash(t.Context(), goodPassword); again == hash {
		t.Error("two hashes have the same salt")
	}
	for _, test := range []struct {
		hash, password string
		matches        bool
	}{
		{hash, goodPassword, true},
		{hash, goodPassword + " ", false},
		{hash, "", false},
		{"", goodPassword, false},
		{hash[:len(hash)-1], goodPassword, false},
		{strings.Replace(hash, "t=2", "t=3", 1), goodPassword, false},
		{strings.Replace(hash, "argon2id", "argon2i", 1), goodPassword, false},
		{strings.Replace(hash, "v=19", "v=16", 1), goodPassword, false},
		{strings.Replace(hash, "m=19456", "m=4294967295", 1), goodPassword, false},
		{strings.Replace(hash, "t=2", "t=0", 1), goodPassword, false},
		{strings.Replace(hash, "p=1", "p=0", 1), goodPassword, false},
		{"$$$$$", "", false},
		// From the reference implementation: echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1 -l 32 -e
		{"$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "password", true},
	} {
		if got, err := p.matches(t.Context(), test.hash, test.password); got != test.matches || err != nil {
			t.Errorf("%q with %q: %t, %v", test.hash, test.password, got, err)
		}
	}
}

// A password is the same in each form in which browsers and keyboards enter it (RFC 8265, section 4.2), also if its hash was made
// before passwords were normalized.
func TestPasswordsAreNormalized(t *testing.T) {
	const composed, decomposed, spaced = "Stra\u00dfe nach \u00c9vreux", "Stra\u00dfe nach E\u0301vreux", "Stra\u00dfe\u00a0nach\u3000\u00c9vreux"
	p := NewPasswordHasher()
	hash := func(password string) string {
		made, err := p.Hash(t.Context(), password)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for name, stored := range map[string]string{
		"composed": hash(composed), "decomposed": hash(decomposed), "spaces": hash(spaced),
		"composed before": currentParameters.hash(composed), "decomposed before": currentParameters.hash(decomposed),
	} {
		for _, entered := range []string{composed, decomposed} {
			if matches, err := p.matches(t.Context(), stored, entered); err != nil || !matches {
				t.Errorf("%s, entered %+q: %v, %v", name, entered, matches, err)
			}
		}
		if matches, err := p.matches(t.Context(), stored, "Strasse nach Evreux"); err != nil || matches {
			t.Errorf("%s: another password matches: %v", name, err)
		}
	}
	if matches, err := p.matches(t.Context(), currentParameters.hash(spaced), spaced); err != nil || !matches {
		t.Errorf("a hash from before with other spaces: %v, %v", matches, err)
	}
	for _, entered := range []string{goodPassword, composed, decomposed, spaced, spaced + "e\u0301", "\u2126 " + decomposed + composed} {
		if n := len(formsOf(entered)); n > 2 {
			t.Errorf("%+q costs %d hashes", entered, n)
		}
	}
	if problem := describePasswordProblem(strings.Repeat("e\u0301", maxPasswordLength)); problem != "" {
		t.Errorf("%d characters in decomposed form: %s", maxPasswordLength, problem)
	}
}

// Only a few passwords are hashed at a time; a request that would wait too long is refused.
func TestPasswordHasherIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPasswordHasher()
		free := occupy(p)
		began := time.Now()
		_, err := p.matches(t.Context(), "", goodPassword)
		var refused *entity.Error
		if !errors.As(err, &refused) || refused.Code != entity.Unavailable || time.Since(began) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Hash(ctx, goodPassword); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a cancelled request waits: %v", err)
		}
		free()
		if _, err := p.matches(t.Context(), "", goodPassword); err != nil {
			t.Error(err)
		}
	})
}

// Many concurrent passwords take neither all processors nor, while they wait, all of the limit on concurrent requests.
func TestPasswordHasherLeavesProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		p := NewPasswordHasher()
		if cap(p.slots) != 1 {
			t.Errorf("%d of 2 processors are for passwords", cap(p.slots))
		}
		defer occupy(p)()
		began, refused := time.Now(), make(chan time.Duration, 2*(hasherQueue*cap(p.slots)))
		for range cap(refused) {
			go func() {
				_, err := p.matches(t.Context(), "", goodPassword)
				var busy *entity.Error
				if !errors.As(err, &busy) || busy.Code != entity.Unavailable {
					t.Errorf("refused with %v", err)
				}
				refused <- time.Since(began)
			}()
		}
		waited := 0
		for range cap(refused) {
			if <-refused > 0 {
				waited++
			}
		}
		if waited != (hasherQueue * cap(p.slots)) {
			t.Errorf("%d waited, want %d", waited, (hasherQueue * cap(p.slots)))
		}
	})
}

// occupy takes every slot until free is called.
func occupy(p *PasswordHasher) (free func()) {
	n := cap(p.slots)
	for range n {
		p.slots <- struct{}{}
	}
	return func() {
		for range n {
			<-p.slots
		}
	}
}
