package main

import (
	"context"
	"encoding/json"
	"net/http"
)

type reactionsCommands struct {
	List  reactionsListCommand  `cmd:"" help:"Print the streams whose reactions are parked because they kept failing, one JSON object a line."`
	Retry reactionsRetryCommand `cmd:"" help:"Carry out the reactions of parked streams again, from the event that failed on. A stream whose reactions fail again is parked again."`
	Skip  reactionsSkipCommand  `cmd:"" help:"Give up the reactions to the one event at which a stream failed, and go on with the next event."`
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

// streamRequest names a stream, as reactions list prints it.
type streamRequest struct {
	Stream string `json:"stream"`
}

type reactionsRetryCommand struct {
	dataFlag
	Stream string `placeholder:"KIND/IDENTITY" help:"Stream to retry. Without this: every parked stream."`
}

func (c *reactionsRetryCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).tell(ctx, out, http.MethodPost, adminReactions+"/retry", streamRequest{c.Stream})
}

type reactionsSkipCommand struct {
	dataFlag
	Stream string `required:"" placeholder:"KIND/IDENTITY" help:"Stream whose event is skipped."`
}

func (c *reactionsSkipCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).tell(ctx, out, http.MethodPost, adminReactions+"/skip", streamRequest{c.Stream})
}
