package client

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// drivePath escapes a path of a drive, segment by segment; "" is the root.
func drivePath(slug, path string) string {
	if path == "" {
		return workspacePath(slug, "/drive/")
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = segment(s)
	}
	return workspacePath(slug, "/drive/"+strings.Join(segments, "/"))
}

// ReadFile opens a file of a workspace's drive, which the caller closes. Codes: not_found.
func (c *Client) ReadFile(ctx context.Context, slug, path string) (io.ReadCloser, error) {
	response, err := c.do(ctx, request{method: http.MethodGet, path: drivePath(slug, path)})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// WriteFile makes a file of all that content gives, or replaces one; created tells which. It is there whole or not at all.
func (c *Client) WriteFile(ctx context.Context, slug, path string, content io.Reader) (created bool, err error) {
	return c.change(ctx, http.MethodPut, drivePath(slug, path), content)
}

// MakeFolder makes an empty folder.
func (c *Client) MakeFolder(ctx context.Context, slug, path string) error {
	_, err := c.change(ctx, "MKCOL", drivePath(slug, path), http.NoBody)
	return err
}

// Delete removes a file, or a folder with all that is in it.
func (c *Client) Delete(ctx context.Context, slug, path string) error {
	_, err := c.change(ctx, http.MethodDelete, drivePath(slug, path), http.NoBody)
	return err
}

// change is sent once: what it sends can be read once, and what it did cannot be told from the answer to another.
func (c *Client) change(ctx context.Context, method, path string, content io.Reader) (created bool, err error) {
	h, err := c.newRequest(ctx, method, path, nil, content)
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(h)
	switch {
	case err != nil:
		return false, err
	case !succeeded(response), response.StatusCode == http.StatusMultiStatus: // a folder of which something is left
		return false, refusal(response)
	}
	return response.StatusCode == http.StatusCreated, response.Body.Close()
}
