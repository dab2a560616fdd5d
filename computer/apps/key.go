package apps

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"slices"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// KeyStart begins the key of an app. The id of the app without its prefix, an underscore and the secret follow.
const KeyStart = "atlapp_"

// secretBytes is the number of random bytes of a secret.
const secretBytes = 25

var secretEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A key is the key of the processes of an app. It is in memory only, and goes nowhere but into their environment.
type key struct {
	text   string
	hash   []byte
	scopes []string
}

// get returns the key for a process that is about to start. The key of the previous process is used again if it has the same scopes;
// the app may have revoked it since, so it is issued again in any case. When get returns, the key opens the API.
func (k *key) get(ctx context.Context, l *loop, c configuration) (string, error) {
	scopes := slices.Sorted(slices.Values(c.runtime.GetApiScopes()))
	if k.text == "" || !slices.Equal(k.scopes, scopes) {
		random := make([]byte, secretBytes)
		rand.Read(random) // never fails, according to its documentation
		secret := secretEncoding.EncodeToString(random)
		hash := sha256.Sum256([]byte(secret))
		*k = key{text: KeyStart + l.appID[len(l.appID)-entity.ULIDLength:] + "_" + secret, hash: hash[:], scopes: scopes}
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := l.s.ask(asking, l.identity, &appv1.IssueKey{Generation: c.generation, SecretSha256: k.hash}); err != nil {
		return "", err
	}
	if err := l.s.o.Asker.Settle(asking, entity.KindApp, l.identity); err != nil {
		return "", err
	}
	return k.text, nil
}
