package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

type auditCommands struct {
	Export auditExportCommand `cmd:"" help:"Print the audit logs of all workspaces, and what was done to people, one JSON object a line; newest first within a log."`
}

type auditExportCommand struct {
	dataFlag
	Slug  string `help:"Slug of the only workspace that is wanted."`
	Since int64  `help:"Earliest time that is wanted, in milliseconds since the Unix epoch."`
}

// Run passes the lines on as they come, however many there are.
func (c *auditExportCommand) Run(ctx context.Context, out console) error {
	query := url.Values{"since": {strconv.FormatInt(c.Since, 10)}}
	if c.Slug != "" {
		query.Set("slug", c.Slug)
	}
	response, err := newOperator(c.Data).send(ctx, http.MethodGet, "/admin/audit?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(out.out, response.Body); err != nil {
		return fmt.Errorf("the export was cut off, what is printed is not all: %w", err)
	}
	return nil
}
