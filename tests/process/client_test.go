package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	api "github.com/atelier-run/atelier/client"
)

// A client sends requests to a node with one key and returns raw responses. It has its own connections, which end with
// the node.
type client struct {
	address string
	key     string
	http    *http.Client
}

func newClient(address, key string) *client {
	return &client{address, key, &http.Client{Transport: &http.Transport{}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do sends a request and returns the status and the whole body of the response. headers are names and values in turns.
// After an error it is unknown whether the request took effect.
func (c *client) do(ctx context.Context, method, path string, body []byte, headers ...string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// postJSON sends in and decodes a successful response into out, unless out is nil.
func (c *client) postJSON(ctx context.Context, path string, in, out any) (int, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return 0, err
	}
	status, answer, err := c.do(ctx, http.MethodPost, path, body, "Content-Type", "application/json")
	if err != nil || status >= http.StatusBadRequest || out == nil {
		return status, err
	}
	return status, json.Unmarshal(answer, out)
}

const workspacePath = "/v1/ws/factory"

func drivePath(path string) string { return workspacePath + "/drive/" + path }

// An event is the event of a row of activity.
type event struct {
	Kind, Actor, UserID, EntryKind, Path, FromPath string
	At                                             int64
	Count                                          int
}

type row struct {
	Seq   uint64
	Event event
	raw   string
}

func parseRow(raw []byte) (row, error) {
	r := row{raw: string(raw)}
	return r, json.Unmarshal(raw, &r)
}

// page returns one page of the feed, with reads, and the next cursor, which is empty after the last page.
func (c *client) page(ctx context.Context, cursor string, limit int) (rows []row, next string, err error) {
	query := fmt.Sprintf("%s/file-activity/feed?reads=1&limit=%d", workspacePath, limit)
	if cursor != "" {
		query += "&cursor=" + cursor
	}
	status, answer, err := c.do(ctx, http.MethodGet, query, nil)
	if err != nil {
		return nil, "", err
	}
	if status != http.StatusOK {
		return nil, "", fmt.Errorf("feed: %d %s", status, answer)
	}
	var page struct {
		Items      []json.RawMessage
		NextCursor *string
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, "", err
	}
	for _, item := range page.Items {
		r, err := parseRow(item)
		if err != nil {
			return nil, "", err
		}
		rows = append(rows, r)
	}
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return rows, next, nil
}

// feed returns all rows of the feed.
func (c *client) feed(ctx context.Context) ([]row, error) {
	var all []row
	for cursor := ""; ; {
		rows, next, err := c.page(ctx, cursor, 100)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if next == "" {
			return all, nil
		}
		cursor = next
	}
}

// newPerson creates a person with the operators' command line.
func newPerson(t *testing.T, n *node, email string) (userID, key string) {
	t.Helper()
	out, errs, code := atelier("admin", "user", "create", "--data="+n.dir, "--email="+email, "--name=Person")
	var p struct{ UserID, Email, Key string }
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 || p.Email != email || p.UserID == "" {
		t.Fatalf("admin user create: exit %d, %q, %q", code, out, errs)
	}
	return p.UserID, p.Key
}

// newWorkspace creates the workspace "factory" and waits until it is active. The response may come before its computer is
// ready.
func newWorkspace(t *testing.T, c *client) {
	t.Helper()
	newWorkspaceAt(t, c, "factory")
}

func newWorkspaceAt(t *testing.T, c *client, slug string) {
	t.Helper()
	typed, err := api.New(c.address, c.key, api.WithHTTPClient(c.http))
	if err != nil {
		t.Fatal(err)
	}
	addWorkspace(t, typed, slug)
}

// expect sends a request, fails the test if the response has another status, and returns the body.
func (c *client) expect(t *testing.T, status int, method, path string, body string, headers ...string) string {
	t.Helper()
	got, answer, err := c.do(t.Context(), method, path, []byte(body), headers...)
	if err != nil || got != status {
		t.Fatalf("%s %s: got %d %s %v, want %d", method, path, got, strings.TrimSpace(string(answer)), err, status)
	}
	return string(answer)
}

// follow reads a stream of the workspace until it ends. It calls open when the stream has begun and each with each row and its
// id. It returns nil if the node ended the stream in order, and an error if the connection broke.
func (c *client) follow(ctx context.Context, last string, open func(), each func(id string, data []byte)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+workspacePath+"/file-activity/events?reads=1", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(response.Body)
		return fmt.Errorf("stream: %d %s", response.StatusCode, answer)
	}
	open()
	return frames(bufio.NewReader(response.Body), each)
}

// frames calls each with each complete frame: a frame ends with an empty line.
func frames(from *bufio.Reader, each func(id string, data []byte)) error {
	var id, data string
	for {
		line, err := from.ReadString('\n')
		switch {
		case err == io.EOF && line == "" && data == "":
			return nil
		case err != nil:
			return fmt.Errorf("the stream broke in the line %q: %w", line, err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case name == "" && data != "":
			each(id, []byte(data))
			id, data = "", ""
		}
	}
}
