package operator

import (
	"context"
	"net/http"

	"github.com/atelier-run/atelier/http/server"
)

// CheckJournal checks the tables and rows of the journal while it goes on, and calls report for each fault from one goroutine. It returns
// when all were checked, or the error that has ended the check.
type CheckJournal func(ctx context.Context, report func(JournalFault)) error

// JournalFault is a damaged file of the journal, or the folder of the journal if rows do not agree. What describes the fault.
type JournalFault struct {
	File   string `json:"file"`
	What   string `json:"fault"`
	Repair string `json:"repair,omitzero"`
}

// checks checks the journal.
type checks struct{ check CheckJournal }

func (c checks) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: "/admin/check", Scope: server.ScopeOperator, Summary: "Check the journal",
			Handler: c.create, Timing: server.Transfer},
	}
}

// checkLine is a line of the answer. The last line has Done or Error.
type checkLine struct {
	Fault *JournalFault `json:"fault,omitzero"`
	Done  bool          `json:"done,omitzero"`
	Error string        `json:"error,omitzero"`
}

// create checks the journal, and writes the faults as lines of JSON. The check ends when the client closes the connection.
func (c checks) create(call *server.Call) error {
	ctx, cancel := beginLines(call)
	defer cancel()
	err := c.check(ctx, func(fault JournalFault) {
		if err := writeLine(call, checkLine{Fault: &fault}); err != nil {
			cancel()
		}
	})
	if err != nil {
		return writeLine(call, checkLine{Error: err.Error()})
	}
	return writeLine(call, checkLine{Done: true})
}
