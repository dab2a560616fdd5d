package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/atelier-run/atelier/persistence/datadir"
)

// acceptCommand is atelier accept, which lets a node start with a data directory after its journal has lost events.
type acceptCommand struct {
	dataFlag
	Yes bool `help:"Confirm that the missing parts are lost permanently."`
}

// Run calls datadir.Accept, which writes new marks of the journal and so invalidates the cursors of all clients, and prints which logs
// lack acknowledged changes and how many events are missing. It fails with exitConfig without --yes.
func (c *acceptCommand) Run(_ context.Context, out console) error {
	if !c.Yes {
		return coded{errors.New("this command makes the loss of the missing parts permanent: copy the data directory first, then add --yes"), exitConfig}
	}
	log, err := newLog(out.errors, "warn", "text")
	if err != nil {
		return err
	}
	accepted, err := datadir.Accept(c.Data, log)
	if err != nil {
		return explain(err)
	}
	for _, lost := range accepted.Lost {
		if _, err := fmt.Fprintf(out.out, "Acknowledged changes are missing or damaged. %s\n", lost); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out.out, "Accepted. The journal holds %d events; %d more are known to be missing.\n", accepted.Events, accepted.Missing)
	return err
}
