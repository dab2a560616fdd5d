package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/atelier-run/atelier/client"
)

// sessionListCommand is atelier session list.
type sessionListCommand struct {
	serverFlags
	Bucket   string `env:"-" default:"" enum:",asking,running,scheduled,done" help:"Only the sessions in this state: asking, running, scheduled or done."`
	Archived bool   `env:"-" help:"The archived sessions instead of the others."`
	Search   string `env:"-" placeholder:"TEXT" help:"Only sessions whose title contains this text."`
	Parent   string `env:"-" placeholder:"ID" help:"Only the children of this session."`
	Limit    int    `env:"-" default:"50" help:"Number of sessions at most. 0: all."`
	JSON     bool   `name:"json" env:"-" help:"Print JSON, one session a line, as the API has them."`

	Workspace string `arg:"" help:"Slug of the workspace."`
}

// Validate is called by the parser when every flag has its value.
func (c *sessionListCommand) Validate() error {
	if c.Limit < 0 {
		return errors.New("limit: it must not be negative")
	}
	return nil
}

// Run lists the sessions of a workspace.
func (c *sessionListCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	query := client.SessionsQuery{Bucket: c.Bucket, Archived: c.Archived, Search: c.Search}
	list := api.Sessions(c.Workspace, query)
	if c.Parent != "" {
		list = api.ChildSessions(c.Workspace, c.Parent, query)
	}
	table := tabwriter.NewWriter(out.out, 0, 8, 2, ' ', 0)
	count := 0
	for s, err := range list.All(ctx) {
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if c.JSON {
			if err := writeJSON(out.out, s); err != nil {
				return err
			}
		} else {
			if count == 0 {
				fmt.Fprint(table, "ID\tSTATE\tUPDATED\tTITLE\n")
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.ID, s.Bucket, formatTime(s.UpdatedAt), firstLine(s.Title))
		}
		if count++; count == c.Limit {
			break
		}
	}
	return table.Flush()
}

// formatTime returns a time of the API in the time zone of the user.
func formatTime(ms int64) string { return time.UnixMilli(ms).Local().Format("2006-01-02 15:04:05") }

// sessionShowCommand is atelier session show.
type sessionShowCommand struct {
	sessionFlags
	JSON bool `name:"json" env:"-" help:"Print JSON, as the API has it."`
}

// Run prints the state of a session.
func (c *sessionShowCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	found, err := api.Session(ctx, c.Workspace, c.Session)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(out.out, found)
	}
	_, err = io.WriteString(out.out, describeSession(found))
	return err
}

// describeSession returns the state of a session as lines of a name and a value.
func describeSession(s client.SessionDetail) string {
	var out strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%-10s %s\n", name, printable(value))
		}
	}
	line("Session", s.ID)
	line("Title", firstLine(s.Title))
	line("State", fmt.Sprintf("%s; the last turn: %s", s.Bucket, s.TurnStatus))
	if m := s.Machine; m != nil {
		step := m.Step
		if m.Progress != nil {
			step = fmt.Sprintf("%d of %d  %s", m.Progress.Completed, m.Progress.Total, m.Step)
		}
		line("Job", strings.TrimSpace(m.Activity+" "+m.Outcome))
		line("Step", firstLine(step))
		if m.NextWakeAt != 0 {
			line("Wakes", formatTime(m.NextWakeAt))
		}
	}
	if s.Agent != nil {
		line("Agent", s.Agent.Name)
	}
	line("Directory", "/"+s.Cwd)
	if s.Tier != nil {
		line("Tier", *s.Tier)
	}
	line("Mode", s.Mode)
	line("Parent", s.CreatedBySessionID)
	line("Started", formatTime(s.CreatedAt))
	line("Updated", formatTime(s.UpdatedAt))
	if at := s.Archive.GlobalArchivedAt; at != nil {
		line("Archived", formatTime(*at))
	} else if at := s.Archive.PersonalArchivedAt; at != nil {
		line("Archived", formatTime(*at)+" by you, for yourself")
	}
	if s.Audience.Kind == "specific" {
		line("Audience", fmt.Sprintf("%d members, the creator and the owners", s.Audience.Count))
	}
	if n := len(s.PendingInputs); n > 0 {
		line("Queue", fmt.Sprintf("%d inputs wait", n))
	}
	if s.Usage.InputTokens+s.Usage.OutputTokens > 0 {
		line("Tokens", fmt.Sprintf("%d read, %d written", s.Usage.InputTokens, s.Usage.OutputTokens))
	}
	if s.Ask != nil {
		line("Question", strings.ReplaceAll(strings.TrimSpace(printable(s.Ask.Text)), "\n", "\n           "))
		for _, o := range s.Ask.Options {
			line("", describeOption(o))
		}
	}
	return out.String()
}

// describeOption returns the id of an option, and its label if that is another text.
func describeOption(o client.SessionOption) string {
	if o.ID == o.Label {
		return o.ID
	}
	return o.ID + "  " + firstLine(o.Label)
}
