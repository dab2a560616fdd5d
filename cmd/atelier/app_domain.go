package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/atelier-run/atelier/client"
)

// appDomainCommands are the commands for custom domains.
type appDomainCommands struct {
	Attach  domainAttachCommand  `cmd:"" help:"Attach a host name to an app, and print the DNS records that it needs."`
	Show    domainShowCommand    `cmd:"" help:"Print the custom domain of an app, and the DNS records that are missing."`
	Recheck domainRecheckCommand `cmd:"" help:"Check the DNS records now, or try a removal again."`
	Remove  domainRemoveCommand  `cmd:"" help:"Stop serving the custom domain of an app, and release its name."`
	List    domainListCommand    `cmd:"" help:"List the custom domains of a workspace."`
}

// domainFlags name an app and the form of its domain.
type domainFlags struct {
	appFlags
	JSON bool `name:"json" env:"-" help:"Print JSON, as the API has it; null if there is no domain."`
}

// run sends a request and prints the domain.
func (f *domainFlags) run(out console, send func(*client.Client) (*client.AppDomain, error)) error {
	api, err := f.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	found, err := send(api)
	switch {
	case err != nil:
		return err
	case f.JSON:
		return writeJSON(out.out, found)
	case found == nil:
		_, err = fmt.Fprintln(out.errors, "The app has no custom domain.")
	default:
		_, err = io.WriteString(out.out, describeDomain(*found))
	}
	return err
}

// domainAttachCommand is atelier app domain attach.
type domainAttachCommand struct {
	domainFlags
	Hostname string `arg:"" help:"Host name, such as shop.example.com."`
}

// Run attaches a domain.
func (c *domainAttachCommand) Run(ctx context.Context, out console) error {
	return c.run(out, func(api *client.Client) (*client.AppDomain, error) {
		return api.AttachAppDomain(ctx, c.Workspace, c.App, client.NewDomain{Hostname: c.Hostname})
	})
}

// domainShowCommand is atelier app domain show.
type domainShowCommand struct {
	domainFlags
}

// Run prints a domain.
func (c *domainShowCommand) Run(ctx context.Context, out console) error {
	return c.run(out, func(api *client.Client) (*client.AppDomain, error) { return api.AppDomain(ctx, c.Workspace, c.App) })
}

// domainRecheckCommand is atelier app domain recheck.
type domainRecheckCommand struct {
	domainFlags
}

// Run requests a check of a domain.
func (c *domainRecheckCommand) Run(ctx context.Context, out console) error {
	return c.run(out, func(api *client.Client) (*client.AppDomain, error) {
		return api.RecheckAppDomain(ctx, c.Workspace, c.App)
	})
}

// domainRemoveCommand is atelier app domain remove.
type domainRemoveCommand struct {
	domainFlags
}

// Run removes a domain. It succeeds also if there is none.
func (c *domainRemoveCommand) Run(ctx context.Context, out console) error {
	return c.run(out, func(api *client.Client) (*client.AppDomain, error) {
		return api.RemoveAppDomain(ctx, c.Workspace, c.App)
	})
}

// domainListCommand is atelier app domain list.
type domainListCommand struct {
	serverFlags
	JSON bool `name:"json" env:"-" help:"Print JSON, one domain a line, as the API has them."`

	Workspace string `arg:"" help:"Slug of the workspace."`
}

// Run lists the custom domains of a workspace.
func (c *domainListCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	table := tabwriter.NewWriter(out.out, 0, 8, 2, ' ', 0)
	count := 0
	for item, err := range api.AppDomains(c.Workspace).All(ctx) {
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if c.JSON {
			if err := writeJSON(out.out, item); err != nil {
				return err
			}
			continue
		}
		if count++; count == 1 {
			fmt.Fprint(table, "DOMAIN\tSTATE\tAPP\n")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", item.Domain.Hostname, describeDomainStatus(item.Domain), item.App.Slug)
	}
	return table.Flush()
}

// describeDomainStatus returns the state of a domain in a few words.
func describeDomainStatus(d client.AppDomain) string {
	status := d.Status
	if d.Checking {
		status += ", being checked"
	}
	switch {
	case d.OperatorRepairRequired:
		status += ", needs the operator"
	case d.RetryRequired:
		status += ", needs a recheck"
	}
	return status
}

// describeDomain returns the state of a domain as lines of a name and a value, and a table of its records.
func describeDomain(d client.AppDomain) string {
	var out strings.Builder
	line := func(name, value string) { fmt.Fprintf(&out, "%-10s %s\n", name, printable(value)) }
	line("Domain", d.Hostname)
	line("State", describeDomainStatus(d))
	if d.LastError != "" {
		line("Failure", d.LastError)
	}
	if d.LastCheckedAt != 0 {
		line("Checked", formatTime(d.LastCheckedAt))
	}
	if d.VerifiedAt != 0 {
		line("Verified", formatTime(d.VerifiedAt))
	}
	if len(d.Records) > 0 {
		fmt.Fprint(&out, "\nDNS records:\n")
		table := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
		for _, r := range d.Records {
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", printable(r.Domain), printable(r.Type), printable(r.Value), firstLine(r.Reason))
		}
		_ = table.Flush() // a strings.Builder does not fail
	}
	if len(d.Conflicts) > 0 {
		fmt.Fprint(&out, "\nRecords that must be removed:\n")
		table := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
		for _, f := range d.Conflicts {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", printable(f.Name), printable(f.Type), printable(f.Value))
		}
		_ = table.Flush()
	}
	return out.String()
}
