package main

import (
	"context"
	"net/http"
	"time"
)

type userCommands struct {
	Create      userCreateCommand      `cmd:"" help:"Create a person with a first API key, and a one-time link that sets a password; print them as one JSON object."`
	List        userListCommand        `cmd:"" help:"Print all people, one JSON object a line."`
	Disable     userDisableCommand     `cmd:"" help:"Disable a person: their keys, sessions and tokens are rejected."`
	Enable      userEnableCommand      `cmd:"" help:"Enable a disabled person again."`
	SetAdmin    userSetAdminCommand    `cmd:"" help:"Make a person an internal admin, who may act as others."`
	Unlink      userUnlinkCommand      `cmd:"" help:"Remove a person's link to the OpenID Connect provider, which the next sign-in through it makes anew, and end their browser sessions."`
	Link        userLinkCommand        `cmd:"" help:"Make a one-time link that sets a person's password; it replaces the one before."`
	Impersonate userImpersonateCommand `cmd:"" help:"Print a key with which an internal admin acts as a person. The log of each of the person's workspaces says so."`
}

type keyCommands struct {
	Create keyCreateCommand `cmd:"" help:"Issue a further API key for a person, and print it as JSON."`
}

// personFlag is the flag that names a person.
type personFlag struct {
	Email string `required:"" help:"Address of the person."`
}

type userCreateCommand struct {
	dataFlag
	Email string `required:"" help:"Address of the person; nobody else may have it."`
	Name  string `help:"Name of the person."`
	NoKey bool   `help:"Issue no API key: the person signs in with the link."`
}

func (c *userCreateCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, adminPeople, newPerson{c.Email, c.Name, c.NoKey, true})
}

// newPerson is the request to create a person.
type newPerson struct {
	Email   string `json:"email"`
	Name    string `json:"name,omitempty"`
	Keyless bool   `json:"keyless,omitempty"`
	Link    bool   `json:"link,omitempty"`
}

// person is the answer to a request that creates a person, a key or a link.
type person struct {
	Key          string `json:"key"`
	PasswordLink string `json:"passwordLink"`
}

type personNamed struct {
	Email string `json:"email"`
}

type userListCommand struct {
	dataFlag
	Limit int `help:"Largest number to print. 0: all."`
}

func (c *userListCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).list(ctx, out, adminPeople, c.Limit)
}

type personChange struct {
	Email         string `json:"email"`
	Disabled      *bool  `json:"disabled,omitempty"`
	InternalAdmin *bool  `json:"internalAdmin,omitempty"`
	Unlinked      bool   `json:"unlinked,omitempty"`
}

func (o operator) change(ctx context.Context, out console, change personChange) error {
	return o.printAnswer(ctx, out, http.MethodPatch, adminPeople, change)
}

type userDisableCommand struct {
	dataFlag
	personFlag
}

func (c *userDisableCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).change(ctx, out, personChange{Email: c.Email, Disabled: new(true)})
}

type userEnableCommand struct {
	dataFlag
	personFlag
}

func (c *userEnableCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).change(ctx, out, personChange{Email: c.Email, Disabled: new(false)})
}

type userUnlinkCommand struct {
	dataFlag
	personFlag
}

func (c *userUnlinkCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).change(ctx, out, personChange{Email: c.Email, Unlinked: true})
}

type userSetAdminCommand struct {
	dataFlag
	personFlag
	Revoke bool `help:"Revoke it instead."`
}

func (c *userSetAdminCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).change(ctx, out, personChange{Email: c.Email, InternalAdmin: new(!c.Revoke)})
}

type userLinkCommand struct {
	dataFlag
	personFlag
}

func (c *userLinkCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, "/admin/links", personNamed{c.Email})
}

type userImpersonateCommand struct {
	dataFlag
	Email   string        `required:"" help:"Address of the person to act as."`
	AsAdmin string        `required:"" placeholder:"EMAIL" help:"Address of the internal admin who acts."`
	Reason  string        `required:"" help:"Why; the logs show it."`
	For     time.Duration `default:"15m" help:"How long the key is valid, at most an hour."`
}

// Validate is called by the parser.
func (c *userImpersonateCommand) Validate() error {
	return between("for", c.For, time.Second, time.Hour)
}

func (c *userImpersonateCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, "/admin/impersonations", struct {
		Email   string `json:"email"`
		Admin   string `json:"admin"`
		Reason  string `json:"reason"`
		Seconds int64  `json:"seconds"`
	}{c.Email, c.AsAdmin, c.Reason, int64(c.For / time.Second)})
}

type keyCreateCommand struct {
	dataFlag
	personFlag
}

func (c *keyCreateCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, "/admin/keys", personNamed{c.Email})
}
