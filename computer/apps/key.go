package apps

import (
	"context"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/keys"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// A key is the API key of the processes of an app. It exists only in memory and in the environment of these processes.
type key struct {
	text   string
	hash   []byte
	scopes []string
}

// get returns the key for a process that is about to start. If the scopes have not changed, it is the key of the previous process. get issues
// the key again even then, because the app may have revoked the key since. When get returns, the API accepts the key.
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
