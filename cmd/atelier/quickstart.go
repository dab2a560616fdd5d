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

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/persistence/datadir"
)

const (
	quickstartKey   = "quickstart.key"
	quickstartEmail = "owner@localhost.localdomain"
	quickstartSlug  = "demo"
)

// quickstart makes an owner and a workspace where they are missing, and prints what to try, with a link that sets the owner's
// password until one is set. Each step may have been done
// by an earlier start that was cut off after it.
func quickstart(ctx context.Context, dir, address string, out console) error {
	o := newOperator(dir)
	key, err := ownerKey(ctx, o, dir, address)
	if err != nil {
		return err
	}
	api, err := client.New(address, key)
	if err != nil {
		return err
	}
	defer api.Close()
	demo := client.NewWorkspace{Slug: quickstartSlug, Name: "Demo"}
	if _, err := api.CreateWorkspace(ctx, demo); err != nil && !client.HasCode(err, "slug_taken") {
		return err
	}
	var owner person
	if err := o.call(ctx, http.MethodPost, "/admin/links", firstLink{Email: quickstartEmail, UnlessSet: true}, &owner); err != nil {
		return err
	}
	_, err = fmt.Fprint(out.out, whatToTry(dir, address, key, owner.PasswordLink))
	return err
}

// firstLink asks for a link that sets a person's password; with UnlessSet, for none if the person has one.
type firstLink struct {
	Email     string `json:"email"`
	UnlessSet bool   `json:"unlessSet"`
}

// ownerKey is the key that an earlier start left, if it still opens doors, or a new one.
func ownerKey(ctx context.Context, o operator, dir, address string) (string, error) {
	path := filepath.Join(dir, quickstartKey)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		key := strings.TrimSpace(string(text))
		if err := opens(ctx, address, key); !client.HasCode(err, "unauthorized") {
			return key, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	owner, err := makeOwner(ctx, o)
	if err != nil {
		return "", err
	}
	return owner.Key, datadir.WriteDurably(path, []byte(owner.Key+"\n"))
}

func opens(ctx context.Context, address, key string) error {
	api, err := client.New(address, key)
	if err != nil {
		return err
	}
	defer api.Close()
	_, err = api.Whoami(ctx)
	return err
}

func makeOwner(ctx context.Context, o operator) (owner person, err error) {
	err = o.call(ctx, http.MethodPost, adminPeople, newPerson{Email: quickstartEmail, Name: "Owner"}, &owner)
	if client.HasCode(err, "email_taken") {
		err = o.call(ctx, http.MethodPost, "/admin/keys", personNamed{quickstartEmail}, &owner)
	}
	return owner, err
}

// whatToTry returns what quickstart prints. link is empty if the owner has a password.
func whatToTry(dir, address, key, link string) string {
	if link != "" {
		link = ",\n           once you have chosen a password at\n           " + link
	}
	return strings.NewReplacer("PROGRAM", os.Args[0], "ADDRESS", address, "KEY", key, "SLUG", quickstartSlug, "DIR", dir,
		"EMAIL", quickstartEmail, "LINK", link).Replace(`
Atelier runs.

  Address  ADDRESS
  Key      KEY
  Data     DIR
  Sign in  ADDRESS/sign-in as EMAILLINK

Try it in another terminal:

  # follow what happens in the workspace "SLUG"
  curl -N -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/file-activity/events

  # put a file on its drive
  echo hello | curl -T - -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/drive/hello.txt

  # read what happened
  curl -H 'Authorization: Bearer KEY' ADDRESS/v1/ws/SLUG/file-activity/feed

  # run a command in its computer, or open a shell there
  PROGRAM exec --url=ADDRESS --data=DIR SLUG -- ls -l
  PROGRAM shell --url=ADDRESS --data=DIR SLUG

Ctrl+C stops it; starting again keeps everything.

`)
}
