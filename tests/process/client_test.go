package process

import (
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

// client speaks to a node with one key, and shows answers as they are. Its connections are its own, so that a killed node takes them along.
type client struct {
	address string
	key     string
	http    *http.Client
}

func newClient(address, key string) *client {
	return &client{address, key, &http.Client{Transport: &http.Transport{}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do gives the status and the whole answer. An error says nothing of whether the request had its effect.
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

const space = "/v1/ws/factory"

func drivePath(path string) string { return space + "/drive/" + path }

// event is what a row says.
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

// page reads one page of the feed, reads included.
func (c *client) page(ctx context.Context, cursor string, limit int) (rows []row, next string, err error) {
	query := fmt.Sprintf("%s/file-activity/feed?reads=1&limit=%d", space, limit)
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

// feed reads all there is.
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

// newPerson makes a person through the operators' command line.
func newPerson(t *testing.T, n *node, email string) (userID, key string) {
	t.Helper()
	out, errs, code := atelier("admin", "user", "create", "--data="+n.dir, "--email="+email, "--name=Person")
	var p struct{ UserID, Email, Key string }
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 || p.Email != email || p.UserID == "" {
		t.Fatalf("admin user create: exit %d, %q, %q", code, out, errs)
	}
	return p.UserID, p.Key
}

// newSpace makes the workspace and waits until it can be used: where its computer takes its time, the answer comes before.
func newSpace(t *testing.T, c *client) {
	t.Helper()
	typed, err := api.New(c.address, c.key, api.WithHTTPClient(c.http))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: "factory", Name: "Factory"}); err != nil {
		t.Fatal("creating the workspace: ", err)
	}
	eventually(t, "the workspace is ready", func() bool {
		who, err := typed.Whoami(t.Context())
		return err == nil && len(who.Workspaces) == 1 && who.Workspaces[0].Status == "active"
	})
}

// expect sends a request that must be answered so.
func (c *client) expect(t *testing.T, status int, method, path string, body string, headers ...string) string {
	t.Helper()
	got, answer, err := c.do(t.Context(), method, path, []byte(body), headers...)
	if err != nil || got != status {
		t.Fatalf("%s %s: %d %s %v, not %d", method, path, got, strings.TrimSpace(string(answer)), err, status)
	}
	return string(answer)
}
