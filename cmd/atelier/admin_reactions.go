package main

import (
	"context"
	"encoding/json"
	"net/http"
)

type reactionsCommands struct {
	List  reactionsListCommand  `cmd:"" help:"Print the streams with parked reactions, one JSON object a line."`
	Retry reactionsRetryCommand `cmd:"" help:"Retry the reactions of parked streams, from the event that failed. If they fail again, the stream is parked again."`
	Skip  reactionsSkipCommand  `cmd:"" help:"Skip the reactions to the event at which a stream failed, and continue with the next event."`
}

type reactionsListCommand struct {
	dataFlag
}

func (c *reactionsListCommand) Run(ctx context.Context, out console) error {
	var parked struct{ Items []json.RawMessage }
	if err := newOperator(c.Data).call(ctx, http.MethodGet, adminReactions, nil, &parked); err != nil {
		return err
	}
	for _, item := range parked.Items {
		if err := line(out, item); err != nil {
			return err
		}
	}
	return nil
}

// streamRequest has the name of a stream, as "reactions list" prints it.
type streamRequest struct {
	Stream string `json:"stream"`
}

type reactionsRetryCommand struct {
	dataFlag
	Stream string `placeholder:"KIND/IDENTITY" help:"Stream to retry. Without this: every parked stream."`
}

func (c *reactionsRetryCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, adminReactions+"/retry", streamRequest{c.Stream})
}

type reactionsSkipCommand struct {
	dataFlag
	Stream string `required:"" placeholder:"KIND/IDENTITY" help:"Stream of the event."`
}

func (c *reactionsSkipCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, adminReactions+"/skip", streamRequest{c.Stream})
}
