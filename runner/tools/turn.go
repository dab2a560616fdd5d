package tools

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/atelier-run/atelier/entity"
)

// maxSleep is the longest sleep.
const maxSleep = 366 * 24 * time.Hour

// turnTools returns the tools that concern the turn of the agent that calls.
func turnTools() []*tool {
	ends := mcp.ToolAnnotations{DestructiveHint: new(bool)}
	return []*tool{
		define(onlySession, "ask", "Ask the people of this session a question. After this call end your turn: the answer starts your "+
			"next turn.", ends, askQuestion),
		define(onlySession, "sleep_until", "Sleep until a time, without using anything meanwhile. After this call end your turn: your next "+
			"turn starts at the time, or earlier with a message.", ends, sleepUntil),
		define(onlySession, "report_progress", "Report what you are doing and how much of it is done. It is shown to people.",
			mcp.ToolAnnotations{DestructiveHint: new(bool), IdempotentHint: true}, reportProgress),
	}
}

// nextStep is the result of a tool: an instruction for the agent.
type nextStep struct {
	Message string `json:"message"`
}

type askIn struct {
	Text    string   `json:"text" jsonschema:"the question, with everything that is needed to answer it" bounds:"1:10000"`
	Options []string `json:"options,omitzero" jsonschema:"answers to choose from; any other answer remains possible" bounds:"1:16" each:"1:200"`
}

func askQuestion(ctx context.Context, c *call, in askIn) (nextStep, error) {
	if err := c.Session.Turn.Ask(ctx, in.Text, in.Options); err != nil {
		return nextStep{}, err
	}
	return nextStep{"The question is recorded. End your turn now, without another tool call. The answer is your next message."}, nil
}

type sleepIn struct {
	At      any `json:"at,omitzero" jsonschema:"the time: milliseconds since 1970, or RFC 3339 such as 2027-01-31T09:00:00Z" types:"integer,string"`
	Seconds int `json:"seconds,omitzero" jsonschema:"the duration, in place of at" bounds:"1:31622400"`
}

func sleepUntil(ctx context.Context, c *call, in sleepIn) (nextStep, error) {
	at, err := in.time(c.Clock())
	if err != nil {
		return nextStep{}, err
	}
	if err := c.Session.Turn.SleepUntil(ctx, at); err != nil {
		return nextStep{}, err
	}
	return nextStep{"You will sleep until " + at.UTC().Format(time.RFC3339) + ". End your turn now, without another tool call."}, nil
}

// time returns the end of the sleep. Errors: invalid_request.
func (in sleepIn) time(now time.Time) (at time.Time, err error) {
	switch given := in.At.(type) {
	case nil:
		if in.Seconds == 0 {
			return at, entity.Errorf(entity.InvalidRequest, "at or seconds is required")
		}
		return now.Add(time.Duration(in.Seconds) * time.Second), nil
	case float64:
		at = time.UnixMilli(int64(given))
	case string:
		if at, err = time.Parse(time.RFC3339, given); err != nil {
			return at, entity.Errorf(entity.InvalidRequest, "at must be a time such as 2027-01-31T09:00:00Z")
		}
	}
	switch {
	case in.Seconds != 0:
		return at, entity.Errorf(entity.InvalidRequest, "at and seconds exclude each other")
	case !at.After(now):
		return at, entity.Errorf(entity.InvalidRequest, "at must be later than now, %s", now.UTC().Format(time.RFC3339))
	case at.Sub(now) > maxSleep:
		return at, entity.Errorf(entity.InvalidRequest, "at must be within a year")
	}
	return at, nil
}

type progressIn struct {
	Step      string `json:"step,omitzero" jsonschema:"what you are doing" bounds:"0:200"`
	Completed uint64 `json:"completed,omitzero" jsonschema:"the number of parts that are done" bounds:"0:1000000000"`
	Total     uint64 `json:"total,omitzero" jsonschema:"the number of parts; omitted if it is not known" bounds:"0:1000000000"`
}

func reportProgress(ctx context.Context, c *call, in progressIn) (nextStep, error) {
	switch {
	case in == progressIn{}:
		return nextStep{}, entity.Errorf(entity.InvalidRequest, "step, or completed and total, is required")
	case in.Total > 0 && in.Completed > in.Total:
		return nextStep{}, entity.Errorf(entity.InvalidRequest, "completed must not be greater than total")
	}
	if err := c.Session.Turn.Progress(ctx, in.Step, in.Completed, in.Total); err != nil {
		return nextStep{}, err
	}
	return nextStep{"Recorded. Continue."}, nil
}
