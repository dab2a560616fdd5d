package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/persistence/datadir"
)

const (
	quickstartKey   = "quickstart.key"
	quickstartEmail = "owner@localhost.localdomain"
	quickstartSlug  = "demo"
)

// quickstart makes an owner, a workspace, a session and an app where they are missing, and prints what to try, with a link that sets the
// owner's password until one is set. Each step may have been done by an earlier start that was cut off after it.
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
	t := trial{dir: dir, address: address, key: key, link: owner.PasswordLink}
	if t.refusal, err = checkComputer(ctx, api); err != nil {
		return err
	}
	if t.refusal == "" {
		if t.session, err = startDemo(ctx, api); err != nil {
			return err
		}
		if t.app, err = startDemoApp(ctx, api); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(out.out, t.text())
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

// demoRequest is the id of the request for the demo session: each start repeats the request, and gets the same session.
const demoRequest = "0de30000-5e55-4000-8000-000000000001"

// demoRunbook is the prompt of the demo session. It needs no model.
const demoRunbook = `# What a session does
say Hello. I am the built-in agent. Without a model, I carry out runbooks.
step 1/3 Look around
$ pwd; ls -l
step 2/3 Write a file
write welcome.md
    # Welcome

    A session has written this file, as the history of the file says.
$ wc -w welcome.md
step 3/3 Ask
ask Shall I go on? | yes | no
say You have said: {{answer}}
$ test "$ATELIER_ANSWER" = no || date '+Gone on at %T.' >>welcome.md; cat welcome.md
`

// startDemo starts the demo session, unless an earlier start has done so, and returns its id. It returns an empty id if the server
// refuses the session: a person has deleted it, or it is the session of another version of this program.
func startDemo(ctx context.Context, api *client.Client) (string, error) {
	started, err := api.StartSession(ctx, quickstartSlug, client.NewSession{Prompt: demoRunbook, ClientRequestID: demoRequest})
	return started.SessionID, ignoreRefusal(err)
}

// checkTime bounds checkComputer.
const checkTime = 20 * time.Second

// checkComputer runs a command in the computer of the workspace. It returns the refusal if this machine runs none.
func checkComputer(ctx context.Context, api *client.Client) (refusal string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err = api.Exec(ctx, quickstartSlug, client.ExecRequest{Argv: []string{"true"}}, io.Discard, io.Discard)
	var refused *client.Error
	switch {
	case client.HasCode(err, "forbidden") && errors.As(err, &refused):
		return refused.Message, nil
	case errors.As(err, &refused), errors.Is(err, context.DeadlineExceeded):
		return "", nil // the computer is busy, or lacks the command
	}
	return "", err
}

// A trial has the values in the text that quickstart prints.
type trial struct {
	dir, address, key string
	// link is empty if the owner has a password.
	link string
	// session is the id of the demo session, or empty.
	session string
	// app is the demo app, or nil.
	app *client.App
	// refusal says why this machine runs no computers; empty if it does.
	refusal string
}

// text returns the text.
func (t trial) text() string {
	link := t.link
	if link != "" {
		link = ",\n           once you have chosen a password at\n           " + link
	}
	sessions, apps, appURL := trySessions, tryApps, ""
	if t.session == "" {
		sessions = tryOtherSessions
	}
	if t.app != nil {
		apps, appURL = tryDemoApp, t.app.CanonicalURL
	}
	if t.refusal != "" {
		sessions, apps = noSessions, ""
	}
	return strings.NewReplacer("--data=DIR", "--data="+quote(t.dir), "APPURL", appURL, "APP", demoApp, "PROGRAM", quote(os.Args[0]), "ADDRESS", t.address, "KEY", t.key, "SLUG", quickstartSlug, "DIR", t.dir,
		"EMAIL", quickstartEmail, "LINK", link, "SESSION", t.session, "REFUSAL", t.refusal).Replace(tryDrive + sessions + apps + tryEnd)
}

// quote returns a word of a command line for a shell.
func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=+@,", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

const (
	tryDrive = `
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
`
	tryCommands = `
  # run a command in its computer, or open a shell there
  PROGRAM exec --url=ADDRESS --data=DIR SLUG -- ls -l
  PROGRAM shell --url=ADDRESS --data=DIR SLUG
`
	trySessions = tryCommands + `
  # see what a session of an agent has done, and answer its question
  PROGRAM session tail --url=ADDRESS --data=DIR SLUG SESSION
  PROGRAM session answer --url=ADDRESS --data=DIR --tail SLUG SESSION yes

  # start another one; without a model, the agent carries out runbooks
  PROGRAM session start --url=ADDRESS --data=DIR --tail SLUG '$ ls -l'
`
	tryOtherSessions = tryCommands + `
  # list the sessions of agents, and start one; without a model, the agent carries out runbooks
  PROGRAM session list --url=ADDRESS --data=DIR SLUG
  PROGRAM session start --url=ADDRESS --data=DIR --tail SLUG '$ ls -l'
`
	noSessions = `
Commands, terminals, sessions of agents and apps do not run: REFUSAL.
On a machine of your own, --computer-isolation=none runs them with the rights of the server; see "Computers" in docs/operations.md.
`
	tryEnd = `
Ctrl+C stops it; starting again keeps everything.

`
)
