package client

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// drivePath returns the URL path of a path on the drive of a workspace; "" is the root of the drive.
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

// ReadFile opens a file on the drive of a workspace. The caller closes it. Codes: not_found.
func (c *Client) ReadFile(ctx context.Context, slug, path string) (io.ReadCloser, error) {
	response, err := c.do(ctx, request{method: http.MethodGet, path: drivePath(slug, path)})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// WriteFile creates a file with the content of a reader, or replaces one. created reports whether the file is new. Other
// clients see the complete new file or the previous state, never a part.
func (c *Client) WriteFile(ctx context.Context, slug, path string, content io.Reader) (created bool, err error) {
	return c.sendChange(ctx, http.MethodPut, drivePath(slug, path), content)
}

// MakeFolder creates an empty folder.
func (c *Client) MakeFolder(ctx context.Context, slug, path string) error {
	_, err := c.sendChange(ctx, "MKCOL", drivePath(slug, path), http.NoBody)
	return err
}

// Delete removes a file, or a folder with its contents.
func (c *Client) Delete(ctx context.Context, slug, path string) error {
	_, err := c.sendChange(ctx, http.MethodDelete, drivePath(slug, path), http.NoBody)
	return err
}

// sendChange sends a request that changes the drive. It never retries: the content can be read only once, and the
// response to a retry would not show the effect of the first attempt.
func (c *Client) sendChange(ctx context.Context, method, path string, content io.Reader) (created bool, err error) {
	h, err := c.newRequest(ctx, method, path, nil, content)
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(h)
	switch {
	case err != nil:
		return false, err
	case !succeeded(response), response.StatusCode == http.StatusMultiStatus: // 207: a part of the folder was not deleted
		return false, newError(response)
	}
	return response.StatusCode == http.StatusCreated, response.Body.Close()
}
