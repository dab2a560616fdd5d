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
	Export auditExportCommand `cmd:"" help:"Print the audit logs of all workspaces and of the changes to people, one JSON object a line; newest first within a log."`
}

type auditExportCommand struct {
	dataFlag
	Slug  string `help:"Slug of a workspace, to export only its log."`
	Since int64  `help:"Earliest time of an entry, in milliseconds since the Unix epoch."`
}

// Run prints the lines as they arrive.
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
		return fmt.Errorf("the export ended early, the printed lines are incomplete: %w", err)
	}
	return nil
}
