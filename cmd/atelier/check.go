package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/atelier-run/atelier/cmd/node/check"
	"github.com/atelier-run/atelier/persistence"
)

// checkCommand is atelier check, which reads everything in the data directory of a node that does not run.
type checkCommand struct {
	dataFlag
	Repair bool `help:"Mend the faults that follow from the events: heads, feeds, timers and tasks. Each line says whether its fault was mended. Copy the data directory first."`
	JSON   bool `help:"Print each fault as a JSON object."`
}

// Run prints a line for each fault. It fails with exitFailure if a fault remains, and with exitInUse if a node has the directory open.
func (c *checkCommand) Run(ctx context.Context, out console) error {
	log, err := newLog(out.errors, "error", "text")
	if err != nil {
		return err
	}
	faults := &faultPrinter{out: out, asJSON: c.JSON}
	run := check.Run
	if c.Repair {
		run = check.Repair
	}
	if err := run(ctx, c.Data, log, faults.print); err != nil {
		return explain(errors.Join(err, faults.err))
	}
	return faults.end()
}

// adminCheckCommand is atelier admin check, which checks the journal of the node that runs.
type adminCheckCommand struct {
	dataFlag
}

// checkLine is a line of the node's answer to the request of a check.
type checkLine struct {
	Fault *persistence.Fault
	Done  bool
	Error string
}

// Run prints the faults as they are found, one JSON object a line. It fails with exitFailure if there is a fault or if the check has ended
// early.
func (c *adminCheckCommand) Run(ctx context.Context, out console) error {
	response, err := newOperator(c.Data).send(ctx, http.MethodPost, "/admin/check", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	faults := &faultPrinter{out: out, asJSON: true}
	return readLines(ctx, response.Body, "check", func(answer checkLine) (done bool, err error) {
		switch {
		case answer.Error != "":
			return true, fmt.Errorf("the check has ended early: %s", answer.Error)
		case answer.Done:
			return true, faults.end()
		case answer.Fault != nil:
			faults.print(*answer.Fault)
		}
		return false, nil
	})
}

// faultPrinter prints faults, one a line.
type faultPrinter struct {
	out    console
	asJSON bool
	// remaining is the number of faults that were not mended, repairable the number of faults that a repair would mend, and mended the
	// number of faults that this run has mended.
	remaining, repairable, mended int
	err                           error
}

func (p *faultPrinter) print(f persistence.Fault) {
	state := ""
	switch {
	case f.Repaired:
		p.mended++
		state = " [mended: " + f.Repair + "]"
	case f.Repair != "":
		p.repairable++
		state = " [--repair can: " + f.Repair + "]"
		fallthrough
	default:
		p.remaining++
	}
	if p.asJSON {
		text, err := json.Marshal(f)
		p.err = errors.Join(p.err, err, line(p.out, text))
		return
	}
	_, err := fmt.Fprintf(p.out.out, "%s: %s%s\n", f.File, f.What, state)
	p.err = errors.Join(p.err, err)
}

// end returns an error if faults remain.
func (p *faultPrinter) end() error {
	switch {
	case p.err != nil:
		return p.err
	case p.remaining == 0 && p.mended == 0:
		fmt.Fprintln(p.out.errors, "No fault was found.")
	case p.remaining == 0:
		fmt.Fprintf(p.out.errors, "All faults were mended: %d.\n", p.mended)
	default:
		return fmt.Errorf("%d faults remain, of which --repair can mend %d", p.remaining, p.repairable)
	}
	return nil
}
