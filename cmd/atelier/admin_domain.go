package main

import (
	"context"
	"net/http"
	"net/url"
)

type bindingCommands struct {
	List   bindingListCommand   `cmd:"" help:"Print the custom domains whose removal needs an operator, one JSON object a line."`
	Renew  bindingRenewCommand  `cmd:"" help:"Request another certificate for a custom domain or a host of the node, in place of its present one."`
	Repair bindingRepairCommand `cmd:"" help:"Start the removal of a custom domain again after it has failed repeatedly."`
}

type bindingListCommand struct {
	dataFlag
	Limit int `help:"Largest number to print. 0: all."`
}

func (c *bindingListCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).list(ctx, out, adminDomains, c.Limit)
}

type bindingRepairCommand struct {
	dataFlag
	Hostname string `arg:"" help:"Host name of the domain."`
	Release  bool   `help:"Free the name at once, also if its certificates cannot be removed."`
}

func (c *bindingRepairCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, adminDomains+"/"+url.PathEscape(c.Hostname)+"/repair", struct {
		Release bool `json:"release"`
	}{c.Release})
}

type bindingRenewCommand struct {
	dataFlag
	Hostname string `arg:"" help:"Host name of the domain, of the platform, or of the address of an app."`
}

func (c *bindingRenewCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, adminDomains+"/"+url.PathEscape(c.Hostname)+"/renew", nil)
}
