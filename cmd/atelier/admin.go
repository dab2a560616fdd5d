package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"
)

type adminCommands struct {
	User struct {
		Create userCreateCommand `cmd:"" help:"Create a person with a first API key, and print both as JSON."`
	} `cmd:"" help:"People."`
	Key struct {
		Create keyCreateCommand `cmd:"" help:"Issue a further API key for a person, and print it as JSON."`
	} `cmd:"" help:"API keys."`
}

type userCreateCommand struct {
	dataFlag
	Email string `required:"" help:"Address of the person; nobody else may have it."`
	Name  string `help:"Name of the person."`
}

func (c *userCreateCommand) Run(ctx context.Context, out console) error {
	person, err := newOperator(c.Data).createUser(ctx, c.Email, c.Name)
	return printed(out, person, err)
}

type keyCreateCommand struct {
	dataFlag
	Email string `required:"" help:"Address of the person."`
}

func (c *keyCreateCommand) Run(ctx context.Context, out console) error {
	person, err := newOperator(c.Data).createKey(ctx, c.Email)
	return printed(out, person, err)
}

func printed(out console, p person, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(out.out).Encode(p)
}

type person struct {
	UserID string `json:"userId"`
	Email  string `json:"email"`
	Key    string `json:"key"`
}

// operator speaks to the node that runs over a data directory.
type operator struct {
	socket string
	caller
}

const operatorTimeout = time.Minute

func newOperator(dir string) operator {
	socket := filepath.Join(dir, socketName)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return operator{socket, caller{
		client: &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: operatorTimeout},
		base:   "http://atelier",
	}}
}

func (o operator) createUser(ctx context.Context, email, name string) (p person, err error) {
	request := map[string]string{"email": email}
	if name != "" {
		request["name"] = name
	}
	return p, o.explain(o.call(ctx, http.MethodPost, "/admin/users", request, &p))
}

func (o operator) createKey(ctx context.Context, email string) (p person, err error) {
	return p, o.explain(o.call(ctx, http.MethodPost, "/admin/keys", map[string]string{"email": email}, &p))
}

func (o operator) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no node runs there: nobody answers at %s", o.socket)
	case refusedAs(err, "not_found"):
		return errors.New("nobody has this address")
	}
	return err
}

// caller sends JSON to the API.
type caller struct {
	client *http.Client
	base   string
	key    string
}

// refusal is an answer that is an error.
type refusal struct {
	status  int
	Code    string `json:"error"`
	Message string `json:"message"`
}

func (r *refusal) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("the node answered %d %s", r.status, r.Code)
	}
	return fmt.Sprintf("%s (%s)", r.Message, r.Code)
}

// longestAnswer bounds what is read of an answer.
const longestAnswer = 1 << 20

func (c caller) call(ctx context.Context, method, path string, in, out any) error {
	body := io.Reader(http.NoBody)
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := json.NewDecoder(io.LimitReader(response.Body, longestAnswer))
	if response.StatusCode >= http.StatusBadRequest {
		refused := &refusal{status: response.StatusCode}
		_ = answer.Decode(refused) // an answer of something else than a node has a status alone
		return refused
	}
	return answer.Decode(out)
}
