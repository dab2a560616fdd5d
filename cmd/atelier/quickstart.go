package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/atelier-run/atelier/cmd/node"
)

const (
	quickstartKey   = "quickstart.key"
	quickstartEmail = "owner@localhost.localdomain"
	quickstartSlug  = "demo"
)

// quickstart makes an owner and a workspace where they are missing, and prints what to try. Each step may have been done
// by an earlier start that was cut off after it.
func quickstart(ctx context.Context, dir, address string, out console) error {
	key, err := ownerKey(ctx, dir, address)
	if err != nil {
		return err
	}
	api := caller{client: http.DefaultClient, base: address, key: key}
	workspace := map[string]string{"slug": quickstartSlug, "name": "Demo"}
	if err := api.call(ctx, http.MethodPost, "/v1/workspaces", workspace, &struct{}{}); err != nil && !refusedAs(err, "slug_taken") {
		return err
	}
	_, err = fmt.Fprint(out.out, whatToTry(dir, address, key))
	return err
}

// ownerKey is the key that an earlier start left, if it still opens doors, or a new one.
func ownerKey(ctx context.Context, dir, address string) (string, error) {
	path := filepath.Join(dir, quickstartKey)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		key := strings.TrimSpace(string(text))
		api := caller{client: http.DefaultClient, base: address, key: key}
		err := api.call(ctx, http.MethodGet, "/v1/whoami", nil, &struct{}{})
		if !refusedAs(err, "unauthorized") {
			return key, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	owner, err := makeOwner(ctx, newOperator(dir))
	if err != nil {
		return "", err
	}
	return owner.Key, node.WriteDurably(path, []byte(owner.Key+"\n"))
}

func makeOwner(ctx context.Context, o operator) (person, error) {
	owner, err := o.createUser(ctx, quickstartEmail, "Owner")
	if refusedAs(err, "email_taken") {
		return o.createKey(ctx, quickstartEmail)
	}
	return owner, err
}

func refusedAs(err error, code string) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.Code == code
}

func whatToTry(dir, address, key string) string {
	return strings.NewReplacer("ADDRESS", address, "KEY", key, "SLUG", quickstartSlug, "DIR", dir).Replace(`
Atelier runs.

  Address  ADDRESS
  Key      KEY
  Data     DIR

Try it in another terminal:

  # follow what happens in the workspace "SLUG"
  curl -N -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/file-activity/events

  # put a file on its drive
  echo hello | curl -T - -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/drive/hello.txt

  # read what happened
  curl -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/file-activity/feed

Ctrl+C stops it; starting again keeps everything.

`)
}
