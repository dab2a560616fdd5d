package apps

import (
	"context"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/keys"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

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
		text, hash := keys.New(app.KeyStart, l.appID)
		*k = key{text: text, hash: hash, scopes: scopes}
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
