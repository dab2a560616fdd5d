package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/client"
)

type adminCommands struct {
	User      userCommands      `cmd:"" help:"People."`
	Key       keyCommands       `cmd:"" help:"API keys."`
	Workspace workspaceCommands `cmd:"" help:"Workspaces."`
	App       appCommands       `cmd:"" help:"Replicas of apps."`
	Domain    bindingCommands   `cmd:"" help:"Certificates, and custom domains whose removal needs an operator."`
	Backup    backupCommands    `cmd:"" help:"Backups of workspaces' drives."`
	Audit     auditCommands     `cmd:"" help:"Audit logs."`
	Check     adminCheckCommand `cmd:"" help:"Check the tables and rows of the journal while the node runs, and print each fault as a JSON object."`
	Reactions reactionsCommands `cmd:"" help:"Reactions that are parked after repeated failures."`
}

// An operator sends requests to the node that runs over a data directory, through the socket in it. Commands print its JSON
// answers unchanged, one value a line.
type operator struct {
	socket string
	http   *http.Client
}

const (
	adminPeople     = "/admin/users"
	adminWorkspaces = "/admin/workspaces"
	adminReactions  = "/admin/reactions"
	adminDomains    = "/admin/domains"

	// operatorTime limits an ordinary request.
	operatorTime = time.Minute
	// longestAnswer limits an answer, and a line of an answer of lines, in bytes.
	longestAnswer = 16 << 20
)

func newOperator(dir string) operator {
	socket := filepath.Join(dir, socketName)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return operator{socket, &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}}
}

// printAnswer sends a request and prints the answer.
func (o operator) printAnswer(ctx context.Context, out console, method, path string, in any) error {
	var answer json.RawMessage
	if err := o.call(ctx, method, path, in, &answer); err != nil {
		return err
	}
	return line(out, answer)
}

// line prints a JSON value on a line.
func line(out console, value json.RawMessage) error {
	_, err := fmt.Fprintf(out.out, "%s\n", bytes.TrimSpace(value))
	return err
}

// list prints the items of all pages, at most limit of them; 0: all.
func (o operator) list(ctx context.Context, out console, path string, limit int) error {
	const most = 100
	query := url.Values{}
	for printed := 0; ; {
		size := most
		if limit > 0 {
			size = min(size, limit-printed)
		}
		query.Set("limit", strconv.Itoa(size))
		var page struct {
			Items []json.RawMessage
			Next  string
		}
		if err := o.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := line(out, item); err != nil {
				return err
			}
		}
		printed += len(page.Items)
		if page.Next == "" || limit > 0 && printed >= limit {
			return nil
		}
		query.Set("after", page.Next)
	}
}

// call sends a request with JSON and decodes the answer into out; nil: it ignores the answer.
func (o operator) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTime)
	defer cancel()
	response, err := o.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	switch {
	case err != nil:
		return err
	case len(text) > longestAnswer:
		return fmt.Errorf("the answer of the node to %s %s has more than %s", method, path, formatBytes(longestAnswer))
	case out == nil:
		return nil
	}
	return json.Unmarshal(text, out)
}

// readLines decodes the lines of an answer, and calls each with each line until it returns done or an error. It returns an error if the
// answer ends before; the error says that the work is incomplete. The parameter what names the work.
func readLines[T any](ctx context.Context, answer io.Reader, what string, each func(line T) (done bool, err error)) error {
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, longestAnswer)
	for lines.Scan() {
		var line T
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		if done, err := each(line); done || err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: the %s was cancelled", what)
	}
	return errors.Join(fmt.Errorf("the node has ended before the %s was complete", what), lines.Err())
}

// send sends a request and returns the response if it is a success; the caller closes its body. Otherwise it returns an error:
// *client.Error for an answer of the node.
func (o operator) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	body := io.Reader(http.NoBody)
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://atelier"+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := o.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no node runs over this data directory: nothing listens on %s", o.socket)
	case err != nil:
		return nil, err
	case response.StatusCode >= http.StatusBadRequest:
		defer response.Body.Close()
		return nil, refusal(response, path)
	}
	return response, nil
}

// refusal returns the error of a response. For not_found it says, by the path, which thing was not found.
func refusal(r *http.Response, path string) error {
	e := &client.Error{Status: r.StatusCode, RequestID: r.Header.Get("X-Request-Id")}
	var body struct{ Error, Message string }
	if err := json.NewDecoder(io.LimitReader(r.Body, longestAnswer)).Decode(&body); err == nil {
		e.Code, e.Message = body.Error, body.Message
	}
	if e.Code != "not_found" {
		return e
	}
	e.Message = "no person has this address"
	if strings.HasPrefix(path, adminReactions) {
		e.Message = "no stream with this name is parked"
	}
	if strings.HasPrefix(path, adminDomains) {
		e.Message = "no app has this host name"
	}
	if strings.HasPrefix(path, adminWorkspaces) || strings.HasPrefix(path, "/admin/audit") {
		e.Message = "there is no workspace with this slug, or it has nothing with this name"
	}
	return e
}
