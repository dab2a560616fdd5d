package main

import (
	"errors"
	"fmt"

	"github.com/atelier-run/atelier/persistence/datadir"
)

// acceptCommand accepts a data directory as it stands.
type acceptCommand struct {
	dataFlag
	Yes bool `help:"Accept it, though what is missing is then missing for good."`
}

// Run writes new marks, which end the cursors that clients hold.
func (c *acceptCommand) Run(out console) error {
	if !c.Yes {
		return coded{errors.New("what is missing from the data directory would be missing for good: copy it first, and then add --yes"), exitUsage}
	}
	log, err := newLog(out.errors, "warn", "text")
	if err != nil {
		return err
	}
	accepted, err := datadir.Accept(c.Data, log)
	if err != nil {
		return explain(err)
	}
	_, err = fmt.Fprintf(out.out, "Accepted. The journal holds %d events; %d more are known to be missing.\n", accepted.Events, accepted.Missing)
	return err
}
